//! Migration scripts: a version, a description and a text, in order.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The number of a script. It is shown and recorded with three digits at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03}", self.0)
    }
}

/// The error for a text that is not the number of a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version: it has digits only, like 001")]
pub struct InvalidVersion(String);

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = if digits { text.parse().ok() } else { None };
        number.map(Self).ok_or_else(|| InvalidVersion(text.to_owned()))
    }
}

/// A migration script: one step of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Script {
    /// Its position in the order.
    pub version: Version,
    /// Its description, from the file's name.
    pub description: String,
    /// Its text, written for the schema `ratchet`.
    pub sql: &'static str,
}

/// The reason why scripts cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file's name does not have the form of a migration's.
    #[error("`{0}` is not the name of a migration: call it V<digits>__<letters, digits, underscores>.sql")]
    Name(String),
    /// Two scripts have the same version.
    #[error("there are two scripts of version {0}: give one of them another number")]
    Duplicate(Version),
}

impl Script {
    /// The maximum length of the description in `ratchet_schema_version`.
    const MAX_DESCRIPTION: usize = 200;

    /// Creates a script from the name and the text of its file: `V012__add_trace_context.sql`.
    pub fn from_file(name: &str, sql: &'static str) -> Result<Self, ScriptError> {
        let invalid = || ScriptError::Name(name.to_owned());
        let inner = name.strip_prefix('V').and_then(|rest| rest.strip_suffix(".sql")).ok_or_else(invalid)?;
        let (version, words) = inner.split_once("__").ok_or_else(invalid)?;
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if words.is_empty() || words.len() > Self::MAX_DESCRIPTION || !words.bytes().all(is_word) {
            return Err(invalid());
        }
        let version = version.parse().map_err(|_| invalid())?;
        Ok(Self { version, description: words.replace('_', " "), sql })
    }

    /// SHA-256 of the text, in 64 hexadecimal digits; the same whatever line endings the system uses.
    pub fn checksum(&self) -> String {
        checksum(&[&self.sql.replace("\r\n", "\n")])
    }
}

/// SHA-256 of texts, with a separator between them.
pub(crate) fn checksum(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            hash.update([0]);
        }
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All scripts of a store, in order.
#[derive(Clone, Debug)]
pub struct Scripts(Vec<Script>);

impl Scripts {
    /// Creates the scripts from their files' names and texts, in any order.
    ///
    /// ```
    /// use ratchet_store_core::migrate::Scripts;
    ///
    /// let scripts = Scripts::new(&[
    ///     ("V001__baseline.sql", "CREATE TABLE ratchet.scheduler_job (job_id uuid PRIMARY KEY);"),
    ///     ("V002__add_queue.sql", "ALTER TABLE ratchet.scheduler_job ADD COLUMN queue varchar(64);"),
    /// ])?;
    /// assert_eq!(scripts.newest().map(|version| version.to_string()).as_deref(), Some("002"));
    /// # Ok::<_, ratchet_store_core::migrate::ScriptError>(())
    /// ```
    pub fn new(files: &[(&str, &'static str)]) -> Result<Self, ScriptError> {
        let scripts = files.iter().map(|(name, sql)| Script::from_file(name, sql));
        let mut scripts = scripts.collect::<Result<Vec<_>, _>>()?;
        scripts.sort_by_key(|script| script.version);
        match scripts.windows(2).find(|pair| pair[0].version == pair[1].version) {
            Some(pair) => Err(ScriptError::Duplicate(pair[0].version)),
            None => Ok(Self(scripts)),
        }
    }

    /// Iterates over the scripts in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Script> {
        self.0.iter()
    }

    /// The version of the last script, to which all of them together lead.
    pub fn newest(&self) -> Option<Version> {
        self.0.last().map(|script| script.version)
    }

    pub(crate) fn get(&self, version: Version) -> Option<&Script> {
        self.0.iter().find(|script| script.version == version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(files: &[&str]) -> Result<Vec<u32>, ScriptError> {
        let files: Vec<(&str, &str)> = files.iter().map(|name| (*name, "")).collect();
        Scripts::new(&files).map(|scripts| scripts.iter().map(|script| script.version.0).collect())
    }

    // shows: S177
    #[test]
    fn scripts_are_ordered_by_number_and_not_by_name() {
        assert_eq!(versions(&["V10__c.sql", "V9__b.sql", "V0001__a.sql"]), Ok(vec![1, 9, 10]));
    }

    #[test]
    fn two_scripts_of_one_version_are_refused_however_it_is_written() {
        let twice = Err(ScriptError::Duplicate(Version(1)));
        assert_eq!(versions(&["V001__a.sql", "V002__b.sql", "V1__c.sql"]), twice);
    }

    #[test]
    fn only_names_of_the_agreed_form_are_scripts() {
        for name in [
            "V001_a.sql",
            "001__a.sql",
            "V__a.sql",
            "V001__.sql",
            "V001__a.txt",
            "v001__a.sql",
            "V1.1__a.sql",
            "V+1__a.sql",
            "V001__a-b.sql",
            "V001__a'b.sql",
            "V99999999999__a.sql",
            "V001__ä.sql",
        ] {
            assert_eq!(versions(&[name]), Err(ScriptError::Name(name.to_owned())));
        }
        let script = Script::from_file("V012__add_trace_context.sql", "x").unwrap();
        assert_eq!((script.version, script.description.as_str()), (Version(12), "add trace context"));
        assert_eq!(script.version.to_string(), "012");
    }

    #[test]
    fn a_checksum_is_sha_256_and_the_same_for_every_line_end() {
        let of = |sql| Script::from_file("V001__a.sql", sql).unwrap().checksum();
        assert_eq!(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(of("a\r\nb"), of("a\nb"));
        assert_ne!(of("a\nb"), of("a b"));
    }
}
