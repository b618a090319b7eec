//! Size limits for the parts of a job.
//!
//! Sizes are counted in uncompressed bytes, on submit and again when a stored row is decoded: a row may have
//! been written by a node with other limits, or by hand.

use crate::options::{OptionsError, Rules};

/// Upper bounds for the data that a caller or a job body may store.
///
/// Error texts, log lines, progress messages and reasons of cancels are cut at
/// [`Sanitized::MAX_LEN`](crate::Sanitized::MAX_LEN) bytes. A plain value that engine and stores copy around. The
/// fields may be lowered freely; they may be raised only as far as [`validate`](Self::validate) allows, which is what
/// every store's columns can hold.
///
/// ```
/// use ratchet_api::Limits;
///
/// let limits = Limits { payload_bytes: 1024 * 1024, ..Limits::default() };
/// assert!(limits.validate().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the payload text (target, method, arguments). Default 256 KiB: a job should carry the key of
    /// its data, not the data.
    pub payload_bytes: usize,
    /// Bytes of all params together, as JSON text. Default 16 KiB.
    pub params_bytes: usize,
    /// Tags per job. Default 20.
    pub tags: usize,
    /// Bytes of one tag. Default 64, the width of its column.
    pub tag_bytes: usize,
    /// Bytes of a business key or an idempotency key. Default 255, the width of their columns; a longer key is
    /// an error at submit and never cut, for two cut keys could become one.
    pub key_bytes: usize,
    /// Nesting of arrays and objects in payload, params and result. Default 64, below the depth at which JSON parsers
    /// give up or exhaust the stack. A deeper result is not kept, and if dependents or a callback wait for it, the job
    /// fails with `ResultTooDeep`.
    pub json_depth: usize,
    /// Bytes of a stored result. Default 64 KiB. A longer one is not kept, and if dependents or a callback wait for it,
    /// the job fails with `ResultTooLarge`.
    pub result_bytes: usize,
    /// Bytes that one attempt may write to the job log, each line counted with
    /// [`LOG_LINE_OVERHEAD`](Self::LOG_LINE_OVERHEAD). Default 64 KiB; what follows is dropped and counted.
    pub log_bytes: usize,
}

impl Limits {
    /// The hard cap for a stored text, 4 MiB: on every store such a text still fits one statement or document together
    /// with its neighbours.
    pub const HARD_CAP_BYTES: usize = 4 * 1024 * KIB;

    /// The maximum of `key_bytes`: the width of the columns of keys.
    pub const MAX_KEY_BYTES: usize = 255;

    /// The maximum of `tag_bytes`: the width of the column of tags.
    pub const MAX_TAG_BYTES: usize = 64;

    /// The size of a line of a job log beside its text: row, key and index.
    pub const LOG_LINE_OVERHEAD: usize = 128;

    /// The maximum of `json_depth`: `serde_json` refuses deeper documents.
    pub const MAX_DEPTH: usize = 127;

    /// The highest limits that can be set, which are those of the stores: a process sets its own limits in its options,
    /// in one place.
    pub const MAX: Self = Self {
        payload_bytes: Self::HARD_CAP_BYTES,
        params_bytes: Self::HARD_CAP_BYTES,
        tags: 1_000,
        tag_bytes: Self::MAX_TAG_BYTES,
        key_bytes: Self::MAX_KEY_BYTES,
        json_depth: Self::MAX_DEPTH,
        result_bytes: Self::HARD_CAP_BYTES,
        log_bytes: Self::HARD_CAP_BYTES,
    };

    /// The lower limit of both, field by field.
    ///
    /// ```
    /// use ratchet_api::Limits;
    ///
    /// let lower = Limits { tags: 3, ..Limits::default() };
    /// let higher = Limits { result_bytes: 1024 * 1024, ..Limits::default() };
    /// assert_eq!(higher.and(&lower), lower);
    /// ```
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            payload_bytes: self.payload_bytes.min(other.payload_bytes),
            params_bytes: self.params_bytes.min(other.params_bytes),
            tags: self.tags.min(other.tags),
            tag_bytes: self.tag_bytes.min(other.tag_bytes),
            key_bytes: self.key_bytes.min(other.key_bytes),
            json_depth: self.json_depth.min(other.json_depth),
            result_bytes: self.result_bytes.min(other.result_bytes),
            log_bytes: self.log_bytes.min(other.log_bytes),
        }
    }

    /// Checks every field against what the stores can hold.
    ///
    /// # Errors
    /// All fields that are out of range, each with its value and the allowed range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("limits");
        rules.within("payload_bytes", self.payload_bytes, 1, Self::MAX.payload_bytes);
        rules.within("params_bytes", self.params_bytes, 2, Self::MAX.params_bytes);
        rules.within("tags", self.tags, 0, Self::MAX.tags);
        rules.within("tag_bytes", self.tag_bytes, 1, Self::MAX_TAG_BYTES);
        rules.within("key_bytes", self.key_bytes, 1, Self::MAX_KEY_BYTES);
        rules.within("json_depth", self.json_depth, 1, Self::MAX_DEPTH);
        rules.within("result_bytes", self.result_bytes, 1, Self::HARD_CAP_BYTES);
        rules.within("log_bytes", self.log_bytes, 0, Self::HARD_CAP_BYTES);
        rules.verdict()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: 256 * KIB,
            params_bytes: 16 * KIB,
            tags: 20,
            tag_bytes: Self::MAX_TAG_BYTES,
            key_bytes: Self::MAX_KEY_BYTES,
            json_depth: 64,
            result_bytes: 64 * KIB,
            log_bytes: 64 * KIB,
        }
    }
}

const KIB: usize = 1024;
