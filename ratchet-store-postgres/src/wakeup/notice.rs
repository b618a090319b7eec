//! The content of a notice.

use std::fmt;

use ratchet_api::JobPriority;
use ratchet_api::spi::WakeupKind;

/// The news for the other nodes: one digit for the highest priority of new work, `c` if a job was canceled, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notice {
    work: Option<JobPriority>,
    cancel: bool,
}

impl Notice {
    pub(super) const CANCEL_REQUESTED: Self = Self { work: None, cancel: true };

    pub(super) const fn new_work(priority: JobPriority) -> Self {
        Self { work: Some(priority), cancel: false }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { work: self.work.max(other.work), cancel: self.cancel || other.cancel }
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The kinds of wakeup that it stands for.
    pub(super) fn kinds(self) -> impl Iterator<Item = WakeupKind> {
        let work = self.work.map(|_| WakeupKind::NewWork);
        work.into_iter().chain(self.cancel.then_some(WakeupKind::CancelRequested))
    }

    /// Parses a payload. An unknown text counts as new work, so that nodes poll.
    pub(super) fn read(text: &str) -> Self {
        let cancel = text.contains('c');
        let work = text.bytes().any(|byte| byte.is_ascii_digit()) || !cancel;
        Self { work: work.then_some(JobPriority::Normal), cancel }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(priority) = self.work {
            write!(f, "{}", priority.ordinal())?;
        }
        f.write_str(if self.cancel { "c" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_is_heard() {
        let work = Notice::new_work(JobPriority::Low).and(Notice::new_work(JobPriority::Normal));
        let both = work.and(Notice::CANCEL_REQUESTED);
        let texts = [work, Notice::CANCEL_REQUESTED, both].map(|notice| notice.to_string());
        assert_eq!(texts, ["2", "c", "2c"]);
        let kinds = |text: &str| Notice::read(text).kinds().collect::<Vec<_>>();
        assert_eq!(kinds("2"), [WakeupKind::NewWork]);
        assert_eq!(kinds("c"), [WakeupKind::CancelRequested]);
        assert_eq!(kinds("2c"), WakeupKind::ALL);
        assert_eq!(kinds("?"), [WakeupKind::NewWork]);
        assert!(Notice::default().is_empty() && Notice::default().kinds().next().is_none());
    }
}
