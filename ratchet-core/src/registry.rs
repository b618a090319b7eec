//! The methods that this node knows, and how to call them.
//!
//! Nothing else ever runs: a stored payload names a target and a method, and only registered ones are found here.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use ratchet_api::options::BreakerProfile;
use ratchet_api::spi::{Bean, BeanResolver};
use ratchet_api::{InvalidName, JobFailure, JobPayload, JsonText, MethodName, TargetName, call_name};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::handle::NOT_KEPT;
use crate::{IntoFailure, JobContext, JobDefaults};

/// The result of a body as JSON, if it has one.
pub type BodyResult = Result<Option<JsonText>, JobFailure>;

/// A body under way.
pub type BodyFuture = Pin<Box<dyn Future<Output = BodyResult> + Send>>;

/// A method that jobs can name.
pub struct Method {
    target: TargetName,
    name: MethodName,
    /// Other names under which waiting jobs may know it.
    aliases: Vec<(TargetName, MethodName)>,
    /// The defaults for its jobs, which a submission may override.
    pub(crate) defaults: JobDefaults,
    /// The service that its breaker protects.
    pub(crate) breaker: Option<Cow<'static, str>>,
    profile: Option<BreakerProfile>,
    /// The type of the bean that it is called on, if there is one.
    pub(crate) called_on: Option<TypeId>,
    pub(crate) body: Body,
}

/// How a method is called.
pub(crate) enum Body {
    /// On the runtime.
    Async(Box<dyn Fn(Option<Bean>, JobContext, JsonText) -> BodyFuture + Send + Sync>),
    /// On a thread where it may block.
    Blocking(Arc<dyn Fn(Option<Bean>, JobContext, JsonText) -> BodyResult + Send + Sync>),
}

/// Arguments of a method: a tuple, or nothing.
#[diagnostic::on_unimplemented(
    message = "the arguments of a job are stored, and `{Self}` cannot be read back",
    note = "add `#[derive(Serialize, Deserialize)]` to their types"
)]
pub trait Arguments: Sized {
    /// Reads them from a JSON array.
    ///
    /// # Errors
    /// Another number of them, or values of other types.
    fn decode(args: &JsonText) -> Result<Self, serde_json::Error>;
}

impl Arguments for () {
    fn decode(args: &JsonText) -> Result<Self, serde_json::Error> {
        args.decode::<[u8; 0]>().map(drop)
    }
}

macro_rules! arguments {
    ($($name:ident)+) => {
        impl<$($name: DeserializeOwned),+> Arguments for ($($name,)+) {
            fn decode(args: &JsonText) -> Result<Self, serde_json::Error> {
                args.decode()
            }
        }
    };
}

arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);
arguments!(A B C D E F G H);

impl Method {
    /// A method of a bean of type `B`.
    ///
    /// # Errors
    /// A name that no store takes.
    pub fn of_bean<B, A, R, E, F>(
        target: &str,
        method: &str,
        body: impl Fn(Arc<B>, JobContext, A) -> F + Send + Sync + 'static,
    ) -> Result<Self, InvalidName>
    where
        B: Any + Send + Sync,
        A: Arguments + Send + 'static,
        R: Serialize,
        E: IntoFailure,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        E::heed();
        let call = move |bean: Option<Bean>, ctx, args: JsonText| -> BodyFuture {
            let ready = downcast::<B>(bean).and_then(|bean| Ok((bean, decode::<A>(&args)?)));
            match ready {
                Ok((bean, args)) => {
                    let running = body(bean, ctx, args);
                    Box::pin(async move { result(running.await) })
                }
                Err(failure) => Box::pin(async move { Err(failure) }),
            }
        };
        Self::new(target, method, Some(TypeId::of::<B>()), Body::Async(Box::new(call)))
    }

    /// A method of a bean that blocks its thread.
    ///
    /// # Errors
    /// A name that no store takes.
    pub fn of_bean_blocking<B, A, R, E>(
        target: &str,
        method: &str,
        body: impl Fn(Arc<B>, JobContext, A) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<Self, InvalidName>
    where
        B: Any + Send + Sync,
        A: Arguments,
        R: Serialize,
        E: IntoFailure,
    {
        E::heed();
        let call =
            move |bean, ctx, args: JsonText| result(body(downcast::<B>(bean)?, ctx, decode::<A>(&args)?));
        Self::new(target, method, Some(TypeId::of::<B>()), Body::Blocking(Arc::new(call)))
    }

    /// A function that needs no bean.
    ///
    /// # Errors
    /// A name that no store takes.
    pub fn function<A, R, E, F>(
        target: &str,
        method: &str,
        body: impl Fn(JobContext, A) -> F + Send + Sync + 'static,
    ) -> Result<Self, InvalidName>
    where
        A: Arguments + Send + 'static,
        R: Serialize,
        E: IntoFailure,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        E::heed();
        let call = move |_, ctx, args: JsonText| -> BodyFuture {
            match decode::<A>(&args) {
                Ok(args) => {
                    let running = body(ctx, args);
                    Box::pin(async move { result(running.await) })
                }
                Err(failure) => Box::pin(async move { Err(failure) }),
            }
        };
        Self::new(target, method, None, Body::Async(Box::new(call)))
    }

    fn new(target: &str, method: &str, called_on: Option<TypeId>, body: Body) -> Result<Self, InvalidName> {
        Ok(Self {
            target: TargetName::new(target)?,
            name: MethodName::new(method)?,
            aliases: Vec::new(),
            defaults: JobDefaults::default(),
            breaker: None,
            profile: None,
            called_on,
            body,
        })
    }

    /// Sets the defaults for its jobs, which a submission may override.
    #[must_use]
    pub fn defaults(mut self, defaults: JobDefaults) -> Self {
        self.defaults = defaults;
        self
    }

    /// Sets the service that a circuit breaker protects while this runs.
    #[must_use]
    pub fn breaker(mut self, service: impl Into<Cow<'static, str>>) -> Self {
        self.breaker = Some(service.into());
        self
    }

    /// Sets the profile of this breaker. It belongs to the service: every method that names the service gives the same
    /// profile or none.
    #[must_use]
    pub const fn breaker_profile(mut self, profile: BreakerProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Adds another name under which waiting jobs may know it, so that a rename strands none.
    ///
    /// # Errors
    /// A name that no store takes.
    pub fn alias(mut self, target: &str, method: &str) -> Result<Self, InvalidName> {
        self.aliases.push((TargetName::new(target)?, MethodName::new(method)?));
        Ok(self)
    }

    /// The target.
    pub const fn target(&self) -> &TargetName {
        &self.target
    }

    /// The method.
    pub const fn name(&self) -> &MethodName {
        &self.name
    }

    fn names(&self) -> impl Iterator<Item = (TargetName, MethodName)> {
        std::iter::once((self.target.clone(), self.name.clone())).chain(self.aliases.iter().cloned())
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.target, self.name)
    }
}

fn downcast<B: Any + Send + Sync>(bean: Option<Bean>) -> Result<Arc<B>, JobFailure> {
    let wrong = || {
        let wanted = std::any::type_name::<B>();
        JobFailure::new("WrongBean", format!("the bean of this target is not a {wanted}"))
            .do_not_retry("register the bean that the methods were registered for")
    };
    bean.and_then(|bean| bean.downcast().ok()).ok_or_else(wrong)
}

/// Arguments that no longer decode are a failure like any other: a node with the right types may succeed.
fn decode<A: Arguments>(args: &JsonText) -> Result<A, JobFailure> {
    A::decode(args).map_err(|error| JobFailure::new("UndecodableArguments", undecodable(&error)))
}

/// Describes arguments that do not decode by position and by the expected type, never by their content: they may hold
/// secrets, which no sanitizer recognises without a key beside them.
fn undecodable(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let own = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant ", "unknown field "];
    let place = format!("at line {} column {}", error.line(), error.column());
    // Only the text of serde itself behind the last `expected` comes from the type.
    let expected = text
        .rfind(", expected ")
        .filter(|_| own.iter().any(|beginning| text.starts_with(beginning)))
        .map(|end| text[end..].trim_end_matches(&format!(" {place}")));
    match (error.classify(), expected) {
        (Category::Data, _) if text.starts_with("missing field `") => text,
        (Category::Data, expected) => {
            format!("an argument is not of its type{} {place}", expected.unwrap_or_default())
        }
        _ => format!("not valid JSON {place}"),
    }
}

fn result<R: Serialize, E: IntoFailure>(result: Result<R, E>) -> BodyResult {
    let value = result.map_err(IntoFailure::into_failure)?;
    match JsonText::of(&value) {
        // A type without content has no result; for any other, no result means that it was not kept.
        Ok(json) => Ok(Some(json).filter(|_| size_of::<R>() > 0)),
        // The work is done; repeating it for the sake of its result would do it twice.
        Err(error) => {
            let problem = format!("{NOT_KEPT}it has no JSON form: {error}");
            // The text may come from the body's own types, so it is sanitized like the body's own lines.
            if let Some(ctx) = JobContext::try_current() {
                ctx.warn(problem);
            }
            Ok(None)
        }
    }
}

/// The methods of this node.
#[derive(Debug, Default)]
pub struct Registry {
    methods: HashMap<(TargetName, MethodName), Arc<Method>>,
    twice: BTreeMap<String, usize>,
}

/// Names that were registered more than once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("registered more than once: {}; give each target and method one body", .0.join(", "))]
pub struct RegisteredTwice(pub Vec<String>);

/// A service whose breaker would have to follow two profiles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the breaker of `{0}` is given two profiles; give every method that names this service the same one")]
pub struct TwoProfiles(pub String);

impl Registry {
    /// Adds a method. Names that are taken are reported by [`check`](Self::check).
    pub fn add(&mut self, method: Method) {
        let method = Arc::new(method);
        for names in method.names() {
            let shown = call_name(&names.0, &names.1);
            if self.methods.insert(names, Arc::clone(&method)).is_some() {
                *self.twice.entry(shown).or_default() += 1;
            }
        }
    }

    /// Whether every name has one body.
    ///
    /// # Errors
    /// The names that have more.
    pub fn check(&self) -> Result<(), RegisteredTwice> {
        match self.twice.is_empty() {
            true => Ok(()),
            false => Err(RegisteredTwice(self.twice.keys().cloned().collect())),
        }
    }

    /// The profile of each service whose methods name one.
    ///
    /// # Errors
    /// A service with two.
    pub fn breaker_profiles(&self) -> Result<BTreeMap<&str, BreakerProfile>, TwoProfiles> {
        let mut profiles = BTreeMap::new();
        for method in self.methods.values() {
            let (Some(service), Some(profile)) = (method.breaker.as_deref(), method.profile) else {
                continue;
            };
            if profiles.insert(service, profile).is_some_and(|other| other != profile) {
                return Err(TwoProfiles(service.to_owned()));
            }
        }
        Ok(profiles)
    }

    /// A target with a method for which there is no bean of its type.
    pub(crate) fn without_bean(&self, beans: &dyn BeanResolver) -> Option<&TargetName> {
        let lacks = |method: &&Arc<Method>| {
            let found = beans.resolve(&method.target).map(|bean| (*bean).type_id());
            method.called_on.is_some() && found != method.called_on
        };
        self.methods.values().filter(lacks).map(|method| &method.target).min()
    }

    /// The method of this name.
    pub fn find(&self, target: &TargetName, method: &MethodName) -> Option<&Arc<Method>> {
        // The map is small and looked at once for each attempt; two clones of short names cost less than a lookup type.
        self.methods.get(&(target.clone(), method.clone()))
    }

    /// Whether two calls mean the same method: by one name, or by names that are aliases here.
    pub fn is_same(&self, one: &JobPayload, other: &JobPayload) -> bool {
        let method = |call: &JobPayload| self.find(call.target(), call.method());
        (one.target(), one.method()) == (other.target(), other.method())
            || method(one).zip(method(other)).is_some_and(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Every target, once, in order.
    pub fn targets(&self) -> Vec<TargetName> {
        let mut targets: Vec<TargetName> = self.methods.keys().map(|(target, _)| target.clone()).collect();
        targets.sort();
        targets.dedup();
        targets
    }

    /// Whether a method of this name, as [`call_name`] writes it, can be called here.
    pub(crate) fn knows(&self, name: &str) -> bool {
        let is_it = |(target, method): &(TargetName, MethodName)| {
            let rest = name.strip_prefix(target.as_str()).and_then(|rest| rest.strip_prefix('.'));
            rest == Some(method.as_str())
        };
        self.methods.keys().any(is_it)
    }

    /// The names of all methods that can be called here, aliases included, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.methods.keys().map(|(target, method)| call_name(target, method)).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(name: &str) -> Method {
        Method::function("a.A", name, |_, ()| async { Ok::<_, JobFailure>(()) }).unwrap()
    }

    fn registry(methods: impl IntoIterator<Item = Method>) -> Registry {
        let mut registry = Registry::default();
        methods.into_iter().for_each(|method| registry.add(method));
        registry
    }

    // shows: S79 S83
    #[test]
    fn a_method_is_made_once_and_found_by_exactly_its_names() {
        let registry = registry([method("run").alias("old.A", "go").unwrap()]);
        let find = |target: &str, name: &str| {
            registry.find(&TargetName::new(target).unwrap(), &MethodName::new(name).unwrap())
        };
        let (found, again, old) = (find("a.A", "run"), find("a.A", "run"), find("old.A", "go"));
        assert!(Arc::ptr_eq(found.unwrap(), again.unwrap()) && Arc::ptr_eq(found.unwrap(), old.unwrap()));
        for (target, name) in [("a.A", "Run"), ("a.A", "go"), ("a", "run"), ("old.A", "run")] {
            assert!(find(target, name).is_none(), "{target}.{name}");
        }
    }

    #[test]
    fn arguments_that_do_not_decode_are_described_without_their_content() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Card {
            _number: u64,
        }
        #[derive(Debug, serde::Deserialize)]
        enum Kind {
            Plain,
        }
        #[derive(Debug)]
        struct Picky;
        impl<'de> serde::Deserialize<'de> for Picky {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Err(serde::de::Error::custom(format!("cannot take {text}, expected {text}")))
            }
        }
        fn told<A: Arguments>(args: &str) -> String {
            let failure = decode::<A>(&JsonText::from_stored(args)).err().expect("it does not decode");
            assert_eq!(failure.class(), "UndecodableArguments");
            failure.message().to_owned()
        }
        let not = |expected: &str| format!("an argument is not of its type{expected} at line 1 column ");
        for (said, expected, column) in [
            (told::<(u32,)>(r#"["s3cret"]"#), ", expected u32", 9),
            (told::<(u32,)>(r#"["s3cret, expected s3cret"]"#), ", expected u32", 26),
            (told::<(u8,)>("[4711]"), ", expected u8", 5),
            (told::<(Kind,)>(r#"["s3cret"]"#), ", expected `Plain`", 9),
            (told::<(Card,)>(r#"[{"s3cret":1}]"#), ", expected `_number`", 10),
            (told::<(Picky,)>(r#"["s3cret"]"#), "", 10),
            (told::<(u32, u32)>("[1]"), ", expected a tuple of size 2", 3),
        ] {
            assert_eq!(said, not(expected) + &column.to_string());
        }
        assert_eq!(told::<(Card,)>("[{}]"), "missing field `_number` at line 1 column 3");
        assert_eq!(told::<(u32,)>("[s3cret]"), "not valid JSON at line 1 column 2");
        let _ = Kind::Plain;
    }

    // shows: S117
    #[test]
    fn a_service_has_one_profile_whichever_methods_name_it() {
        let bank = |name| method(name).breaker("bank");
        let fast = |name| bank(name).breaker_profile(BreakerProfile::Fast);
        let agreed = registry([bank("a"), fast("b"), fast("c"), method("d").breaker("mail")]);
        let profiles: Vec<_> = agreed.breaker_profiles().unwrap().into_iter().collect();
        assert_eq!(profiles, [("bank", BreakerProfile::Fast)]);
        let torn = registry([fast("a"), bank("b").breaker_profile(BreakerProfile::Critical)]);
        assert_eq!(torn.breaker_profiles(), Err(TwoProfiles("bank".to_owned())));
    }
}
