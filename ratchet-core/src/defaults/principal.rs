use ratchet_api::spi::CallerPrincipalResolver;

/// A resolver that knows no caller: jobs are stored without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoPrincipal;

impl CallerPrincipalResolver for NoPrincipal {
    fn caller_principal(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_security_context_there_is_no_caller() {
        assert_eq!(NoPrincipal.caller_principal(), None);
    }
}
