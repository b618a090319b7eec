//! `#[jobs]`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Ident, ImplItem, ImplItemFn, ItemImpl, LitStr, Type};

use crate::attributes::{JobOptions, ServiceArguments};
use crate::method::Shape;

/// A method that is a job.
struct Job {
    options: JobOptions,
    shape: Shape,
    name: Ident,
    docs: Vec<Attribute>,
}

pub(crate) fn expand(arguments: &ServiceArguments, mut block: ItemImpl) -> syn::Result<TokenStream> {
    let service = service(&block)?;
    let mut jobs = Vec::new();
    for item in &mut block.items {
        if let ImplItem::Fn(function) = item
            && let Some(mut options) = take_options(function)?
        {
            options.inherit(arguments);
            jobs.push(Job::of(function, options)?);
        }
    }
    if jobs.is_empty() {
        return Err(Error::new(Span::call_site(), "no method is marked with #[job]"));
    }
    let (target, itself) = (&arguments.target, &block.self_ty);
    let calls = format_ident!("{service}Jobs");
    let makers = jobs.iter().map(|job| job.maker(target));
    let methods = jobs.iter().map(|job| job.method(target)).collect::<syn::Result<Vec<_>>>()?;
    let about = format!("Calls of [`{service}`] that can be submitted.");
    Ok(quote! {
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
                ::core::result::Result::Ok(::std::vec![#(#methods),*])
            }
        }
    })
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

/// Takes `#[job]` off a method, if it is there.
fn take_options(function: &mut ImplItemFn) -> syn::Result<Option<JobOptions>> {
    let Some(place) = function.attrs.iter().position(|attribute| attribute.path().is_ident("job")) else {
        return Ok(None);
    };
    let attribute = function.attrs.remove(place);
    match &attribute.meta {
        syn::Meta::Path(_) => Ok(Some(JobOptions::default())),
        _ => attribute.parse_args().map(Some),
    }
}

impl Job {
    fn of(function: &ImplItemFn, options: JobOptions) -> syn::Result<Self> {
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

/// Adds to a method what its attribute says.
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
