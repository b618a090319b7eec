//! The signature of a function that is a job.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{
    Error, FnArg, GenericArgument, Ident, Pat, PatType, PathArguments, ReceiverKind, ReturnType, Signature,
    Type,
};

/// The most arguments of a job.
const MAX_ARGUMENTS: usize = 8;

/// The arguments and the return type of a job's function.
pub(crate) struct Shape {
    pub(crate) has_self: bool,
    /// The arguments of the call in order, including the context.
    passed: Vec<TokenStream>,
    has_context: bool,
    pub(crate) names: Vec<Ident>,
    pub(crate) types: Vec<Type>,
    /// The type that it returns on success.
    pub(crate) result: TokenStream,
    /// The `Result` type that it returns, if it can fail.
    fallible: Option<Type>,
    pub(crate) is_async: bool,
}

impl Shape {
    pub(crate) fn of(signature: &Signature, blocking: bool) -> syn::Result<Self> {
        check_generics(signature)?;
        let is_async = signature.asyncness.is_some();
        if !is_async && !blocking {
            let advice = "make it `async`, or say #[job(blocking)] if it blocks its thread";
            return Err(Error::new(signature.fn_token.span(), advice));
        }
        if is_async && blocking {
            return Err(Error::new(signature.fn_token.span(), "a blocking job is not `async`"));
        }
        let (result, fallible) = result(&signature.output)?;
        let mut shape = Self {
            has_self: false,
            passed: Vec::new(),
            has_context: false,
            names: Vec::new(),
            types: Vec::new(),
            result,
            fallible,
            is_async,
        };
        for argument in &signature.inputs {
            shape.take(argument)?;
        }
        if shape.names.len() > MAX_ARGUMENTS {
            let advice = "a job takes at most eight arguments; put them into a struct";
            return Err(Error::new(signature.inputs.span(), advice));
        }
        Ok(shape)
    }

    fn take(&mut self, argument: &FnArg) -> syn::Result<()> {
        match argument {
            FnArg::Receiver(receiver) => {
                if !matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) {
                    return Err(Error::new(
                        receiver.span(),
                        "a job's method takes `&self`: many jobs share the bean",
                    ));
                }
                self.has_self = true;
            }
            FnArg::Typed(argument) if is_context(&argument.ty) => {
                if std::mem::replace(&mut self.has_context, true) {
                    return Err(Error::new(argument.span(), "a job has one context"));
                }
                self.passed.push(match &*argument.ty {
                    Type::Reference(_) => quote!(&ctx),
                    _ => quote!(ctx.clone()),
                });
            }
            FnArg::Typed(argument) => self.argument(argument)?,
        }
        Ok(())
    }

    fn argument(&mut self, argument: &PatType) -> syn::Result<()> {
        let Pat::Ident(name) = &*argument.pat else {
            return Err(Error::new(argument.pat.span(), "give the argument a plain name"));
        };
        match &*argument.ty {
            Type::Reference(_) => {
                let advice = "arguments are stored, so they must be owned: take a `String` instead of `&str`";
                Err(Error::new(argument.ty.span(), advice))
            }
            Type::ImplTrait(_) => {
                Err(Error::new(argument.ty.span(), "arguments are stored, so their type must be known"))
            }
            owned => {
                let name = &name.ident;
                self.passed.push(quote!(#name));
                self.names.push(name.clone());
                self.types.push(owned.clone());
                Ok(())
            }
        }
    }

    /// The arguments of the call, as they are passed on.
    pub(crate) fn passed(&self) -> TokenStream {
        let passed = &self.passed;
        quote!(#(#passed),*)
    }

    /// Wraps a call into a body that always returns a `Result` with a failure.
    pub(crate) fn body(&self, call: &TokenStream) -> TokenStream {
        let called = if self.is_async { quote!(#call.await) } else { quote!(#call) };
        match self.fallible {
            // The conversion is chosen by the type of the error: see `ratchet_core::__private`.
            Some(_) => quote! {
                match #called {
                    ::core::result::Result::Ok(value) => ::core::result::Result::Ok(value),
                    ::core::result::Result::Err(error) => {
                        #[allow(unused_imports)]
                        use ::ratchet_core::__private::{HiddenKind as _, OwnKind as _, PlainKind as _, UnfitKind as _, type_of};
                        ::core::result::Result::Err((&&&&type_of(&error)).failure_kind().make(error))
                    }
                }
            },
            None => quote!({ #called; ::core::result::Result::<(), ::ratchet_core::JobFailure>::Ok(()) }),
        }
    }

    /// Registers the error type, so that its advice is found even inside another error.
    pub(crate) fn heeding(&self) -> TokenStream {
        let returned = self.fallible.iter();
        quote! {
            #({
                #[allow(unused_imports)]
                use ::ratchet_core::__private::{HeedJobError as _, HeedNone as _};
                (&::ratchet_core::__private::ErrorOf::<#returned>(::core::marker::PhantomData)).heed();
            })*
        }
    }

    /// The function that creates a call of the job, for submitting.
    pub(crate) fn maker(
        &self,
        name: &Ident,
        receiver: &TokenStream,
        target: &TokenStream,
        stored: &str,
        defaults: &TokenStream,
    ) -> TokenStream {
        let Self { names, types, result, .. } = self;
        quote! {
            #[must_use = "a call is nothing before it is submitted"]
            pub fn #name(#receiver #(#names: #types),*) -> ::ratchet_core::Call<#result> {
                ::ratchet_core::Call::new(#target, #stored)#(.arg(&#names))*.defaults(#defaults)
            }
        }
    }
}

/// A placeholder for the function that creates a call of a job with a mistake, so that the mistake is the only error.
pub(crate) fn stand_in(name: &Ident, receiver: &TokenStream, signature: &Signature) -> TokenStream {
    let arguments = signature.inputs.iter().filter_map(|argument| match argument {
        FnArg::Typed(argument) if !is_context(&argument.ty) => Some(argument),
        _ => None,
    });
    let generics = &signature.generics;
    let (_, _, bounds) = generics.split_for_impl();
    let result = result(&signature.output).map_or_else(|_| quote!(()), |(success, _)| success);
    quote! {
        #[allow(unused_variables)]
        pub fn #name #generics (#receiver #(#arguments),*) -> ::ratchet_core::Call<#result> #bounds {
            ::core::unreachable!()
        }
    }
}

fn check_generics(signature: &Signature) -> syn::Result<()> {
    match signature.generics.params.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            signature.generics.span(),
            "a job has no generic parameters: what is stored names one body",
        )),
    }
}

fn is_context(argument: &Type) -> bool {
    let path = match argument {
        Type::Reference(reference) => &*reference.elem,
        other => other,
    };
    matches!(path, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "JobContext"))
}

/// The success type, and the whole `Result` type if it can fail.
fn result(output: &ReturnType) -> syn::Result<(TokenStream, Option<Type>)> {
    let returned = match output {
        ReturnType::Default => return Ok((quote!(()), None)),
        ReturnType::Type(_, returned) => returned,
    };
    let wrong = || Error::new(returned.span(), "a job returns a `Result`, or nothing");
    let Type::Path(path) = &**returned else { return Err(wrong()) };
    let last = path.path.segments.last().filter(|last| last.ident == "Result").ok_or_else(wrong)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Err(wrong()) };
    match arguments.args.first() {
        Some(GenericArgument::Type(success)) => Ok((quote!(#success), Some(Type::clone(returned)))),
        _ => Err(wrong()),
    }
}
