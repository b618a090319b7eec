//! The migrator's work and its refusals.

use std::error::Error as _;

use ratchet_store_core::migrate::{
    MigrateError, MigrationProgress, MigrationRefusal, Scripts, State, Unusable, Version,
};
use ratchet_store_core::{Namespace, SchemaMigrator};

use crate::harness::list;
use crate::place::{Product, TestDatabase};

const ALL: &[Product] = &Product::ALL;
const MYSQL: &[Product] = &[Product::MySql, Product::MariaDb];

list! {
    ALL =>
        a_fresh_database_gets_every_script_in_order,
        a_second_run_changes_nothing,
        an_upgrade_applies_only_what_is_new,
        migrators_at_once_all_succeed_and_apply_each_script_once,
        a_changed_script_is_refused,
        a_newer_database_is_refused,
        a_record_without_a_checksum_is_refused,
        tables_without_a_version_are_refused_until_they_are_adopted,
        tables_of_others_are_none_of_our_business,
        a_bad_script_is_mended_and_the_next_run_finishes,
        a_schema_made_by_hand_is_known,
        two_prefixes_share_one_database;
    MYSQL =>
        a_script_that_was_changed_where_it_is_applied_is_refused,
        a_statement_that_the_server_refused_is_not_taken_for_done,
        a_statement_whose_answer_was_lost_is_settled_whether_it_happened_or_not;
    &[Product::Postgres] =>
        a_server_that_cannot_be_reached_is_an_error_without_the_password,
        a_user_who_is_refused_is_not_named,
        a_server_that_only_reads_is_no_place_for_a_store,
        a_right_that_a_store_needs_is_asked_for;
}

/// Text that every dialect understands. The row shows whether a script ran twice.
pub(crate) const FIRST: (&str, &str) = (
    "V001__first.sql",
    "CREATE TABLE ratchet.first (x int); -- a comment; with a 'quote\nINSERT INTO ratchet.first VALUES (1);",
);
pub(crate) const SECOND: (&str, &str) =
    ("V002__second.sql", "CREATE TABLE ratchet.second (x int);\nINSERT INTO ratchet.second VALUES (2);\n");
pub(crate) const THIRD: (&str, &str) = ("V003__third.sql", "ALTER TABLE ratchet.first ADD COLUMN y int");

const FIRST_ROWS: &str = "SELECT count(*) FROM ratchet.first";
/// Counts the notes; their table exists only while a migration is not finished.
const PROGRESS: &str = "SELECT count(*) FROM ratchet.ratchet_schema_progress";
const SECOND_ROWS: &str = "SELECT count(*) FROM ratchet.second";

/// Sets the state of a process that was killed before it could note that the first statement is done. The checksum is
/// SHA-256 of nothing.
pub(crate) const IN_DOUBT: &str = "\
UPDATE ratchet.ratchet_schema_progress
SET done = 0, in_flight = 1, checksum = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'";

pub(crate) fn versions(numbers: &[u32]) -> Vec<Version> {
    numbers.iter().copied().map(Version).collect()
}

/// Ignores the progress.
pub(crate) fn quietly(_: MigrationProgress<'_>) {}

fn refusal(result: Result<Vec<Version>, MigrateError>) -> MigrationRefusal {
    match result {
        Err(MigrateError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

// shows: S177
async fn a_fresh_database_gets_every_script_in_order(place: TestDatabase) {
    let migrator = place.migrator(&[THIRD, FIRST, SECOND]);
    let before = migrator.status().await.unwrap();
    assert_eq!(before.pending().count(), 3);

    let mut told = Vec::new();
    let applied = migrator.migrate(|progress| told.push(progress.to_string())).await.unwrap();

    assert_eq!(applied, versions(&[1, 2, 3]));
    assert_eq!(told[..3], ["applying 001 first", "applied 001 first", "applying 002 second"]);
    assert_eq!(told[3..], ["applied 002 second", "applying 003 third", "applied 003 third"]);
    let mut client = place.connect().await;
    assert_eq!(client.rows("SELECT count(*) FROM ratchet.first WHERE y IS NULL").await, Some(1));
    assert_eq!(client.rows(SECOND_ROWS).await, Some(1));
    assert_eq!(client.versions().await, 3);
    let after = migrator.status().await.unwrap();
    assert!(after.is_current(), "{after}");
    let (State::Applied(first), State::Applied(last)) = (after.entries[0].state, after.entries[2].state)
    else {
        panic!("{after}");
    };
    assert!(first <= last && first.as_millis() > 1_700_000_000_000, "{after}");
}

// shows: S177
async fn a_second_run_changes_nothing(place: TestDatabase) {
    let migrator = place.migrator(&[FIRST, SECOND]);
    migrator.migrate(quietly).await.unwrap();
    let before = migrator.status().await.unwrap().entries;

    assert_eq!(migrator.migrate(|progress| panic!("{progress}")).await.unwrap(), versions(&[]));

    assert_eq!(migrator.status().await.unwrap().entries, before);
    assert_eq!(place.connect().await.rows(FIRST_ROWS).await, Some(1));
}

// shows: S177
async fn an_upgrade_applies_only_what_is_new(place: TestDatabase) {
    place.migrator(&[FIRST]).migrate(quietly).await.unwrap();
    let newer = place.migrator(&[FIRST, SECOND, THIRD]);
    let pending: Vec<String> =
        newer.status().await.unwrap().pending().map(|entry| entry.version.clone()).collect();
    assert_eq!(pending, ["002", "003"]);

    assert_eq!(newer.migrate(quietly).await.unwrap(), versions(&[2, 3]));
    assert_eq!(place.connect().await.rows(FIRST_ROWS).await, Some(1));
}

// shows: S177
async fn migrators_at_once_all_succeed_and_apply_each_script_once(place: TestDatabase) {
    let nodes: Vec<_> = (0..4)
        .map(|_| {
            let migrator = place.migrator(&[FIRST, SECOND, THIRD]);
            tokio::spawn(async move { migrator.migrate(quietly).await })
        })
        .collect();
    let mut applied = Vec::new();
    for node in nodes {
        applied.extend(node.await.unwrap().unwrap());
    }
    applied.sort();
    assert_eq!(applied, versions(&[1, 2, 3]));
    let mut client = place.connect().await;
    assert_eq!(client.rows(FIRST_ROWS).await, Some(1));
    assert_eq!(client.rows(SECOND_ROWS).await, Some(1));
    assert_eq!(client.versions().await, 3);
}

// shows: S177
async fn a_changed_script_is_refused(place: TestDatabase) {
    place.migrator(&[FIRST]).migrate(quietly).await.unwrap();
    let changed = place.migrator(&[("V001__first.sql", "CREATE TABLE ratchet.first (z int)"), SECOND]);

    let refused = refusal(changed.migrate(quietly).await);
    assert!(matches!(&refused, MigrationRefusal::Changed { version: Version(1), .. }), "{refused}");
    assert_eq!(changed.status().await.unwrap().refusal, Some(refused));
    assert_eq!(place.connect().await.rows(SECOND_ROWS).await, None, "something was applied all the same");
}

async fn a_newer_database_is_refused(place: TestDatabase) {
    place.migrator(&[FIRST, SECOND]).migrate(quietly).await.unwrap();
    let older = place.migrator(&[FIRST]);

    let refused = refusal(older.migrate(quietly).await);
    assert_eq!(refused, MigrationRefusal::Newer { version: "002".into(), newest: Some(Version(1)) });
    let status = older.status().await.unwrap();
    assert!(matches!(status.entries[1].state, State::Unknown(_)), "{status}");
    assert!(!status.is_current());
}

async fn a_record_without_a_checksum_is_refused(place: TestDatabase) {
    place.migrator(&[FIRST]).migrate(quietly).await.unwrap();
    place.connect().await.run("UPDATE ratchet.ratchet_schema_version SET checksum = ''").await;

    let refused = refusal(place.migrator(&[FIRST, SECOND]).migrate(quietly).await);
    assert!(matches!(refused, MigrationRefusal::NoChecksum { version: Version(1), .. }), "{refused}");
}

async fn tables_without_a_version_are_refused_until_they_are_adopted(place: TestDatabase) {
    let migrator = place.migrator(&[FIRST, SECOND]);
    migrator.migrate(quietly).await.unwrap();
    let mut client = place.connect().await;
    client.run("DROP TABLE ratchet.second").await;
    client.run("DELETE FROM ratchet.ratchet_schema_version").await;

    assert_eq!(
        refusal(migrator.migrate(quietly).await),
        MigrationRefusal::Untracked { tables: vec!["first".into()] }
    );
    migrator.adopt(Version(1)).await.unwrap();
    assert_eq!(client.rows(PROGRESS).await, None);
    assert_eq!(migrator.migrate(quietly).await.unwrap(), versions(&[2]));

    assert_eq!(client.rows(FIRST_ROWS).await, Some(1), "the adopted script was run again");
    let again = migrator.adopt(Version(1)).await;
    assert!(matches!(again, Err(MigrateError::Refused(MigrationRefusal::Tracked { .. }))), "{again:?}");
    let unknown = migrator.adopt(Version(9)).await;
    assert!(matches!(unknown, Err(MigrateError::Refused(MigrationRefusal::Unknown { .. }))), "{unknown:?}");
}

async fn tables_of_others_are_none_of_our_business(place: TestDatabase) {
    place
        .migrator(&[("V001__users.sql", "CREATE TABLE ratchet.users (x int)")])
        .migrate(quietly)
        .await
        .unwrap();
    let mut client = place.connect().await;
    client.run("DROP TABLE ratchet.ratchet_schema_version").await;

    assert_eq!(place.migrator(&[FIRST]).migrate(quietly).await.unwrap(), versions(&[1]));
    assert_eq!(client.rows("SELECT count(*) FROM ratchet.users").await, Some(0));
}

async fn a_bad_script_is_mended_and_the_next_run_finishes(place: TestDatabase) {
    let bad = "CREATE TABLE ratchet.second (x int); INSERT INTO ratchet.second VALUES (2); \
               INSERT INTO ratchet.missing VALUES (1); CREATE TABLE ratchet.later (x int)";
    let mended = "CREATE TABLE ratchet.second (x int); INSERT INTO ratchet.second VALUES (2); \
                  CREATE TABLE ratchet.later (x int)";

    let failed = place.migrator(&[FIRST, ("V002__second.sql", bad)]).migrate(quietly).await.unwrap_err();

    let MigrateError::Failed { version, statement, .. } = failed else { panic!("{failed}") };
    let mut client = place.connect().await;
    assert_eq!(version, Version(2));
    assert_eq!(client.versions().await, 1);
    if place.product.undoes_scripts() {
        assert_eq!(statement, None);
        assert_eq!(client.rows(SECOND_ROWS).await, None, "half a script stayed");
    } else {
        assert_eq!(statement, Some(3));
        assert_eq!(client.rows(SECOND_ROWS).await, Some(1));
    }
    // The same script again fails in the same way and repeats nothing.
    let again = place.migrator(&[FIRST, ("V002__second.sql", bad)]).migrate(quietly).await;
    assert!(matches!(again, Err(MigrateError::Failed { version: Version(2), .. })), "{again:?}");

    let mended = place.migrator(&[FIRST, ("V002__second.sql", mended)]);
    assert_eq!(mended.migrate(quietly).await.unwrap(), versions(&[2]));
    assert_eq!(client.rows(SECOND_ROWS).await, Some(1));
    assert_eq!(client.rows("SELECT count(*) FROM ratchet.later").await, Some(0));
    assert_eq!(client.rows(PROGRESS).await, None);
    assert!(mended.status().await.unwrap().is_current());
}

async fn a_script_that_was_changed_where_it_is_applied_is_refused(place: TestDatabase) {
    let bad = "CREATE TABLE ratchet.second (x int); INSERT INTO ratchet.missing VALUES (1)";
    place.migrator(&[FIRST, ("V002__second.sql", bad)]).migrate(quietly).await.unwrap_err();

    let other = place.migrator(&[FIRST, ("V002__second.sql", "CREATE TABLE ratchet.other (x int)")]);
    let refused = refusal(other.migrate(quietly).await);
    assert_eq!(refused, MigrationRefusal::ChangedMidway { version: Version(2), statements: 1 });
    assert_eq!(place.connect().await.rows("SELECT count(*) FROM ratchet.other").await, None);
}

async fn a_statement_that_the_server_refused_is_not_taken_for_done(place: TestDatabase) {
    let exists = "ALTER TABLE ratchet.first ADD COLUMN x int";
    let migrator = place.migrator(&[FIRST, ("V002__x.sql", exists)]);
    for _ in 0..2 {
        let failed = migrator.migrate(quietly).await;
        assert!(matches!(failed, Err(MigrateError::Failed { statement: Some(1), .. })), "{failed:?}");
    }
}

async fn a_statement_whose_answer_was_lost_is_settled_whether_it_happened_or_not(place: TestDatabase) {
    let bad = "CREATE TABLE ratchet.second (x int); INSERT INTO ratchet.missing VALUES (1)";
    place.migrator(&[FIRST, ("V002__second.sql", bad)]).migrate(quietly).await.unwrap_err();
    let mut client = place.connect().await;
    client.run(IN_DOUBT).await;

    let failed = place.migrator(&[FIRST, ("V002__second.sql", bad)]).migrate(quietly).await;
    assert!(matches!(failed, Err(MigrateError::Failed { statement: Some(2), .. })), "{failed:?}");

    client.run(IN_DOUBT).await;
    client.run("DROP TABLE ratchet.second").await;
    assert_eq!(place.migrator(&[FIRST, SECOND]).migrate(quietly).await.unwrap(), versions(&[2]));
    assert_eq!(client.rows(SECOND_ROWS).await, Some(1));
}

// shows: S175
async fn a_schema_made_by_hand_is_known(place: TestDatabase) {
    let files = [FIRST, SECOND, THIRD];
    let scripts = Scripts::new(&files).unwrap();
    let text = scripts.by_hand(place.product.dialect(), &place.namespace).unwrap();
    place.connect().await.run(text.leak()).await;

    let migrator = place.migrator(&files);
    let status = migrator.status().await.unwrap();
    assert!(status.is_current(), "{status}");
    assert_eq!(migrator.migrate(quietly).await.unwrap(), versions(&[]));
}

async fn two_prefixes_share_one_database(place: TestDatabase) {
    let prefix = |end: &str| Namespace::prefix(format!("{}_{end}_", place.name)).unwrap();
    let (one, other) = (prefix("a"), prefix("b"));
    for namespace in [&one, &other] {
        let migrator = place.migrator_in(namespace.clone(), &[FIRST]);
        assert_eq!(migrator.migrate(quietly).await.unwrap(), versions(&[1]));
        assert_eq!(migrator.migrate(quietly).await.unwrap(), versions(&[]));
    }
    for namespace in [&one, &other] {
        let mut client = place.connect().await.within(namespace);
        assert_eq!(client.rows(FIRST_ROWS).await, Some(1));
        client.run("DROP TABLE ratchet.first").await;
        client.run("DROP TABLE ratchet.ratchet_schema_version").await;
    }
}

async fn a_server_that_cannot_be_reached_is_an_error_without_the_password(place: TestDatabase) {
    let scripts = Scripts::new(&[FIRST]).unwrap();
    // Nobody listens on port 1.
    let nobody = place.postgres().port(1).password("hunter2");
    let migrator = SchemaMigrator::postgres(nobody, place.namespace.clone(), scripts);
    let error = migrator.migrate(quietly).await.unwrap_err();
    assert!(matches!(error, MigrateError::Connect(_)), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

async fn a_user_who_is_refused_is_not_named(place: TestDatabase) {
    let scripts = Scripts::new(&[FIRST]).unwrap();
    let nobody = place.postgres().username("hidden_user").password("hunter2");
    let migrator = SchemaMigrator::postgres(nobody, place.namespace.clone(), scripts);
    let error = migrator.migrate(quietly).await.unwrap_err();
    assert!(error.to_string().contains("does not let this user in; check the user"), "{error}");
    assert!(error.source().is_none(), "the server's words name the user: {error:?}");
    assert!(!format!("{error:?}").contains("hidden_user"));
}

async fn a_server_that_only_reads_is_no_place_for_a_store(place: TestDatabase) {
    place.migrator(&[FIRST]).migrate(quietly).await.unwrap();
    let reading = place.postgres().options([("default_transaction_read_only", "on")]);
    let scripts = Scripts::new(&[FIRST]).unwrap();
    let migrator = SchemaMigrator::postgres(reading, place.namespace.clone(), scripts);
    assert!(migrator.status().await.unwrap().is_current(), "looking is allowed");
    let error = migrator.migrate(quietly).await.unwrap_err();
    assert!(matches!(error, MigrateError::Unusable(Unusable::ReadOnly)), "{error}");
    for migrate in [false, true] {
        let error = migrator.ensure("connect", migrate).await.unwrap_err();
        assert!(error.is_transient(), "it may write soon: {error}");
    }
}

async fn a_right_that_a_store_needs_is_asked_for(place: TestDatabase) {
    place.migrator(&[FIRST]).migrate(quietly).await.unwrap();
    let (mut owner, name) = (place.connect().await, format!("{}_user", place.name));
    for statement in [
        "CREATE ROLE {user} LOGIN",
        "GRANT USAGE ON SCHEMA ratchet TO {user}",
        "GRANT SELECT ON ratchet.ratchet_schema_version TO {user}",
        "GRANT SELECT, INSERT, UPDATE ON ratchet.first TO {user}",
    ] {
        owner.run(statement.replace("{user}", &name).leak()).await;
    }
    let scripts = Scripts::new(&[FIRST]).unwrap();
    let user = place.postgres().username(&name);
    let migrator = SchemaMigrator::postgres(user, place.namespace.clone(), scripts);
    let error = migrator.ensure("connect", false).await.unwrap_err();
    owner.run("GRANT DELETE ON ratchet.first TO {user}".replace("{user}", &name).leak()).await;
    let then = migrator.ensure("connect", false).await;
    owner.run("DROP OWNED BY {user}; DROP ROLE {user}".replace("{user}", &name).leak()).await;
    assert!(error.to_string().contains("lacks rights: DELETE on first; GRANT "), "{error}");
    then.unwrap();
}
