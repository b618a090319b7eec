//! Options that nothing reads and plug points that nothing calls: both are false promises.
//!
//! The rules read the text of our library code, without comments and tests. They go by names: a field counts as read in
//! a file that also names its section, a method as called on a variable that is declared as its trait.

use std::collections::BTreeSet;

use super::{Violations, text::TextFile};

/// The allowed exceptions, with reasons. An entry that is used or gone must be removed.
const ALLOWED: [(&str, &str); 7] = [
    ("RecurringOptions::batch_limit", "issue 20: recurring schedules"),
    ("RecurringOptions::min_poll", "issue 20: recurring schedules"),
    ("RecurringOptions::max_poll", "issue 20: recurring schedules"),
    ("RecurringOptions::startup_grace", "issue 20: recurring schedules"),
    ("RecurringOptions::convergence_window", "issue 20: recurring schedules"),
    ("RecurringOptions::max_catch_up", "issue 20: recurring schedules"),
    ("RecurringOptions::lock_ttl", "issue 20: recurring schedules"),
];

/// The crates whose code counts: what users run, not tests or benchmarks.
const LIBRARIES: [&str; 5] =
    ["ratchet-api/", "ratchet-core/", "ratchet-store-", "ratchet-cli/", "ratchet-testing/"];

/// Finds fields of the options that no code reads.
pub(super) fn options(files: &[TextFile]) -> Violations {
    let (code, sections) = (library(files), sections(files));
    let unread = |(owner, field): &(String, String)| {
        let section = sections.iter().find(|(_, kind)| kind == owner).map(|(name, _)| format!(".{name}"));
        let concerns = |text: &str| {
            words(text, owner).next().is_some()
                || section.as_ref().is_some_and(|name| words(text, name).next().is_some())
        };
        !code.iter().any(|(_, text)| concerns(text) && reads(text, owner, field))
    };
    judge("options", &fields(files), unread, "no code reads it")
}

/// Finds methods of the plug points that no code calls.
pub(super) fn plug_methods(files: &[TextFile]) -> Violations {
    let code = library(files);
    let uncalled = |(owner, method): &(String, String)| {
        let receivers: BTreeSet<&str> = code.iter().flat_map(|(_, text)| declared(text, owner)).collect();
        let is_called = |text: &str| {
            words(text, &format!(".{method}")).any(|at| {
                let receiver = text[..at].rsplit(|c: char| !is_word(c)).next().unwrap_or_default();
                let many = format!("{receiver}s");
                text[at + 1 + method.len()..].starts_with('(')
                    && (receivers.contains(receiver) || receivers.contains(many.as_str()))
            })
        };
        !code.iter().any(|(_, text)| is_called(text))
    };
    judge("spi", &methods(files), uncalled, "no code calls it")
}

fn judge(
    area: &str,
    found: &[(String, String)],
    is_unused: impl Fn(&(String, String)) -> bool,
    problem: &str,
) -> Violations {
    if found.is_empty() {
        return vec![format!("nothing was found in ratchet-api/src/{area}: the rule reads it wrongly")];
    }
    let mut violations = Vec::new();
    for member in found {
        let name = format!("{}::{}", member.0, member.1);
        let reason = ALLOWED.iter().find(|(allowed, _)| *allowed == name).map(|(_, reason)| reason);
        match (is_unused(member), reason) {
            (true, None) => violations.push(format!("{name}: {problem}")),
            (false, Some(reason)) => {
                violations.push(format!("{name} is used: take it off the list of exceptions ({reason})"));
            }
            _ => {}
        }
    }
    violations
}

/// Library code by file, without comments and tests, and without the code that sets and checks options.
fn library(files: &[TextFile]) -> Vec<(&str, String)> {
    let is_library = |file: &&TextFile| {
        let is_test = file.name.ends_with("/tests.rs") || file.name.contains("/tests/");
        let is_source = file.name.ends_with(".rs") && file.name.contains("/src/") && !is_test;
        is_source && LIBRARIES.iter().any(|krate| file.name.starts_with(krate))
    };
    let code = |file: &TextFile| {
        let mut text = without_tests(&without_comments(&file.text));
        if is_of(file, "options") {
            text = without(&text, "    pub fn validate(", "    }");
            text = without(&text, "impl Default for ", "}");
        }
        // A call on a line of its own belongs to the line above.
        let mut lines = String::with_capacity(text.len());
        for line in text.lines() {
            match line.trim_start() {
                call if call.starts_with('.') => lines.push_str(call),
                _ => lines.extend(["\n", line]),
            }
        }
        lines
    };
    files.iter().filter(is_library).map(|file| (file.name.as_str(), code(file))).collect()
}

fn is_of(file: &TextFile, area: &str) -> bool {
    let area = format!("ratchet-api/src/{area}");
    file.name == format!("{area}.rs")
        || file.name.starts_with(&format!("{area}/")) && !file.name.ends_with("/tests.rs")
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect()
}

fn without_tests(text: &str) -> String {
    without(text, "#[cfg(test)]\nmod tests {", "}")
}

/// The text without the blocks that begin with a line starting with `start` and end with the line `end`.
fn without(text: &str, start: &str, end: &str) -> String {
    let mut rest = text.to_owned();
    while let Some(at) = rest.find(&format!("\n{start}")) {
        let length = rest[at..].find(&format!("\n{end}\n")).map_or(rest.len() - at, |to| to + end.len() + 1);
        rest.replace_range(at..at + length, "");
    }
    rest
}

/// The sections of all options: name and type.
fn sections(files: &[TextFile]) -> Vec<(String, String)> {
    let root = files.iter().filter(|file| file.name == "ratchet-api/src/options.rs");
    let lines = root.flat_map(|file| file.text.lines());
    lines.filter_map(field).map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// A line that declares a public field: its name and type.
fn field(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("    pub ")?
        .strip_suffix(',')?
        .split_once(": ")
        .filter(|(name, _)| name.chars().all(is_word))
}

/// The fields of all options, each with its type. The sections themselves are not included.
fn fields(files: &[TextFile]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in
        files.iter().filter(|file| is_of(file, "options") && file.name != "ratchet-api/src/options.rs")
    {
        let mut owner = None;
        for line in file.text.lines() {
            if let Some(name) = line.strip_prefix("pub struct ") {
                owner = name.strip_suffix(" {");
            } else if line == "}" {
                owner = None;
            } else if let (Some(owner), Some((name, _))) = (owner, field(line)) {
                found.push((owner.to_owned(), name.to_owned()));
            }
        }
    }
    found
}

/// The methods of all plug points, each with its trait.
fn methods(files: &[TextFile]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_of(file, "spi")) {
        let mut owner = None;
        for line in file.text.lines() {
            if let Some(name) = line.strip_prefix("pub trait ") {
                owner = name.split([':', ' ', '<']).next();
            } else if line == "}" {
                owner = None;
            } else if let (Some(owner), Some(head)) = (owner, line.strip_prefix("    ")) {
                let head = head.strip_prefix("async ").unwrap_or(head);
                let name = head.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
                found.extend(name.map(|name| (owner.to_owned(), name.to_owned())));
            }
        }
    }
    found
}

/// Whether the text reads a field: `.field` that is not assigned to, or a pattern of its type.
fn reads(text: &str, owner: &str, field: &str) -> bool {
    let access = words(text, &format!(".{field}")).any(|at| {
        let next = text[at + 1 + field.len()..].trim_start();
        let assigned = next.starts_with('=') && !next.starts_with("==") && !next.starts_with("=>");
        !next.starts_with('(') && !assigned
    });
    let pattern = words(text, owner).any(|at| {
        let rest = text[at + owner.len()..].trim_start();
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        // `field: value` constructs it.
        inside.split(',').any(|part| part.trim() == field)
    });
    access || pattern
}

/// The names of fields and arguments that are declared as this plug point.
fn declared<'t>(text: &'t str, plug: &str) -> Vec<&'t str> {
    let declaration = |at: usize| {
        let before = &text[..at];
        let begin = before.rfind([',', '{', '(', '|', ';']).map_or(0, |at| at + 1);
        let name = before[begin..].split_once(": ")?.0.rsplit(|c: char| !is_word(c)).next()?;
        (!name.is_empty()).then_some(name)
    };
    words(text, &format!("dyn {plug}")).filter_map(declaration).collect()
}

/// The positions of a whole word.
fn words<'t>(text: &'t str, word: &str) -> impl Iterator<Item = usize> + use<'t> {
    let word = word.to_owned();
    let begins_in_word = word.starts_with(is_word);
    let length = word.len();
    let found: Vec<usize> = text.match_indices(&word).map(|(at, _)| at).collect();
    found.into_iter().filter(move |at| {
        let joined = begins_in_word && text[..*at].ends_with(is_word);
        !joined && !text[at + length..].starts_with(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &str = "\
pub struct PollOptions {
    /// How much.
    pub batch: u32,
    pub ttl: Duration,
}
impl PollOptions {
    pub fn validate(&self) -> Result<(), E> {
        rules.within(\"batch\", self.batch, self.ttl);
    }
}
impl Default for PollOptions {
    fn default() -> Self {
        Self { batch: 1, ttl: other.ttl }
    }
}
";
    const SECTIONS: &str = "pub struct All {\n    pub poll: PollOptions,\n    pub work: WorkOptions,\n}\n";
    const SPI: &str = "\
#[async_trait]
pub trait Bell: Send + Sync {
    /// Rings.
    async fn ring(&self, how: u8) -> bool;
    fn rest(&self) {
        self.other();
    }
}
";

    fn file(name: &str, text: &str) -> TextFile {
        TextFile { name: name.to_owned(), text: text.to_owned() }
    }

    fn unread(name: &str, code: &str) -> Violations {
        let all = file("ratchet-api/src/options.rs", SECTIONS);
        options(&[all, file("ratchet-api/src/options/poll.rs", OPTIONS), file(name, code)])
    }

    const BOTH: [&str; 2] = ["PollOptions::batch: no code reads it", "PollOptions::ttl: no code reads it"];

    #[test]
    fn an_option_that_is_only_declared_checked_and_set_is_refused() {
        assert_eq!(unread("ratchet-core/src/a.rs", "fn a() { options.poll.other; }"), BOTH);
        assert_eq!(unread("ratchet-core/src/a.rs", "fn a() { options.poll.batch = 1; }"), BOTH);
        let read = "fn a() { options.poll.batch; }\n// options.poll.ttl\n";
        assert_eq!(unread("ratchet-core/src/a.rs", read), BOTH[1..]);
        assert_eq!(
            unread("ratchet-core/src/a.rs", "if options.poll\n    .batch => options.poll.ttl == x"),
            [""; 0]
        );
    }

    #[test]
    fn an_option_that_only_tests_read_is_refused() {
        let read = "options.poll.batch + options.poll.ttl";
        assert_eq!(unread("ratchet-suite/src/a.rs", read), BOTH);
        assert_eq!(unread("ratchet-core/src/a/tests.rs", read), BOTH);
        assert_eq!(unread("ratchet-core/tests/a.rs", read), BOTH);
        let test = format!("fn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n    {read}\n}}\n");
        assert_eq!(unread("ratchet-core/src/a.rs", &test), BOTH);
    }

    #[test]
    fn a_field_of_the_same_name_elsewhere_does_not_count() {
        assert_eq!(unread("ratchet-core/src/a.rs", "options.work.batch + lock.ttl"), BOTH);
        let by_type = "fn a(options: &PollOptions) { options.batch }";
        assert_eq!(unread("ratchet-core/src/a.rs", by_type), BOTH[1..]);
    }

    #[test]
    fn a_pattern_reads_and_a_value_does_not() {
        let pattern = "let PollOptions { batch, .. } = options;";
        assert_eq!(unread("ratchet-store-x/src/a.rs", pattern), BOTH[1..]);
        assert_eq!(unread("ratchet-store-x/src/a.rs", "PollOptions { batch: 1, ttl: t }"), BOTH);
    }

    fn uncalled(code: &str) -> Violations {
        plug_methods(&[file("ratchet-api/src/spi/bell.rs", SPI), file("ratchet-core/src/a.rs", code)])
    }

    #[test]
    fn a_method_counts_as_called_on_what_was_declared_as_its_plug() {
        let none = ["Bell::ring: no code calls it", "Bell::rest: no code calls it"];
        assert_eq!(uncalled("struct A { bell: Arc<dyn Bell> }"), none);
        assert_eq!(uncalled("struct A { phone: Phone }\nfn a() { self.phone.ring(1).rest() }"), none);
        assert_eq!(uncalled("struct A { bell: Arc<dyn Bell> }\nfn a() { self.bell.ring(1) }"), none[1..]);
        assert_eq!(
            uncalled("fn a(bells: &[Arc<dyn Bell>]) { bells.map(|bell| bell\n    .rest()) }"),
            none[..1]
        );
        assert_eq!(uncalled("fn a(bell: Box<dyn Bells>) { bell.rest(); bell.ring(1) }"), none);
    }

    #[test]
    fn nothing_found_is_a_fault_of_the_rule() {
        assert_eq!(options(&[]).len(), 1);
        assert_eq!(plug_methods(&[]).len(), 1);
    }

    #[test]
    fn an_exception_that_is_used_is_taken_off() {
        let options_file = file(
            "ratchet-api/src/options/recurring.rs",
            "pub struct RecurringOptions {\n    pub lock_ttl: D,\n}\n",
        );
        let code = file("ratchet-core/src/a.rs", "fn a(o: RecurringOptions) { o.lock_ttl }");
        let told = options(&[options_file, code]);
        assert!(told[0].starts_with("RecurringOptions::lock_ttl is used: take it off"), "{told:?}");
    }

    #[test]
    fn this_checkout_keeps_its_promises() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = super::super::text::files(&root).unwrap();
        assert_eq!(options(&files), [""; 0]);
        assert_eq!(plug_methods(&files), [""; 0]);
        for (name, reason) in ALLOWED {
            assert!(!reason.is_empty());
            let members: Vec<_> = fields(&files).into_iter().chain(methods(&files)).collect();
            assert!(
                members.iter().any(|(owner, member)| format!("{owner}::{member}") == name),
                "{name} is gone"
            );
        }
    }
}
