//! The trace that a job belongs to, in the W3C format: <https://www.w3.org/TR/trace-context/>.

use std::fmt;
use std::str::FromStr;

/// A span of a distributed trace: the header `traceparent`.
///
/// ```
/// use ratchet_core::TraceParent;
///
/// let caller: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse()?;
/// assert!(caller.is_sampled());
/// assert_eq!(caller.child().trace_id(), caller.trace_id());
/// # Ok::<_, ratchet_core::InvalidTraceParent>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

/// A text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent of the form 00-<32 hex digits>-<16 hex digits>-<2 hex digits>")]
pub struct InvalidTraceParent;

/// The trace that an attempt continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The span in which the job was enqueued.
    pub parent: TraceParent,
    /// The span of this attempt, below that one, to be passed on to other services.
    pub span: TraceParent,
}

impl TraceContext {
    /// A new span below a stored one. A text that cannot be read is no trace, as the standard requires.
    pub(crate) fn continued(stored: Option<&str>) -> Option<Self> {
        let parent: TraceParent = stored?.parse().ok()?;
        Some(Self { parent, span: parent.child() })
    }
}

impl TraceParent {
    const SAMPLED: u8 = 1;

    /// The trace.
    pub const fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// The span.
    pub const fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Whether the caller records this trace.
    pub const fn is_sampled(&self) -> bool {
        self.flags & Self::SAMPLED != 0
    }

    /// A new span of the same trace.
    #[must_use]
    pub fn child(&self) -> Self {
        // Zero means: no span.
        Self { span_id: rand::random::<u64>().max(1), ..*self }
    }
}

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let mut parts = text.splitn(5, '-');
        let mut part = |digits| hex(parts.next(), digits);
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // A later version may say more; the first does not.
        let known = version == 0 && parts.next().is_none();
        if trace_id == 0 || span_id == 0 || version == 0xff || (version == 0 && !known) {
            return Err(InvalidTraceParent);
        }
        // Of a later version only this much is known to mean the same.
        let flags = if known { flags } else { flags & u128::from(Self::SAMPLED) };
        Ok(Self { trace_id, span_id: span_id as u64, flags: flags as u8 })
    }
}

/// Reads a number of exactly `digits` lower-case hexadecimal digits.
fn hex(part: Option<&str>, digits: usize) -> Result<u128, InvalidTraceParent> {
    let part = part.filter(|part| part.len() == digits).ok_or(InvalidTraceParent)?;
    match part.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        true => u128::from_str_radix(part, 16).map_err(|_| InvalidTraceParent),
        false => Err(InvalidTraceParent),
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_the_standard_allows_is_read_and_nothing_else() {
        let wrong = [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ];
        for text in wrong {
            assert_eq!(text.parse::<TraceParent>(), Err(InvalidTraceParent), "{text}");
        }
        let caller: TraceParent = CALLER.parse().unwrap();
        assert_eq!(caller.to_string(), CALLER);
        assert_eq!(caller.trace_id(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(caller.span_id(), 0xb7ad_6b71_6920_3331);
    }

    #[test]
    fn the_last_bit_of_the_flags_says_whether_it_is_recorded() {
        for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            let caller: TraceParent = format!("{}{flags}", &CALLER[..CALLER.len() - 2]).parse().unwrap();
            assert_eq!(caller.is_sampled(), sampled, "{flags}");
        }
    }

    #[test]
    fn of_a_later_version_the_known_part_counts() {
        for text in [CALLER.replacen("00", "cc", 1), CALLER.replacen("00", "01", 1) + "-what-will-be"] {
            assert_eq!(text.parse::<TraceParent>().unwrap().to_string(), CALLER, "{text}");
        }
        let unsampled = CALLER.replacen("00", "cc", 1).replace("-01", "-fe");
        assert!(!unsampled.parse::<TraceParent>().unwrap().is_sampled());
    }

    #[test]
    fn a_stored_trace_is_continued_by_a_span_below_it() {
        let trace = TraceContext::continued(Some(CALLER)).unwrap();
        assert_eq!(trace.parent.to_string(), CALLER);
        assert_eq!(trace.span.trace_id(), trace.parent.trace_id());
        assert_ne!(trace.span.span_id(), trace.parent.span_id());
        assert!(trace.span.is_sampled());
        assert_eq!(TraceContext::continued(Some("nonsense")), None);
        assert_eq!(TraceContext::continued(None), None);
    }

    proptest! {
        #[test]
        fn every_span_reads_back_as_it_was_written(trace_id in 1_u128.., span_id in 1_u64.., flags: u8) {
            let span = TraceParent { trace_id, span_id, flags };
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,70}") {
            let _ = text.parse::<TraceParent>();
        }
    }
}
