//! The arguments of the attributes.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitInt, LitStr, Token, bracketed};

use crate::duration;

/// The arguments of `#[jobs(target = "…", breaker = "…")]`.
pub(crate) struct ServiceArguments {
    pub(crate) target: LitStr,
    breaker: Breaker,
}

impl ServiceArguments {
    /// A placeholder for invalid arguments.
    pub(crate) fn unknown() -> Self {
        Self { target: LitStr::new("", Span::call_site()), breaker: Breaker::default() }
    }
}

impl Parse for ServiceArguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let missing = "give the name that is stored: #[jobs(target = \"billing.Payments\")]";
        let name: Ident = input.parse().map_err(|error| Error::new(error.span(), missing))?;
        if name != "target" {
            return Err(Error::new(name.span(), missing));
        }
        input.parse::<Token![=]>()?;
        let (target, mut breaker) = (input.parse()?, Breaker::default());
        while input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            let name: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            if !breaker.option(&name, input)? {
                let known = "no such option; there are target, breaker and breaker_profile";
                return Err(Error::new(name.span(), known));
            }
        }
        Ok(Self { target, breaker })
    }
}

/// The breaker of a method, or of all methods of a service.
#[derive(Clone, Default)]
pub(crate) struct Breaker {
    service: Option<LitStr>,
    profile: Option<(LitStr, TokenStream)>,
}

impl Breaker {
    /// Parses the value of an option, if it is one about breakers.
    fn option(&mut self, name: &Ident, input: ParseStream<'_>) -> syn::Result<bool> {
        if name == "breaker" {
            self.service = Some(input.parse()?);
        } else if name == "breaker_profile" {
            let text: LitStr = input.parse()?;
            let profile = profile(&text)?;
            self.profile = Some((text, profile));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The builder calls that set the breaker of a method.
    pub(crate) fn calls(&self) -> syn::Result<TokenStream> {
        if let (None, Some((text, _))) = (&self.service, &self.profile) {
            return Err(Error::new(
                text.span(),
                "a profile is for the breaker of a service: say breaker = \"…\" too",
            ));
        }
        let (service, profile) = (self.service.iter(), self.profile.iter().map(|(_, profile)| profile));
        Ok(quote!(#(.breaker(#service))* #(.breaker_profile(#profile))*))
    }
}

/// The options of `#[job(…)]`.
#[derive(Default)]
pub(crate) struct JobOptions {
    /// Only allowed on functions.
    pub(crate) target: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) aliases: Vec<LitStr>,
    pub(crate) breaker: Breaker,
    pub(crate) blocking: bool,
    defaults: Vec<TokenStream>,
}

impl Parse for JobOptions {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            options.option(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl JobOptions {
    fn option(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let name: Ident = input.parse()?;
        if name == "blocking" {
            self.blocking = true;
            return Ok(());
        }
        input.parse::<Token![=]>()?;
        if self.breaker.option(&name, input)? {
            return Ok(());
        }
        match name.to_string().as_str() {
            "target" => self.target = Some(input.parse()?),
            "name" => self.name = Some(input.parse()?),
            "aliases" => self.aliases = texts(input)?,
            "max_retries" => {
                let retries: LitInt = input.parse()?;
                let retries: u32 = retries.base10_parse()?;
                self.defaults.push(quote!(defaults.max_retries = ::core::option::Option::Some(#retries);));
            }
            "backoff" => {
                let backoff = duration::backoff(&input.parse()?)?;
                self.defaults.push(quote!(defaults.backoff = ::core::option::Option::Some(#backoff);));
            }
            "timeout" => {
                let timeout = duration::duration(&input.parse()?)?;
                self.defaults.push(quote!(defaults.timeout = ::core::option::Option::Some(#timeout);));
            }
            "queue" => {
                let queue: LitStr = input.parse()?;
                self.defaults.push(quote!(defaults.queue = ::core::option::Option::Some(#queue.into());));
            }
            "resource" => {
                let resource: LitStr = input.parse()?;
                self.defaults
                    .push(quote!(defaults.resource = ::core::option::Option::Some(#resource.into());));
            }
            "priority" => {
                let priority = priority(&input.parse()?)?;
                self.defaults.push(quote!(defaults.priority = ::core::option::Option::Some(#priority);));
            }
            "tags" => {
                let tags = texts(input)?;
                self.defaults.push(quote!(defaults.tags = ::std::vec![#(#tags.into()),*];));
            }
            _ => {
                return Err(Error::new(
                    name.span(),
                    "no such option; there are max_retries, backoff, timeout, queue, priority, resource, tags, breaker, \
                     breaker_profile, blocking, name and aliases",
                ));
            }
        }
        Ok(())
    }

    /// Takes over the breaker of the service, if the method has none of its own.
    pub(crate) fn inherit(&mut self, service: &ServiceArguments) {
        if self.breaker.service.is_none() {
            self.breaker.service.clone_from(&service.breaker.service);
            self.breaker.profile = self.breaker.profile.take().or_else(|| service.breaker.profile.clone());
        }
    }

    /// An expression of the job's defaults.
    pub(crate) fn defaults(&self) -> TokenStream {
        let changes = &self.defaults;
        quote! {{
            #[allow(unused_mut)]
            let mut defaults = ::ratchet_core::JobDefaults::default();
            #(#changes)*
            defaults
        }}
    }
}

fn texts(input: ParseStream<'_>) -> syn::Result<Vec<LitStr>> {
    let content;
    bracketed!(content in input);
    Ok(Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

fn priority(text: &LitStr) -> syn::Result<TokenStream> {
    let variant = match text.value().as_str() {
        "lowest" => "Lowest",
        "low" => "Low",
        "normal" => "Normal",
        "high" => "High",
        "critical" => "Critical",
        _ => {
            let known = "a priority is \"lowest\", \"low\", \"normal\", \"high\" or \"critical\"";
            return Err(Error::new(text.span(), known));
        }
    };
    let variant = Ident::new(variant, text.span());
    Ok(quote!(::ratchet_core::JobPriority::#variant))
}

fn profile(text: &LitStr) -> syn::Result<TokenStream> {
    let variant = match text.value().as_str() {
        "standard" => "Standard",
        "fast" => "Fast",
        "critical" => "Critical",
        "external_api" => "ExternalApi",
        _ => {
            let known = "a profile is \"standard\", \"fast\", \"critical\" or \"external_api\"";
            return Err(Error::new(text.span(), known));
        }
    };
    let variant = Ident::new(variant, text.span());
    Ok(quote!(::ratchet_core::BreakerProfile::#variant))
}
