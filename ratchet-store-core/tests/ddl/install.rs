//! Clean install, migrations and the text for other tools: three ways to one schema.

use ratchet_store_core::migrate::{Scripts, Version};
use ratchet_store_core::{Namespace, SchemaMigrator};

use crate::harness::list;
use crate::place::{Product, TestDatabase};
use crate::{ALL, catalogue, text};

const MYSQL: &[Product] = &[Product::MySql, Product::MariaDb];

list! {
    ALL =>
        the_migrations_compose_to_the_clean_install,
        the_text_for_other_tools_makes_the_clean_install,
        names_and_keys_are_compared_byte_for_byte;
    MYSQL =>
        two_prefixes_share_one_database,
        json_is_kept_as_it_was_given_and_other_text_is_refused;
}

/// Runs the file of the clean install in a namespace, as a person would.
pub(crate) async fn install(place: &TestDatabase) {
    place.connect().await.run(text::of(place.product).install()).await;
}

/// Checks that the migrator finds nothing to do.
pub(crate) async fn is_current(place: &TestDatabase) {
    let migrator = place.migrator(&text::of(place.product).migrations());
    let status = migrator.status().await.unwrap();
    assert!(status.is_current(), "{status}");
    assert_eq!(migrator.migrate(|progress| panic!("{progress}")).await.unwrap(), []);
}

/// Compares the catalogue with that of a clean install.
pub(crate) async fn equals_clean_install(place: &TestDatabase) {
    let twin = place.twin();
    install(&twin).await;
    let (made, wanted) = (catalogue::of(place).await, catalogue::of(&twin).await);
    let differ = |from: &[String], other: &[String]| {
        from.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>().join("\n")
    };
    assert!(made == wanted, "too much:\n{}\nmissing:\n{}", differ(&made, &wanted), differ(&wanted, &made));
    is_current(place).await;
    is_current(&twin).await;
}

// shows: S174 S176 S188
async fn the_migrations_compose_to_the_clean_install(place: TestDatabase) {
    let migrations = text::of(place.product).migrations();
    let applied = place.migrator(&migrations).migrate(|_| {}).await.unwrap();
    assert_eq!(applied.len(), migrations.len());
    equals_clean_install(&place).await;
}

async fn the_text_for_other_tools_makes_the_clean_install(place: TestDatabase) {
    let scripts = Scripts::new(&text::of(place.product).migrations()).unwrap();
    let by_hand = scripts.by_hand(place.product.dialect(), &place.namespace).unwrap();
    place.connect().await.run(by_hand.leak()).await;
    equals_clean_install(&place).await;
}

async fn names_and_keys_are_compared_byte_for_byte(place: TestDatabase) {
    install(&place).await;
    let mut client = place.connect().await;
    // Two of them look alike: one letter, or a letter and an accent.
    client
        .run(
            "INSERT INTO ratchet.scheduler_lock (lock_name, term, locked_at, expires_at) \
             SELECT n.name, 1, q.updated_at, q.updated_at FROM \
             (SELECT 'a' AS name UNION ALL SELECT 'a ' UNION ALL SELECT 'A' UNION ALL SELECT '\u{e1}' UNION ALL \
              SELECT 'a\u{301}' UNION ALL SELECT ' a') n \
             CROSS JOIN (SELECT max(applied_at) AS updated_at FROM ratchet.ratchet_schema_version) q",
        )
        .await;
    assert_eq!(client.rows("SELECT count(*) FROM ratchet.scheduler_lock").await, Some(6));
    let found = "SELECT lock_name FROM ratchet.scheduler_lock WHERE lock_name = :name";
    for name in ["a", "a ", "A", "\u{e1}", "a\u{301}", " a"] {
        assert_eq!(client.texts(found, &[name]).await, [name]);
    }
    let sorted = client.texts("SELECT lock_name FROM ratchet.scheduler_lock ORDER BY lock_name", &[]).await;
    assert_eq!(sorted, [" a", "A", "a", "a ", "a\u{301}", "\u{e1}"]);
}

async fn two_prefixes_share_one_database(place: TestDatabase) {
    place.connect().await.run("CREATE DATABASE ratchet").await;
    for prefix in ["one_", "two_"] {
        let scripts = Scripts::new(&text::of(place.product).migrations()).unwrap();
        let server = place.mysql().database(&place.name);
        let migrator = SchemaMigrator::mysql(server, Namespace::prefix(prefix).unwrap(), scripts);
        assert_eq!(migrator.migrate(|_| {}).await.unwrap(), [Version(1)]);
        assert!(migrator.status().await.unwrap().is_current());
    }
}

async fn json_is_kept_as_it_was_given_and_other_text_is_refused(place: TestDatabase) {
    install(&place).await;
    let mut client = place.connect().await;
    let archive = "INSERT INTO ratchet.scheduler_job_archive \
        (original_job_id, final_status, job_type, priority, queue, payload, target, method, tags, total_attempts, \
         created_at, terminated_at, archived_at) \
        SELECT UNHEX(LPAD(HEX(n.no), 32, '0')), 'FAILED', 'SINGLE', 2, 'q', n.payload, 't', 'm', '[]', 1, \
         UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM ";
    let good = "(SELECT 1 AS no, '1e400' AS payload UNION ALL SELECT 2, '\"\\\\ud800\"' UNION ALL \
        SELECT 3, CONCAT(REPEAT('[', 127), REPEAT(']', 127)) UNION ALL SELECT 4, ' \\n\\t{\"a\": 1, \"a\":2} ' UNION ALL \
        SELECT 5, 'null' UNION ALL SELECT 6, '-0') n";
    client.run([archive, good].concat().leak()).await;
    let kept =
        client.texts("SELECT payload FROM ratchet.scheduler_job_archive ORDER BY original_job_id", &[]).await;
    assert_eq!(kept[..2], ["1e400", r#""\ud800""#]);
    assert_eq!((kept[2].len(), kept[3].as_str()), (254, " \n\t{\"a\": 1, \"a\":2} "));
    for bad in ["(SELECT 7 AS no, '' AS payload) n", "(SELECT 7 AS no, 'x' AS payload) n"] {
        assert!(client.try_run([archive, bad].concat().leak()).await.is_err(), "{bad}");
    }
}
