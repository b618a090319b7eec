//! `#[job]` on a function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, ItemFn, LitStr};

use crate::attributes::JobOptions;
use crate::method::{self, Shape};
use crate::service::with_options;

pub(crate) fn expand(options: &JobOptions, function: &ItemFn) -> syn::Result<TokenStream> {
    let name = &function.sig.ident;
    let Some(target) = &options.target else {
        let advice = "give the name that is stored: #[job(target = \"reports\")]. In a `#[jobs]` block, `#[job]` marks methods";
        return Err(Error::new(name.span(), advice));
    };
    if options.blocking {
        return Err(Error::new(name.span(), "a blocking job is a method of a `#[jobs]` block"));
    }
    let shape = Shape::of(&function.sig, false)?;
    if shape.has_self {
        return Err(Error::new(name.span(), "a method is marked inside a `#[jobs]` block"));
    }
    let stored = options.name.as_ref().map_or_else(|| name.to_string(), LitStr::value);
    let (names, types, passed) = (&shape.names, &shape.types, shape.passed());
    let body = shape.body(&quote!(#name(#passed)));
    let job = Ident::new("job", name.span());
    let maker = shape.maker(&job, &quote!(), &quote!(#target), &stored, &options.defaults());
    let method = quote! {
        ::ratchet_core::Method::function(
            #target,
            #stored,
            |ctx: ::ratchet_core::JobContext, (#(#names,)*): (#(#types,)*)| async move {
                let _ = &ctx;
                #body
            },
        )?
    };
    let heeding = shape.heeding();
    let method = with_options(&method, options, &target.value())?;
    let (visibility, about) = (&function.vis, format!("The job [`{name}()`]."));
    Ok(quote! {
        #function

        // In braces, so that the function can have the same name in the value namespace.
        #[doc = #about]
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #name {}

        #[allow(unreachable_pub)]
        impl #name {
            /// A call that can be submitted.
            #maker
        }

        impl ::ratchet_core::JobFunction for #name {
            fn method() -> ::core::result::Result<::ratchet_core::Method, ::ratchet_core::InvalidName> {
                #heeding
                ::core::result::Result::Ok(#method)
            }
        }
    })
}

/// A placeholder for a job with a mistake, so that the mistake is the only error reported.
pub(crate) fn stand_in(function: &ItemFn, mistake: &Error) -> TokenStream {
    let mistake = mistake.to_compile_error();
    if function.sig.receiver().is_some() {
        return quote!(#mistake #function);
    }
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let maker = method::stand_in(&Ident::new("job", name.span()), &quote!(), &function.sig);
    quote! {
        #mistake

        #function

        #[allow(non_camel_case_types, missing_docs)]
        #visibility struct #name {}

        impl #name {
            #maker
        }

        impl ::ratchet_core::JobFunction for #name {
            fn method() -> ::core::result::Result<::ratchet_core::Method, ::ratchet_core::InvalidName> {
                ::core::unreachable!()
            }
        }
    }
}
