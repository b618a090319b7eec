//! The description of a case.

use futures::future::BoxFuture;

use crate::Fixture;

/// One behaviour that every implementation shows; `F` is the environment that its body gets.
#[derive(Clone, Copy)]
pub struct Case<F = Fixture> {
    /// The file that defines it.
    pub area: &'static str,
    /// The function's name: a sentence.
    pub name: &'static str,
    /// The contract ids of `ratchet_api` that it proves.
    pub proves: &'static [&'static str],
    /// The numbers of `docs/requirements.md` that it shows, at most three.
    pub shows: &'static [u16],
    /// Its body.
    pub run: fn(F) -> BoxFuture<'static, ()>,
}

impl<F> Case<F> {
    /// Returns `area::name`, as `cargo test` prints it.
    pub fn id(&self) -> String {
        format!("{}::{}", self.area, self.name)
    }
}

/// Lists the cases of an area: `function: ["contract.id", …] [S-number …];`
macro_rules! cases {
    ($area:literal; $($rest:tt)*) => { $crate::case::cases! { $area with $crate::Fixture; $($rest)* } };
    ($area:literal with $fixture:ty; $($name:ident: [$($proves:literal),* $(,)?] [$($shows:literal)*];)*) => {
        /// The cases of this area.
        pub const CASES: &[$crate::Case<$fixture>] = &[$($crate::Case {
            area: $area,
            name: stringify!($name),
            proves: &[$($proves),*],
            shows: &[$($shows),*],
            run: |fixture| Box::pin($name(fixture)),
        }),*];
    };
}
pub(crate) use cases;
