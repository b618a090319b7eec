//! How long the most hostile texts take. `cargo test --release -p ratchet-core --lib speed -- --ignored --nocapture`

use std::time::{Duration, Instant};

use super::*;

/// The texts that rules look for, whole and cut off, and those at which their matches end.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "a", "0", "é", " ", "\n", "\t", "-", "_", ".", ",", ";", "?", "&", "=", ":", "@", "<", ">", "(", "[", "{", "}", ").",
    "'", "\"", "`", "\\", "\\\"", "=>", "==\n", "://", "a://", "a:", "a@", "@h.org", "a://b:", "a:///", "?a", "?user=", "&key=\"",
    "pass", "pass =", "password", "password=", "password:", "password='", "password \"", "--password ", "<password ",
    "token", "token: {", "token=[", "\"token\": 1", "(\"token\",", "secret", "user", "user id =", ";user=", "Pwd=", "null",
    "Authorization: ", "Digest ", "Bearer ", "cookie:", "cookie: a=", "-u ", "x-amz-", "jdbc:oracle:thin:", "SOME(", "[REDACTED]",
    "-----BEGIN A", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "MIIEvQIBADANBgkq\n",
    "eyJaaaaaaaa.", "AKIA", "sk-", "abcdefghijklmnop", "$argon2", "/bot123456:", "hooks.slack.com/a/", "4111 1111 1111 1111", "1234-1",
    "Key (", "Key (a)=(", ") already exists", "Failing row contains (", "invalid input value for a", "invalid input value for a: \"",
    "Duplicate entry '", "' for key", "Incorrect a ", "Incorrect a value: '", "Truncated incorrect A value: '", "dup key: {",
    "keyValue: {", "duplicate key value is (", "identified by '", "identified by ", "password for a", "Password(\"", "Secret {", "\", ",
    "bearer ", "bearer token", "password is ", "token a1b2c3 ", "password%3D", "%22", "%3A%2F%2F", "%40", "token&quot;:", "password:\n  ",
    "password: !!a ", "name: password", "value: ", "mysql ", "mysql -p", "sshpass ", "redis-cli -a ", " -u", " -U a%", "sqlplus a/", "a/b@//",
    "pin: ", "pass: a", "contraseña: ", "$6$", "{SSHA}", "Private-Lines: 1\n", "a.atlasv1.", "12345678:AA",
];

/// Copies of a piece that make half of the longest text that is read.
fn half(piece: &str) -> String {
    piece.repeat(MAX_INPUT / 2 / piece.len())
}

/// The shortest of some runs: other processes can only make it longer.
fn time(text: &str, runs: usize) -> Duration {
    let (sanitizer, failure) = (DefaultErrorSanitizer::default(), JobFailure::new("E", text.to_owned()));
    let run = || {
        let begun = Instant::now();
        sanitizer.sanitize(&failure);
        begun.elapsed()
    };
    (0..runs).map(|_| run()).min().unwrap()
}

fn texts() -> impl Iterator<Item = (String, String)> {
    let pairs = PIECES.iter().flat_map(|one| PIECES.iter().map(move |other| (one, other)));
    pairs.flat_map(|(one, other)| {
        let mixed = half(&format!("{one}{other}")).repeat(2);
        let in_turn = half(one) + &half(other);
        [(format!("{:?}", [one, other]), mixed), (format!("{one:?} then {other:?}"), in_turn)]
    })
}

#[test]
#[ignore = "prints figures; for a release build"]
fn the_slowest_texts_of_two_pieces() {
    let mut took: Vec<_> = texts().map(|(name, text)| (time(&text, 1), name, text)).collect();
    took.sort_by_key(|(took, ..)| std::cmp::Reverse(*took));
    let median = took[took.len() / 2].0;
    let mut slowest: Vec<_> = took.iter().take(500).map(|(_, name, text)| (time(text, 20), name)).collect();
    slowest.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    let millis = |took: Duration| took.as_secs_f64() * 1_000.0;
    for (took, name) in &slowest[..20] {
        println!("{:6.2} ms  {name}", millis(*took));
    }
    println!("{:6.2} ms  the median of {}", millis(median), took.len());
}
