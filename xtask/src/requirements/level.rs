//! Levels: where a user would see that a requirement holds, and where a test looks.

use std::fmt;

use serde::Serialize;

/// The level at which something can be observed. A later one includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// On a page.
    Docs,
    /// In a store, or in a rule of its own, even if nothing uses it.
    Store,
    /// In the behavior of a running node.
    Engine,
    /// In a program that a user starts.
    Process,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Docs => "docs",
            Self::Store => "store",
            Self::Engine => "engine",
            Self::Process => "process",
        })
    }
}

/// Requirements with another level than their neighbours, and the reasons.
const EXCEPTIONS: [(u16, Level, &str); 12] = [
    (6, Level::Store, "how a database claims is seen in its statements only"),
    (7, Level::Store, "one logical model: every store passes the same suite"),
    (38, Level::Store, "the version that guards a row is seen by who writes it"),
    (47, Level::Store, "the numbers of priorities are seen in the tables only"),
    (48, Level::Store, "what a claim reads is seen in its statements only"),
    (121, Level::Store, "names of tables"),
    (138, Level::Store, "an index"),
    (140, Level::Store, "a method of `LockStore`"),
    (141, Level::Store, "columns of a table"),
    (142, Level::Store, "a lock ends by itself in the store, whoever used it"),
    (149, Level::Store, "columns and an index"),
    (194, Level::Store, "how one driver writes ids"),
];

/// Requirements of which a part does not exist in the engine yet, whatever their tests show of the rest.
const IN_PART: [(u16, &str); 4] = [
    (2, "no builder makes chains, workflows or batches yet"),
    (27, "no builder makes chains or branches yet"),
    (127, "nothing cleans up schedules yet (issue 20)"),
    (139, "nothing fires schedules yet (issue 20)"),
];

/// The level of a requirement.
pub(crate) fn of_item(number: u16) -> Level {
    let exception = EXCEPTIONS.iter().find(|(item, ..)| *item == number);
    match (exception, number) {
        (Some((_, level, _)), _) => *level,
        (None, 187 | 193) => Level::Docs,
        (None, 150..=178 | 188..=192) => Level::Store,
        (None, _) => Level::Engine,
    }
}

/// The part of a requirement that cannot hold yet.
pub(crate) fn missing_part(number: u16) -> Option<&'static str> {
    IN_PART.iter().find(|(item, _)| *item == number).map(|(_, part)| *part)
}

/// The level of a test, by its crate; the ids of the store suite's cases name no crate.
pub(crate) fn of_test(id: &str) -> Level {
    match id.split("::").next().unwrap_or_default() {
        "ratchet-suite" | "ratchet-core" | "ratchet-testing" => Level::Engine,
        "ratchet-cli" | "ratchet-torture" | "examples" => Level::Process,
        _ => Level::Store,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_the_level_of_their_part_or_of_an_exception() {
        let levels = [1, 6, 149, 150, 178, 179, 186, 187, 188, 192, 193, 194].map(of_item);
        use Level::{Docs, Engine, Store};
        let expected = [Engine, Store, Store, Store, Store, Engine, Engine, Docs, Store, Store, Docs, Store];
        assert_eq!(levels, expected);
    }

    #[test]
    fn every_exception_differs_from_the_default_and_has_a_reason() {
        for (number, level, reason) in EXCEPTIONS {
            let by_default = match number {
                150..=178 | 188..=192 => Level::Store,
                187 | 193 => Level::Docs,
                _ => Level::Engine,
            };
            assert!(level != by_default && !reason.is_empty(), "S{number}");
        }
    }

    #[test]
    fn a_test_sees_what_its_crate_sees() {
        assert_eq!(of_test("claim::due_job_is_claimed_once"), Level::Store);
        assert_eq!(of_test("ratchet-api::backoff::tests::delays"), Level::Store);
        assert_eq!(of_test("ratchet-store-postgres::plans::heads"), Level::Store);
        assert_eq!(of_test("ratchet-suite::cases::submit::runs"), Level::Engine);
        assert_eq!(of_test("ratchet-core::poller::strategy::tests::idle"), Level::Engine);
        assert_eq!(of_test("ratchet-cli::cluster::kills"), Level::Process);
        assert!(Level::Process > Level::Engine && Level::Engine > Level::Store && Level::Store > Level::Docs);
    }
}
