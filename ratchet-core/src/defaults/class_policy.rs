use std::fmt;

use ratchet_api::TargetName;
use ratchet_api::spi::ClassPolicy;

/// A policy that allows targets by a prefix of their name, or by the whole name. It is the default, and denies
/// everything unless it is given entries.
///
/// An entry that ends with a dot allows everything below it; any other entry allows exactly the target of that name.
/// Names are compared as they are: whole segments, upper and lower case differ, entries are no patterns, and a target
/// with anything but ASCII in it is denied, since it may only look like an allowed one.
///
/// ```
/// use ratchet_core::TargetName;
/// use ratchet_core::spi::ClassPolicy;
/// use ratchet_core::defaults::PackagePrefixClassPolicy;
///
/// let policy = PackagePrefixClassPolicy::allow(["billing.", "mail.Mailer"]);
/// let allows = |target: &str| TargetName::new(target).is_ok_and(|target| policy.allows(&target));
///
/// assert!(allows("billing.PaymentService"));
/// assert!(allows("billing.refunds.RefundService"));
/// assert!(allows("mail.Mailer"));
/// assert!(!allows("billing_evil.PaymentService"));
/// assert!(!allows("mail.Mailer2"));
/// ```
#[derive(Clone, Default)]
pub struct PackagePrefixClassPolicy {
    entries: Vec<String>,
}

impl PackagePrefixClassPolicy {
    /// A policy that denies everything. A scheduler does not start with it unless that is allowed explicitly.
    pub fn deny_all() -> Self {
        Self::default()
    }

    /// A policy that allows the targets of these entries: prefixes, which end with a dot, and whole names.
    pub fn allow<E: Into<String>>(entries: impl IntoIterator<Item = E>) -> Self {
        Self { entries: entries.into_iter().map(Into::into).collect() }
    }
}

impl ClassPolicy for PackagePrefixClassPolicy {
    fn allows(&self, target: &TargetName) -> bool {
        let target = target.as_str();
        is_name(target)
            && self
                .entries
                .iter()
                .any(|entry| target == entry || entry.ends_with('.') && target.starts_with(entry))
    }

    /// Whether there is an entry that some target can match.
    fn is_configured(&self) -> bool {
        self.entries.iter().any(|entry| is_name(entry.strip_suffix('.').unwrap_or(entry)))
    }
}

impl fmt::Debug for PackagePrefixClassPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PackagePrefixClassPolicy").field(&self.entries).finish()
    }
}

/// Whether the text consists of segments of visible ASCII with single dots between them.
fn is_name(text: &str) -> bool {
    text.split('.').all(|segment| !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_graphic()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(entries: &[&str], target: &str) -> bool {
        PackagePrefixClassPolicy::allow(entries.iter().copied()).allows(&TargetName::new(target).unwrap())
    }

    // shows: S78
    #[test]
    fn a_prefix_allows_whole_segments_only() {
        for (target, allowed) in [
            ("billing.PaymentService", true),
            ("billing.a.b.C", true),
            ("billing", false),
            ("billing.", false),
            ("billing..X", false),
            ("billing_evil.PaymentService", false),
            ("billingx.PaymentService", false),
            ("evil.billing.PaymentService", false),
            ("Billing.PaymentService", false),
            (" billing.PaymentService", false),
            ("billing.Payment Service", false),
            ("b\u{456}lling.PaymentService", false),
            ("billing.P\u{430}yment", false),
        ] {
            assert_eq!(allows(&["billing."], target), allowed, "{target}");
        }
    }

    // shows: S78
    #[test]
    fn a_whole_name_allows_that_target_only() {
        for (target, allowed) in [
            ("mail.Mailer", true),
            ("mail.mailer", false),
            ("mail.Mailer2", false),
            ("mail.Mailer.Inner", false),
            ("x.mail.Mailer", false),
        ] {
            assert_eq!(allows(&["mail.Mailer"], target), allowed, "{target}");
        }
    }

    #[test]
    fn nothing_is_a_pattern() {
        for entry in ["*", "billing*", "billing.*", "", ".", "..", "^billing", "(?i)billing."] {
            assert!(!allows(&[entry], "billing.PaymentService"), "{entry}");
        }
    }

    // shows: S78
    #[test]
    fn nothing_is_allowed_until_something_is_named() {
        assert!(!PackagePrefixClassPolicy::deny_all().is_configured());
        assert!(!PackagePrefixClassPolicy::default().allows(&TargetName::new("billing.X").unwrap()));
        for nothing in ["", ".", "..", "a..", ".a", "b\u{456}lling.", "two words"] {
            assert!(!PackagePrefixClassPolicy::allow([nothing]).is_configured(), "{nothing:?}");
        }
        for entry in ["billing.", "billing", "mail.Mailer", "a.b."] {
            assert!(PackagePrefixClassPolicy::allow([entry]).is_configured(), "{entry:?}");
        }
    }

    proptest! {
        // shows: S78
        #[test]
        fn an_allowed_target_has_the_segments_of_an_entry(entry in "[a-b.]{1,6}", target in "[a-b._]{1,8}") {
            let segments = |name: &str| name.split('.').map(str::to_owned).collect::<Vec<_>>();
            let below = entry.strip_suffix('.').is_some_and(|package| {
                segments(&target).len() > segments(package).len() && segments(&target).starts_with(&segments(package))
            });
            let well_formed = segments(&target).iter().all(|segment| !segment.is_empty());
            prop_assert_eq!(allows(&[&entry], &target), well_formed && (target == entry || below));
        }
    }
}
