use std::fmt::Display;

/// Why options were refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A value that is not allowed.
    #[error("{option} is {value}, allowed is {allowed}")]
    NotAllowed {
        /// The option by section and field, such as `polling.batch_size`.
        option: String,
        /// The value it has.
        value: String,
        /// The values it may have.
        allowed: String,
    },
    /// Several problems, none of which is itself `Several`.
    #[error("{}", join(.0))]
    Several(Vec<OptionsError>),
}

crate::debug_as_display!(OptionsError);

impl OptionsError {
    /// The single problems, in the order of the sections.
    pub fn problems(&self) -> &[OptionsError] {
        match self {
            Self::Several(problems) => problems,
            single => std::slice::from_ref(single),
        }
    }
}

fn join(problems: &[impl Display]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
