//! `#[derive(JobError)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, LitStr, Meta, Type};

pub(crate) fn expand(item: &DeriveInput) -> syn::Result<TokenStream> {
    let whole = never(&item.attrs)?;
    let advice = match (&item.data, whole) {
        (Data::Union(_), _) => return Err(Error::new(item.ident.span(), "an error is a struct or an enum")),
        (_, Some(never)) => never,
        (Data::Struct(data), None) => {
            let (pattern, advice) = inherited(&data.fields);
            quote!({ let Self #pattern = self; #advice })
        }
        (Data::Enum(data), None) => {
            let arms = data.variants.iter().map(|variant| {
                let name = &variant.ident;
                Ok(match never(&variant.attrs)? {
                    Some(never) => quote!(Self::#name { .. } => #never),
                    None => {
                        let (pattern, advice) = inherited(&variant.fields);
                        quote!(Self::#name #pattern => #advice)
                    }
                })
            });
            let arms = arms.collect::<syn::Result<Vec<_>>>()?;
            match arms.is_empty() {
                true => quote!(match *self {}),
                false => quote!(match self { #(#arms),* }),
            }
        }
    };
    let inner = inner_types(&item.data);
    let (name, (generics, arguments, bounds)) = (&item.ident, item.generics.split_for_impl());
    Ok(quote! {
        impl #generics ::ratchet_core::JobError for #name #arguments #bounds {
            fn retry_advice(&self) -> ::ratchet_core::RetryAdvice {
                #advice
            }

            fn heed_inner() {
                #[allow(unused_imports)]
                use ::ratchet_core::__private::{ErrorOf, HeedJobError as _, HeedNone as _};
                #((&ErrorOf::<::core::result::Result<(), #inner>>(::core::marker::PhantomData)).heed();)*
            }
        }
    })
}

/// The types of the `#[from]` fields.
fn inner_types(data: &Data) -> Vec<&Type> {
    let fields: Vec<&Fields> = match data {
        Data::Struct(data) => vec![&data.fields],
        Data::Enum(data) => data.variants.iter().map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    };
    fields.into_iter().flatten().filter(|field| is_from(field)).map(|field| &field.ty).collect()
}

fn is_from(field: &Field) -> bool {
    field.attrs.iter().any(|attribute| attribute.path().is_ident("from"))
}

/// The advice of `#[do_not_retry]`, if present.
fn never(attributes: &[Attribute]) -> syn::Result<Option<TokenStream>> {
    let Some(attribute) = attributes.iter().find(|attribute| attribute.path().is_ident("do_not_retry"))
    else {
        return Ok(None);
    };
    let reason = match &attribute.meta {
        Meta::Path(_) => String::from("the error says so"),
        Meta::List(list) => list.parse_args::<LitStr>()?.value(),
        Meta::NameValue(pair) => {
            return Err(Error::new(pair.eq_token.spans[0], "write #[do_not_retry(\"reason\")]"));
        }
    };
    Ok(Some(quote!(::ratchet_core::RetryAdvice::Never(::std::string::String::from(#reason)))))
}

/// A pattern for the fields, and the advice of the `#[from]` inner error, if there is one.
fn inherited(fields: &Fields) -> (TokenStream, TokenStream) {
    let usual = quote!(::ratchet_core::RetryAdvice::Usual);
    let inner = fields.iter().position(is_from);
    let Some(place) = inner else { return (quote!({ .. }), usual) };
    let name = format_ident!("inner");
    let pattern = match fields.iter().nth(place).and_then(|field| field.ident.as_ref()) {
        Some(field) => quote!({ #field: #name, .. }),
        None => {
            let place = syn::Index::from(place);
            quote!({ #place: #name, .. })
        }
    };
    // Asks the inner error if it is a `JobError`, else gives the default advice: the first impl that applies wins.
    let advice = quote! {{
        #[allow(unused_imports)]
        use ::ratchet_core::__private::{AdviceOfAny as _, AdviceOfJobError as _};
        (&::ratchet_core::__private::Inner(#name)).advice()
    }};
    (pattern, advice)
}
