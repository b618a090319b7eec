//! The shape of a function that is a job.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{
    Error, FnArg, GenericArgument, Ident, Pat, PatType, PathArguments, ReceiverKind, ReturnType, Signature,
    Type,
};

/// The most arguments that a job takes.
const MOST: usize = 8;

/// What a job's function takes and gives.
pub(crate) struct Shape {
    pub(crate) has_self: bool,
    /// How the context is passed, if it is.
    pub(crate) context: Option<TokenStream>,
    pub(crate) names: Vec<Ident>,
    pub(crate) types: Vec<Type>,
    /// What it returns when it succeeds.
    pub(crate) result: TokenStream,
    /// Whether it can fail.
    pub(crate) fallible: bool,
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
            context: None,
            names: Vec::new(),
            types: Vec::new(),
            result,
            fallible,
            is_async,
        };
        for argument in &signature.inputs {
            shape.take(argument)?;
        }
        if shape.names.len() > MOST {
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
            FnArg::Typed(argument)
                if self.names.is_empty() && self.context.is_none() && is_context(&argument.ty) =>
            {
                self.context = Some(match &*argument.ty {
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
                self.names.push(name.ident.clone());
                self.types.push(owned.clone());
                Ok(())
            }
        }
    }

    /// The arguments of the call, as they are passed on.
    pub(crate) fn passed(&self) -> TokenStream {
        let (context, names) = (self.context.iter(), &self.names);
        quote!(#(#context,)* #(#names),*)
    }

    /// A call as a body whose end is always a `Result`.
    pub(crate) fn body(&self, call: &TokenStream) -> TokenStream {
        let called = if self.is_async { quote!(#call.await) } else { quote!(#call) };
        match self.fallible {
            true => called,
            false => quote!({ #called; ::core::result::Result::<(), ::ratchet_core::JobFailure>::Ok(()) }),
        }
    }

    /// The function that makes a call of it, to be submitted.
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

/// The type of a success, and whether there is another end.
fn result(output: &ReturnType) -> syn::Result<(TokenStream, bool)> {
    let returned = match output {
        ReturnType::Default => return Ok((quote!(()), false)),
        ReturnType::Type(_, returned) => returned,
    };
    let wrong = || Error::new(returned.span(), "a job returns a `Result`, or nothing");
    let Type::Path(path) = &**returned else { return Err(wrong()) };
    let last = path.path.segments.last().filter(|last| last.ident == "Result").ok_or_else(wrong)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Err(wrong()) };
    match arguments.args.first() {
        Some(GenericArgument::Type(success)) => Ok((quote!(#success), true)),
        _ => Err(wrong()),
    }
}
