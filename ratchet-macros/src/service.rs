//! The attribute `#[jobs]`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Ident, ImplItem, ImplItemFn, ItemImpl, LitStr, Type};

use crate::attributes::{JobOptions, ServiceArguments};
use crate::method::{Shape, stand_in};

/// A method that is a job.
struct Job {
    options: JobOptions,
    shape: Shape,
    name: Ident,
    docs: Vec<Attribute>,
}

/// Expands to the complete `impl` beside any mistakes, so that the mistakes are the only errors reported.
pub(crate) fn expand(arguments: syn::Result<ServiceArguments>, mut block: ItemImpl) -> TokenStream {
    let mut mistakes = Vec::new();
    let arguments = arguments.unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        ServiceArguments::unknown()
    });
    let target = &arguments.target;
    let (mut makers, mut methods, mut heeding) = (Vec::new(), Vec::new(), Vec::new());
    for item in &mut block.items {
        let ImplItem::Fn(function) = item else { continue };
        let Some(options) = take_options(function) else { continue };
        let job = options.and_then(|options| Job::of(function, options, &arguments));
        match job.and_then(|job| Ok((job.method(target)?, job))) {
            Ok((method, job)) => {
                makers.push(job.maker(target));
                methods.push(method);
                heeding.push(job.shape.heeding());
            }
            Err(mistake) => {
                makers.push(stand_in(&function.sig.ident, &quote!(self,), &function.sig));
                mistakes.push(mistake);
            }
        }
    }
    if makers.is_empty() {
        mistakes.push(Error::new(Span::call_site(), "no method is marked with #[job]"));
    }
    let service = match service(&block) {
        Ok(service) => service,
        Err(mistake) => {
            let mistake = mistake.into_compile_error();
            return quote!(#block #mistake);
        }
    };
    if !mistakes.is_empty() {
        methods.clear();
        heeding.clear();
    }
    let mistakes = mistakes.into_iter().map(Error::into_compile_error);
    let (itself, calls) = (&block.self_ty, format_ident!("{service}Jobs"));
    let about = format!("Calls of [`{service}`] that can be submitted.");
    quote! {
        #(#mistakes)*

        #block

        #[doc = #about]
        #[allow(unreachable_pub)]
        #[derive(Clone, Copy, Debug)]
        pub struct #calls;

        #[allow(unreachable_pub)]
        impl #calls {
            #(#makers)*
        }

        #[allow(unreachable_pub)]
        impl #itself {
            #[doc = "Calls that can be submitted."]
            pub const fn job() -> #calls {
                #calls
            }
        }

        impl ::ratchet_core::JobTarget for #itself {
            const TARGET: &'static str = #target;

            fn methods() -> ::core::result::Result<::std::vec::Vec<::ratchet_core::Method>, ::ratchet_core::InvalidName> {
                #(#heeding)*
                ::core::result::Result::Ok(::std::vec![#(#methods),*])
            }
        }
    }
}

/// The name of the type.
fn service(block: &ItemImpl) -> syn::Result<Ident> {
    if let Some((path, _)) = &block.trait_ {
        return Err(Error::new(
            path.span(),
            "#[jobs] stands on the type's own `impl` block, not on a trait's",
        ));
    }
    if !block.generics.params.is_empty() {
        let advice = "a type with jobs has no generic parameters: what is stored names one body";
        return Err(Error::new(block.generics.span(), advice));
    }
    match &*block.self_ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.clone()),
        _ => None,
    }
    .ok_or_else(|| Error::new(block.self_ty.span(), "#[jobs] stands on the `impl` block of a named type"))
}

/// Removes `#[job]` from a method and parses it, if present.
fn take_options(function: &mut ImplItemFn) -> Option<syn::Result<JobOptions>> {
    let place = function.attrs.iter().position(|attribute| attribute.path().is_ident("job"))?;
    let attribute = function.attrs.remove(place);
    Some(match &attribute.meta {
        syn::Meta::Path(_) => Ok(JobOptions::default()),
        _ => attribute.parse_args(),
    })
}

impl Job {
    fn of(function: &ImplItemFn, mut options: JobOptions, arguments: &ServiceArguments) -> syn::Result<Self> {
        options.inherit(arguments);
        if let Some(target) = &options.target {
            return Err(Error::new(target.span(), "the target stands in #[jobs(target = …)]"));
        }
        let shape = Shape::of(&function.sig, options.blocking)?;
        if !shape.has_self {
            let advice = "a job's method takes `&self`; a function without it is marked outside of the block";
            return Err(Error::new(function.sig.ident.span(), advice));
        }
        let is_doc = |attribute: &&Attribute| attribute.path().is_ident("doc");
        let docs = function.attrs.iter().filter(is_doc).cloned().collect();
        Ok(Self { options, shape, name: function.sig.ident.clone(), docs })
    }

    fn stored(&self) -> String {
        self.options.name.as_ref().map_or_else(|| self.name.to_string(), LitStr::value)
    }

    fn maker(&self, target: &LitStr) -> TokenStream {
        let (docs, defaults) = (&self.docs, self.options.defaults());
        let maker = self.shape.maker(&self.name, &quote!(self,), &quote!(#target), &self.stored(), &defaults);
        let stand_in = docs.is_empty().then(|| format!("A call of `{}` that can be submitted.", self.name));
        let stand_in = stand_in.iter();
        quote!(#(#docs)* #(#[doc = #stand_in])* #maker)
    }

    fn method(&self, target: &LitStr) -> syn::Result<TokenStream> {
        let Self { shape, options, name, .. } = self;
        let (names, types, passed, stored) = (&shape.names, &shape.types, shape.passed(), self.stored());
        let body = shape.body(&quote!(bean.#name(#passed)));
        let arguments = quote! {
            bean: ::std::sync::Arc<Self>, ctx: ::ratchet_core::JobContext, (#(#names,)*): (#(#types,)*)
        };
        let method = match shape.is_async {
            true => quote! {
                ::ratchet_core::Method::of_bean(#target, #stored, |#arguments| async move {
                    let _ = &ctx;
                    #body
                })?
            },
            false => quote! {
                ::ratchet_core::Method::of_bean_blocking(#target, #stored, |#arguments| {
                    let _ = &ctx;
                    #body
                })?
            },
        };
        with_options(&method, options, &target.value())
    }
}

/// Adds the options of its attribute to a method.
pub(crate) fn with_options(
    method: &TokenStream,
    options: &JobOptions,
    target: &str,
) -> syn::Result<TokenStream> {
    let defaults = options.defaults();
    let breaker = options.breaker.calls()?;
    let aliases = options.aliases.iter().map(|alias| {
        let text = alias.value();
        let (target, method) = text.rsplit_once('.').unwrap_or((target, text.as_str()));
        match method.is_empty() {
            true => Err(Error::new(
                alias.span(),
                "an alias is a method's name, or a target, a point and a method's name",
            )),
            false => Ok(quote!(.alias(#target, #method)?)),
        }
    });
    let aliases = aliases.collect::<syn::Result<Vec<_>>>()?;
    Ok(quote!(#method #(#aliases)*.defaults(#defaults)#breaker))
}
