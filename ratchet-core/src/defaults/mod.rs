//! The default implementations of the plug points.

mod bean;
mod class_policy;
mod cluster;
mod executor;
mod identity;
mod invocation;
mod principal;
mod resilience;
mod retry;
mod sanitizer;
mod startup;

pub use bean::Beans;
pub use class_policy::PackagePrefixClassPolicy;
pub use cluster::NoOpClusterCoordinator;
pub use executor::TokioExecutor;
pub use identity::DefaultNodeIdentity;
pub use invocation::JsonInvocationResolver;
pub use principal::NoPrincipal;
pub use resilience::CircuitBreakers;
pub use retry::AlwaysRetry;
pub use sanitizer::DefaultErrorSanitizer;
pub use startup::StoreStartupCoordinator;
