//! The checks when a store is opened: on a server of its own, which asks for a password and is no replica set.

mod own_server;

use mongodb::bson::doc;
use own_server::{OwnServer, login, url, user};
use ratchet_api::{StoreError, StoreErrorKind};
use ratchet_store_mongodb::{MongoOptions, MongoStore};

async fn refuses(server: &OwnServer, login: &str, migrate: bool) -> StoreError {
    let options = MongoOptions::default().database("jobs").migrate(migrate);
    let refused = MongoStore::connect(&server.url(login), options).await;
    let Err(error) = refused else { panic!("the store opens") };
    let whole = format!("{error} {error:?}");
    assert!(!whole.contains("hidden") && !whole.contains("s3cret"), "{whole}");
    error
}

#[tokio::test]
async fn what_a_server_or_a_user_lacks_is_named_with_the_fix() {
    let server = OwnServer::alone().await;
    let admin = server.admin(&server.make_root().await).await;
    let on_jobs = |role: &str| doc! { "role": role, "db": "jobs" };
    admin.run_command(user("hidden_reader", &[on_jobs("read")])).await.expect("a user is made");
    admin.run_command(user("hidden_writer", &[on_jobs("readWrite")])).await.expect("a user is made");

    let error = refuses(&server, &login("hidden_writer"), true).await;
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    assert!(error.to_string().contains("run it as a replica set, also with one member"), "{error}");

    let error = refuses(&server, &login("hidden_reader"), false).await;
    assert_eq!(error.kind(), StoreErrorKind::Other);
    let said = error.to_string();
    assert!(said.contains("lacks rights: insert, update, remove on scheduler_job,"), "{said}");
    assert!(said.contains("give it the role `readWrite` on the database"), "{said}");

    let error = refuses(&server, "hidden_writer:wrong@", false).await;
    assert!(error.to_string().contains("refuses the user or its password; check both in the URL"), "{error}");
    let error = refuses(&server, "", false).await;
    assert!(error.to_string().contains("lacks a right; give it the role `readWrite`"), "{error}");
}

#[tokio::test]
async fn an_error_of_connecting_says_what_is_wrong_and_never_who_or_where() {
    let server = url();
    let address = server.trim_start_matches("mongodb://").split('/').next().expect("a host").to_owned();
    for (url, what) in [
        ("mongodb://hidden:s3cret@127.0.0.1:1/".to_owned(), "no server listens at this port"),
        ("mongodb://hidden:s3cret@hidden.invalid/".to_owned(), "the name of the host is not known"),
        (format!("mongodb://{address}/?tls=true"), "no TLS connection"),
        (format!("mongodb://{address}/?replicaSet=hidden"), "check `replicaSet` in the URL"),
        ("mongodb://hidden:s3cret:x@127.0.0.1:1/".to_owned(), "the URL is not one of MongoDB"),
        ("http://hidden:s3cret@127.0.0.1/".to_owned(), "the URL does not begin with `mongodb://`"),
    ] {
        let separator = if url.contains('?') { "&" } else { "?" };
        let quick = format!("{url}{separator}serverSelectionTimeoutMS=300");
        let Err(error) = MongoStore::connect(&quick, MongoOptions::default()).await else { panic!("{what}") };
        assert_eq!(error.op(), "connect", "what the user called");
        let said = error.to_string();
        assert!(said.contains(what), "{url}: {said}");
        let whole = format!("{said} {error:?}");
        assert!(!whole.contains("hidden") && !whole.contains("s3cret"), "{whole}");
    }
}
