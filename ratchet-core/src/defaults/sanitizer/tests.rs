use proptest::prelude::*;

use super::*;

const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const PEM: &str =
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nAgEAAoIBAQC7\n-----END PRIVATE KEY-----";

fn failure(message: &str) -> JobFailure {
    JobFailure::new("E", message)
}

/// The stored text without the class, which alone is stored for a message that says no more.
fn stored(message: &str) -> String {
    let text = String::from(Sanitized::new(&DefaultErrorSanitizer::default(), &failure(message)));
    let said = if message == "E" { message } else { "" };
    text.strip_prefix("E: ").unwrap_or(said).to_owned()
}

fn check(table: &[(&str, &str)]) {
    for (message, expected) in table {
        assert_eq!(stored(message), *expected, "{message}");
        assert_eq!(stored(expected), *expected, "twice: {message}");
    }
}

// shows: S108 S109 S110
#[test]
fn the_example_of_the_specification_is_stored_literally() {
    struct CommunicationsException;
    let class = std::any::type_name::<CommunicationsException>();
    let message = "Cannot connect to jdbc:mysql://admin:s3cret@db.internal:3306/prod";
    let text = Sanitized::new(&DefaultErrorSanitizer::default(), &JobFailure::new(class, message));
    assert_eq!(
        text.as_str(),
        "CommunicationsException: Cannot connect to jdbc:mysql://[REDACTED]@db.internal:3306/prod"
    );
}

// shows: S109
#[test]
fn credentials_in_urls_go_and_host_port_and_path_stay() {
    for scheme in [
        "postgres",
        "postgresql",
        "mysql",
        "mariadb",
        "mongodb",
        "mongodb+srv",
        "redis",
        "rediss",
        "amqp",
        "amqps",
        "http",
        "https",
        "ftp",
        "jdbc:postgresql",
        "JDBC:MYSQL",
    ] {
        let url = |user| format!("at {scheme}://{user}@db.internal:99/x?a=b, giving up");
        assert_eq!(stored(&url("app:s3cret")), url(REDACTED));
    }
    check(&[
        ("postgres://app:p@ss/w0rd@db:5432/x", "postgres://[REDACTED]@db:5432/x"),
        ("postgres://app:pa/ss@db:5432/x", "postgres://[REDACTED]@db:5432/x"),
        ("postgres://app:p:a:s:s@db", "postgres://[REDACTED]@db"),
        ("redis://:redispass@cache:6379/0", "redis://[REDACTED]@cache:6379/0"),
        ("https://ghost@host/x", "https://[REDACTED]@host/x"),
        ("(url: \"amqp://u:p@mq:5672\")", "(url: \"amqp://[REDACTED]@mq:5672\")"),
        ("amqp://u:p\"w@mq", "amqp://[REDACTED]@mq"),
        ("mongodb://u:p@h1:1,h2:2/db?w=majority", "mongodb://[REDACTED]@h1:1,h2:2/db?w=majority"),
        ("a://u:p@h b://v:q@i", "a://[REDACTED]@h b://[REDACTED]@i"),
        ("https://proxy/?to=redis://u:p@h", "https://proxy/?to=redis://[REDACTED]@h"),
        ("jdbc:oracle:thin:scott/tiger@//h:1521/x", "jdbc:oracle:thin:[REDACTED]@//h:1521/x"),
        ("jdbc:oracle:oci:scott/ti@ger@h", "jdbc:oracle:oci:[REDACTED]@h"),
        ("app:p@ss@tcp(127.0.0.1:3306)/x", "[REDACTED]@tcp(127.0.0.1:3306)/x"),
        ("no route to app:s3cret@db.internal:5432", "no route to [REDACTED]@db.internal:5432"),
        ("https://hooks.slack.com/services/T0/B0/XyZ", "https://hooks.slack.com/services/[REDACTED]"),
        (
            "https://api.telegram.org/bot123456:ABCdefGHIjklMNOpqr/x",
            "https://api.telegram.org/bot[REDACTED]/x",
        ),
    ]);
}

// shows: S109
#[test]
fn credentials_in_parameters_and_connection_strings_go() {
    check(&[
        (
            "jdbc:x://h/d?user=bob&password=Sup3r&ssl=1",
            "jdbc:x://h/d?user=[REDACTED]&password=[REDACTED]&ssl=1",
        ),
        (
            "jdbc:sqlserver://h:1433;user=sa;password=Abc123!;",
            "jdbc:sqlserver://h:1433;user=[REDACTED];password=[REDACTED];",
        ),
        ("jdbc:sqlserver://h:1433;password=A@bcdefgh;x=1", "jdbc:sqlserver://h:1433;password=[REDACTED];x=1"),
        ("https://h/x?page=2&access_token=t-123&n=1", "https://h/x?page=2&access_token=[REDACTED]&n=1"),
        ("<https://h/x?sig=abc%2Fdef>", "<https://h/x?sig=[REDACTED]"),
        ("https://b.s3/x?X-Amz-Signature=fe5f80", "https://b.s3/x?X-Amz-Signature=[REDACTED]"),
        ("password='My Secret' host=h", "password=[REDACTED] host=h"),
        ("host=h password=hunter2 user=app", "host=h password=[REDACTED] user=app"),
        ("User Id=sa;Pwd=Qwerty12;", "User Id=[REDACTED];Pwd=[REDACTED];"),
        ("Password=my secret words;Server=h", "Password=[REDACTED];Server=h"),
        ("Server=h;Password=my secret words;Database=x", "Server=h;Password=[REDACTED];Database=x"),
        ("Server=h;Password={a;b};Database=x", "Server=h;Password=[REDACTED];Database=x"),
        ("Server=h;Password=\"a;b\";Database=x", "Server=h;Password=[REDACTED];Database=x"),
    ]);
}

#[test]
fn authorization_keeps_its_scheme_only() {
    check(&[
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [REDACTED]"),
        ("authorization: bearer abc.def-1, retry", "authorization: bearer [REDACTED], retry"),
        (r#"{"Authorization":"Bearer zzz"}"#, r#"{"Authorization":"Bearer [REDACTED]"}"#),
        (r#""{\"Authorization\":\"Bearer zzz\"}""#, r#""{\"Authorization\":\"Bearer [REDACTED]\"}""#),
        ("Proxy-Authorization: s3cretvalue", "Proxy-Authorization: [REDACTED]"),
        (
            "Authorization: Digest username=\"bob\", response=\"6629fae4\"\nHost: h",
            "Authorization: Digest [REDACTED]\nHost: h",
        ),
        ("sent Bearer a1b2c3d4e5f6 to h", "sent Bearer [REDACTED] to h"),
        ("Cookie: session=abc; theme=dark\nHost: h", "Cookie: [REDACTED]\nHost: h"),
    ]);
}

#[test]
fn values_of_secret_keys_go_in_every_notation() {
    check(&[
        ("DB_PASSWORD=hunter2", "DB_PASSWORD=[REDACTED]"),
        ("DB_PASS=hunter2 pass=hunter2", "DB_PASS=[REDACTED] pass=[REDACTED]"),
        (r#"{"client_secret": "zyx", "id": 7}"#, r#"{"client_secret": "[REDACTED]", "id": 7}"#),
        (r#"{"token":12345,"id":7}"#, r#"{"token":[REDACTED],"id":7}"#),
        (r#"{"token":[REDACTED],"password":"x"}"#, r#"{"token":[REDACTED],"password":"[REDACTED]"}"#),
        (r#""{\"password\":\"hunter2\",\"id\":7}""#, r#""{\"password\":\"[REDACTED]\",\"id\":7}""#),
        (r#"Config { password: "a \"b\" c", host: "h" }"#, r#"Config { password: "[REDACTED]", host: "h" }"#),
        (r#"Config { password: Some("a b"), n: 1 }"#, "Config { password: [REDACTED], n: 1 }"),
        ("Config { password: hunter2, n: 1 }", "Config { password: [REDACTED], n: 1 }"),
        ("x-api-key: k-1", "x-api-key: [REDACTED]"),
        ("secret => 'a b'", "secret => [REDACTED]"),
        ("accessToken=abc (refreshToken=def)", "accessToken=[REDACTED] (refreshToken=[REDACTED])"),
        ("aws_secret_access_key=wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key=[REDACTED]"),
        ("password='it''s secret' x", "password=[REDACTED] x"),
        ("password='never closed\nnext", "password=[REDACTED]\nnext"),
        ("password: \"never closed", "password: [REDACTED]"),
        ("pass\u{200b}word=hunter2\0", "password=[REDACTED]"),
        ("ALTER USER app PASSWORD 'a b'", "ALTER USER app PASSWORD [REDACTED]"),
        ("CREATE USER a IDENTIFIED BY 'a b';", "CREATE USER a IDENTIFIED BY [REDACTED];"),
        ("token=a&password=b", "token=[REDACTED]"),
        (
            "Config {\n    password: Some(\n        \"a b\",\n    ),\n}",
            "Config {\n    password: [REDACTED],\n}",
        ),
        ("secret: [104, 117, 110], n: 1", "secret: [REDACTED], n: 1"),
        ("secret=[ab]cdefghij", "secret=[REDACTED]"),
        (r#"{"credentials":{"user":"u","pin":"1"}}"#, r#"{"credentials":[REDACTED]}"#),
        ("credentials: {\n  password: x\n}", "credentials: {\n  password: [REDACTED]\n}"),
        (r#"[("x-api-key", "k-1"), ("n", "1")]"#, r#"[("x-api-key", "[REDACTED]"), ("n", "1")]"#),
        ("psql --password hunter2 --port 1", "psql --password [REDACTED] --port 1"),
        ("curl -u bob:hunter2 http://h", "curl -u [REDACTED] http://h"),
        ("<password>hunter2</password><n>1</n>", "<password>[REDACTED]</password><n>1</n>"),
    ]);
}

#[test]
fn tokens_and_keys_that_are_known_by_their_looks_go() {
    check(&[
        (&format!("got {JWT}."), "got [REDACTED]"),
        ("AKIAIOSFODNN7EXAMPLE is not authorized", "[REDACTED] is not authorized"),
        (&format!("bad key {PEM} at line 3"), "bad key [REDACTED] at line 3"),
        (&format!("bad key {}", &PEM[..50]), "bad key [REDACTED]"),
        (&format!("bad key\n{}!", &PEM[28..]), "bad key\n[REDACTED]!"),
        (&PEM.replace('\n', "\\n").replace("PRIVATE", "RSA PRIVATE"), "[REDACTED]"),
    ]);
    for token in [
        "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
        "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$aGFzaA",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0_abcdefghijklmnop",
        "glpat-ABCDEFGHIJ1234567890",
        "xoxb-123456789012-abcdefABCDEF",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "sk-proj-abcdefghijklmnopqrstuvwxyz",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "SG.abcdefghijklmnop.qrstuvwxyz0123456789",
        "hvs.CAESIJabcdefghijklmnopqrstuvwxyz",
    ] {
        check(&[(&format!("call with {token} failed"), "call with [REDACTED] failed")]);
    }
}

#[test]
fn row_values_in_messages_of_databases_go() {
    check(&[
        ("Key (email)=(jane@x) already exists.", "Key (email)=([REDACTED]) already exists."),
        (
            "Key (a, lower(b))=(1, x) y) is not present in table",
            "Key (a, lower(b))=([REDACTED]) is not present in table",
        ),
        ("Key (a)=(cut off", "Key (a)=([REDACTED]"),
        ("Failing row contains (1, jane, null).", "Failing row contains ([REDACTED])."),
        (
            "invalid input syntax for type integer: \"jane\"",
            "invalid input syntax for type integer: \"[REDACTED]\"",
        ),
        ("Duplicate entry 'jane@x-7' for key 'u.e'", "Duplicate entry '[REDACTED]' for key 'u.e'"),
        ("Duplicate entry 'cut off", "Duplicate entry '[REDACTED]"),
        (
            "Incorrect string value: '\\xF0' for column 'n'",
            "Incorrect string value: '[REDACTED]' for column 'n'",
        ),
        ("Failing row contains (1, O(n), secret).", "Failing row contains ([REDACTED])."),
        ("Failing row contains (1, cut off", "Failing row contains ([REDACTED]"),
        ("Duplicate entry 'O'Hara secret' for key 'k'", "Duplicate entry '[REDACTED]' for key 'k'"),
        (
            "Incorrect integer value: 'O'Hara' for column 'n'",
            "Incorrect integer value: '[REDACTED]' for column 'n'",
        ),
        ("Incorrect integer value: 'cut off", "Incorrect integer value: '[REDACTED]"),
        ("Truncated incorrect DOUBLE value: 'O'Hara'", "Truncated incorrect DOUBLE value: '[REDACTED]'"),
        ("keyValue: { phone: \"+15551234\" }, n: 1", "keyValue: { [REDACTED] }, n: 1"),
        ("index: p_1 dup key: { phone: \"+15551234\" }", "index: p_1 dup key: { [REDACTED] }"),
        ("The duplicate key value is (jane).", "The duplicate key value is ([REDACTED])."),
    ]);
}

// shows: S109
#[test]
fn e_mail_addresses_go_unless_they_may_stay() {
    check(&[
        ("mail to jane.doe+x@sub.example.co.uk bounced", "mail to [REDACTED] bounced"),
        ("<jürgen@müller.example>", "<[REDACTED]>"),
    ]);
    let keeping =
        DefaultErrorSanitizer::new(&SecurityOptions { redact_emails: false, ..SecurityOptions::default() });
    let text = keeping.sanitize(&failure("jane@x.org at redis://:pw@h.org"));
    assert_eq!(text, "E: jane@x.org at redis://[REDACTED]@h.org");
}

#[test]
fn card_numbers_with_a_valid_check_digit_go() {
    check(&[
        ("card 4111 1111 1111 1111 declined", "card [REDACTED] declined"),
        ("4111-1111-1111-1111", "[REDACTED]"),
        ("4111111111111111", "[REDACTED]"),
        ("3782 822463 10005", "[REDACTED]"),
        ("1234 4111 1111 1111 1111 12", "1234 [REDACTED] 12"),
        ("5555555555554444, 2223003122003222", "[REDACTED], [REDACTED]"),
    ]);
}

#[test]
fn harmless_text_stays() {
    let harmless = [
        "card 4111111111111112 declined",
        "at 1763306080005 ms, 2026-11-16 15:14:40.123, number 2026111615144004",
        "order 550e8400-e29b-41d4-a716-446655440000 not found",
        "password must have at least 8 characters",
        "password authentication failed for user \"app\"",
        "unexpected token `}` at line 3 column 7",
        "max_tokens=4096, prompt_tokens: 12",
        "auth::token::verify failed at src/token.rs:12:9",
        "GET https://registry.example/@scope/name?page=2 answered 503",
        "https://host/users#top and file:///tmp/a@b",
        "left-pad@1.3.0 is deprecated",
        "the secretary: Bob",
        "Basic authentication required, bearer authentication too",
        "task-abcdefghijklmnopqrstuvwxyz is late",
        "connection to db.internal:5432 refused (os error 111)",
        "naïve café ☕ 日本語\n\tat line two",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "UNIQUE constraint failed: users.email",
        "primary_key=42, idempotency_key=abc, https://h/x?sort_key=a&business_key=pay-42",
        "missing field `password`: line 3, unknown fields [\"password\", \"name\"]",
        "exit status 1: cargo -u x",
        "at 10:30 in room 12:b@c",
    ];
    for text in harmless {
        assert_eq!(stored(text), text);
    }
}

// shows: S108 S109
#[test]
fn secrets_in_causes_go_too() {
    #[derive(Debug, thiserror::Error)]
    #[error("settling failed")]
    struct Settle(#[source] Connect);
    #[derive(Debug, thiserror::Error)]
    #[error("no route to postgres://app:s3cret@db/x: {0}")]
    struct Connect(#[source] std::io::Error);

    let error = Settle(Connect(std::io::Error::other("refused")));
    let text = DefaultErrorSanitizer::default().sanitize(&JobFailure::from_error(&error));
    assert_eq!(text, "Settle: settling failed\ncaused by: no route to postgres://[REDACTED]@db/x: refused");
}

// shows: S109
#[test]
fn the_class_is_kept_and_told_once() {
    let of = |class: &'static str, message: &str| {
        DefaultErrorSanitizer::default().sanitize(&JobFailure::new(class, message))
    };
    for (class, message, expected) in [
        ("billing::errors::InvalidToken", "expired", "InvalidToken: expired"),
        ("InvalidToken", "InvalidToken: expired", "InvalidToken: expired"),
        ("Timeout", "Timeout", "Timeout"),
        ("Timeout", "", "Timeout"),
        ("", "late", "late"),
        ("password=hunter2", "late", "password=[REDACTED]: late"),
    ] {
        assert_eq!(of(class, message), expected);
        assert_eq!(of(class, expected), expected);
    }
}

// shows: S109
#[test]
fn long_texts_are_cut_where_a_character_ends() {
    for long in ["é".repeat(9_000), "x".repeat(1 << 20), "a b ".repeat(1 << 18)] {
        let text = DefaultErrorSanitizer::default().sanitize(&failure(&long));
        assert!(text.len() <= Sanitized::MAX_LEN && text.ends_with(CUT), "{} bytes", text.len());
        assert_eq!(stored(&text), text["E: ".len()..]);
    }
    for pad in 4_030..4_096 {
        let text =
            stored(&format!("{} password={} {}", "y".repeat(pad), "hunter2".repeat(20), "z".repeat(99)));
        assert!(!text.contains("hunt"));
        assert_eq!(stored(&text), text);
    }
}

#[test]
fn what_a_cut_turns_into_a_secret_goes_too() {
    for pad in 4_030..4_096 {
        let text = stored(&format!("{} 4111111111111111{}", "y".repeat(pad), "0".repeat(60)));
        assert!(!text.contains("4111111111111111…"), "{text}");
        assert_eq!(stored(&text), text);
    }
}

#[test]
fn half_a_secret_at_the_end_of_an_absurd_text_goes() {
    let key = format!("-----BEGIN PRIVATE KEY-----{}-----END PRIVATE KEY-----", "A".repeat(MAX_INPUT - 70));
    let text = stored(&format!("{key} ghp_16C7e42F292c6912E7710c838347Ae178B4a"));
    assert_eq!(text, format!("[REDACTED]{CUT}"));
}

#[test]
fn an_absurd_text_without_blanks_keeps_its_beginning() {
    let text = stored(&format!(r#"{{"code":503{}}}"#, r#","host":"db""#.repeat(MAX_INPUT / 10)));
    assert!(text.starts_with(r#"{"code":503,"host":"db","#) && text.ends_with(CUT), "{text}");
}

#[test]
fn one_unbroken_word_is_cut_and_not_dropped() {
    assert_eq!(
        stored(&"x".repeat(1 << 20)).trim_end_matches(CUT).len(),
        Sanitized::MAX_LEN - "E: ".len() - CUT.len()
    );
    for (word, left) in [
        (format!("postgres://u:{}@db/shop", "p".repeat(MAX_INPUT)), "postgres"),
        (format!("password={}", "p".repeat(MAX_INPUT)), "password"),
        (format!("Password({})", "p".repeat(MAX_INPUT)), "Password"),
    ] {
        assert_eq!(stored(&word), format!("{left}{CUT}"));
    }
}

#[test]
fn a_text_that_just_fits_is_whole() {
    let fits = Sanitized::MAX_LEN - "E: ".len();
    for (len, whole) in [(fits, true), (fits + 1, false)] {
        let failure = JobFailure::new("E", "x".repeat(len));
        let text = Sanitized::new(&DefaultErrorSanitizer::default(), &failure);
        assert_eq!(text.as_str() == format!("E: {}", "x".repeat(len)), whole, "{len}");
        assert_eq!(text.as_str().ends_with(CUT), !whole, "{len}");
    }
}

// shows: S111
#[test]
fn a_hook_can_hide_more_but_not_less() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let sanitizer = DefaultErrorSanitizer::default()
        .then(move |text| {
            log.lock().unwrap().push(text.to_owned());
            format!("{text} at redis://:pw@h")
        })
        .then(|text| text.replace("falcon", "bird"));
    let text = sanitizer.sanitize(&failure("falcon lost password=hunter2"));
    assert_eq!(text, "E: bird lost password=[REDACTED] at redis://[REDACTED]@h");
    assert_eq!(*seen.lock().unwrap(), ["E: falcon lost password=[REDACTED]"]);

    let careless = DefaultErrorSanitizer::default().then(|_| "token=abc".repeat(10_000));
    assert!(!careless.sanitize(&failure("x")).contains("abc"));
}

fn with_check_digit(digits: &str) -> String {
    let doubled = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9];
    let digit = |c: char| c.to_digit(10).unwrap() as usize;
    let sum: usize = digits
        .chars()
        .rev()
        .enumerate()
        .map(|(i, c)| if i % 2 == 0 { doubled[digit(c)] } else { digit(c) })
        .sum();
    format!("{digits}{}", (10 - sum % 10) % 10)
}

/// A secret and a text that carries it.
fn leaks() -> impl Strategy<Value = (String, String)> {
    let alphanumeric = || "[A-Za-z0-9]{20,40}";
    let around = |generator: &'static str, wrap: fn(&str) -> String| {
        generator.prop_map(move |secret| (secret.clone(), wrap(&secret))).boxed()
    };
    let password = "[A-Za-z0-9][!#-&(-;>-~]{6,30}[A-Za-z0-9]";
    prop_oneof![
        around("[A-Za-z0-9!$%^*()_+,./@:~-]{8,30}", |s| format!("postgres://app:{s}@db:5432/x")),
        around("[A-Za-z0-9!$%^*()_+,./@:~-]{8,30}", |s| format!("redis://:{s}@cache/0")),
        around("[A-Za-z0-9!$%^*()_+,.@:~-]{8,30}", |s| format!("jdbc:oracle:thin:scott/{s}@//h")),
        around("[A-Za-z0-9!$%^*()_+,./@:;#~-]{8,30}", |s| format!("http://h/?a=b&password={s}&c=d")),
        around("[A-Za-z0-9!$%^*() _+,./@:&#~-]{8,30}", |s| format!("Server=h;Pwd={s};Database=x")),
        around("[A-Za-z0-9+/]{12,40}={0,2}", |s| format!("Authorization: Basic {s}")),
        around("[A-Za-z0-9._~+/-]{12,40}", |s| format!("{{\"Authorization\":\"Bearer {s}\"}}")),
        around(password, |s| format!("DB_PASSWORD={s}")),
        around(password, |s| format!("api_key: {s}")),
        around(password, |s| format!("psql --password {s} -h db")),
        around("[ -~]{8,30}", |s| format!("{{\"clientSecret\": {}, \"n\": 1}}", serde_json::json!(s))),
        around("[ -~]{8,30}", |s| format!("Config {{ secret: {s:?}, n: 1 }}")),
        around("[ -~]{8,30}", |s| format!("passwd => '{}'", s.replace('\\', "").replace('\'', "''"))),
        around(alphanumeric(), |s| format!("ghp_{s}")),
        around(alphanumeric(), |s| format!("sk_live_{s}")),
        around(alphanumeric(), |s| format!("eyJhbGciOiJIUzI1NiJ9.eyJ{s}.{s}")),
        around("[A-Z0-9]{16}", |s| format!("AKIA{s}")),
        around("[A-Za-z0-9+/]{60}", |s| format!(
            "-----BEGIN EC PRIVATE KEY-----\n{s}\n-----END EC PRIVATE KEY-----"
        )),
        around("[A-Za-z0-9+/]{60}", |s| format!("-----BEGIN EC PRIVATE KEY-----\n{s}")),
        around("[ -~]{8,30}", |s| format!("Key (name)=({s}) already exists.")),
        around("[ -~]{8,30}", |s| format!("Duplicate entry '{s}' for key 'users.name'")),
        around("[a-z0-9._+-]{6,20}@[a-z0-9]{3,10}\\.[a-z]{2,5}", str::to_owned),
        around("4[0-9]{14}", with_check_digit),
    ]
}

fn no_part_of(secret: &str, text: &str) -> bool {
    let secret: Vec<char> = secret.chars().collect();
    secret.windows(6).all(|part| !text.contains(&part.iter().collect::<String>()))
}

/// Text of the pieces that rules look for, so that they meet in odd ways.
fn jumble() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~]{0,6}",
        prop::sample::select(vec![
            "password",
            "token",
            "secret",
            "pass",
            "=",
            ":",
            "=>",
            " ",
            "\n",
            "'",
            "\"",
            "\\\"",
            "://",
            "a://",
            "@",
            "@h.org",
            ";",
            "?",
            "&",
            "user",
            "Pwd=",
            "Authorization: ",
            "Digest ",
            "Bearer ",
            "[REDACTED]",
            "REDACTED]",
            "Key (a)=(",
            ") already exists",
            "Duplicate entry '",
            "' for key",
            "dup key: {",
            "}",
            "Failing row contains (",
            ").",
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
            "eyJhbGciOi.eyJ",
            "AKIA",
            "IOSFODNN7EXAMPLE",
            "4111 1111 1111 1111",
            "4111",
            " ",
            "sk-",
            "abcdefghijklmnop",
            "jdbc:oracle:thin:",
            "Some(",
            "null",
            ",",
            "identified by ",
            "cookie: a=",
            "é",
            "\u{202e}",
            "Password(\"",
            "\")",
            "Secret {",
            "bearer ",
            " is ",
            "a1b2c3d4",
            "%3D",
            "%22",
            "%40",
            "&quot;",
            "\\u0022",
            "|\n  ",
            "!!str ",
            "name: ",
            "value: ",
            "mysql -p",
            " -u",
            "sqlplus a/",
            "@//",
            "pin: ",
            "auth ",
            "contraseña: ",
            "$6$",
        ])
        .prop_map(str::to_owned),
        ".{0,5}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    // A semicolon before makes a connection string of what follows, where the next one ends a value.
    // shows: S108 S109
    #[test]
    fn no_part_of_a_generated_secret_is_stored((secret, carrier) in leaks(), before in "[ -:<-~]{0,20}", after in "[ -~]{0,20}") {
        let text = stored(&format!("{before} {carrier} {after}"));
        prop_assert!(no_part_of(&secret, &text), "{secret:?} in {text:?}");
        prop_assert_eq!(stored(&text), text);
    }

    #[test]
    fn sanitizing_twice_changes_nothing_more(text in jumble(), copies in prop_oneof![9 => 1usize..4, 1 => 60usize..100]) {
        let once = stored(&text.repeat(copies));
        prop_assert_eq!(stored(&once), once);
    }

    #[test]
    fn whatever_comes_in_what_goes_out_can_be_stored(text in prop_oneof![jumble(), any::<String>()], class in any::<String>()) {
        let failure = JobFailure::new(class, text);
        let text = DefaultErrorSanitizer::default().sanitize(&failure);
        prop_assert!(text.len() <= Sanitized::MAX_LEN);
        prop_assert!(!text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')));
        prop_assert_eq!(String::from(Sanitized::new(&DefaultErrorSanitizer::default(), &failure)), text.as_str());
        let again = JobFailure::new(failure.class().to_owned(), text.clone());
        prop_assert_eq!(DefaultErrorSanitizer::default().sanitize(&again), text);
    }
}
