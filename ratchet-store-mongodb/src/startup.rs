//! Checks when a store is opened that the server and the user have all that a store needs, before the first job does.

use bson::{Bson, Document, doc};
use futures::future::try_join;
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};

use crate::client::MongoStore;
use crate::error::During;

const OP: &str = "connect";

/// The rights that a store needs on every collection.
const ACTIONS: [&str; 4] = ["find", "insert", "update", "remove"];
/// The rights that a store needs on the notices.
const ACTIONS_ON_NOTICES: [&str; 2] = ["find", "insert"];

/// Checks that the server has transactions and that the user may read and write. Returns whether nodes can notify
/// each other of new work.
pub(crate) async fn check(store: &MongoStore) -> StoreResult<bool> {
    let ask = |question| async { store.database.run_command(question).await.during(OP) };
    let (hello, status) =
        try_join(ask(doc! { "hello": 1 }), ask(doc! { "connectionStatus": 1, "showPrivileges": true }))
            .await?;
    let collections: Vec<&str> = store.collections.all().map(|collection| collection.name()).collect();
    let lacking = lacking(&status, store.database.name(), &ACTIONS, &collections);
    if !lacking.is_empty() {
        let advice = "give it the role `readWrite` on the database";
        let detail = format!("the user lacks rights: {}; {advice}", lacking.join(", "));
        return Err(StoreError::new(StoreErrorKind::Other, OP, detail));
    }
    if !has_transactions(&hello) {
        let advice = "the server has no transactions: run it as a replica set, also with one member";
        return Err(StoreError::new(StoreErrorKind::Unsupported, OP, advice));
    }
    if !store.wakeups {
        return Ok(false);
    }
    let hindrance = hindrance(store, &status).await?;
    if let Some(hindrance) = &hindrance {
        tracing::warn!(hindrance, "no wakeups: work of other nodes is found by polling");
    }
    Ok(hindrance.is_none())
}

/// The reason why nodes cannot notify each other of new work; `None` if they can.
async fn hindrance(store: &MongoStore, status: &Document) -> StoreResult<Option<String>> {
    let notices = store.notices.name();
    let lacking = lacking(status, store.database.name(), &ACTIONS_ON_NOTICES, &[notices]);
    if !lacking.is_empty() {
        return Ok(Some(format!("the user lacks rights: {}", lacking.join(", "))));
    }
    match store.notices.are_capped().await {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(format!("the database has no capped collection {notices}"))),
        Err(error) if error.kind() == StoreErrorKind::Other => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Whether the server has transactions: members of a replica set do, and routers of a sharded cluster.
fn has_transactions(hello: &Document) -> bool {
    hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid")
}

/// Each right that is missing, and on what. Empty if no login is required.
fn lacking(status: &Document, database: &str, actions: &[&str], collections: &[&str]) -> Vec<String> {
    let Ok(authentication) = status.get_document("authInfo") else { return Vec::new() };
    let list = |name| authentication.get_array(name).map(Vec::as_slice).unwrap_or_default();
    if list("authenticatedUsers").is_empty() {
        return Vec::new();
    }
    let privileges: Vec<&Document> =
        list("authenticatedUserPrivileges").iter().filter_map(Bson::as_document).collect();
    let mut lacking = Vec::new();
    for collection in collections {
        let granted = |action: &&&str| {
            privileges.iter().any(|privilege| allows(privilege, action, database, collection))
        };
        let missing: Vec<&str> = actions.iter().filter(|action| !granted(action)).copied().collect();
        if !missing.is_empty() {
            lacking.push(format!("{} on {collection}", missing.join(", ")));
        }
    }
    lacking
}

/// Whether a privilege allows the action on the collection. An empty name stands for all.
fn allows(privilege: &Document, action: &str, database: &str, collection: &str) -> bool {
    let Ok(resource) = privilege.get_document("resource") else { return false };
    let covers = |part, name| resource.get_str(part).is_ok_and(|of| of.is_empty() || of == name);
    let everything = resource.get_bool("anyResource").unwrap_or_default();
    let actions = privilege.get_array("actions").map(Vec::as_slice).unwrap_or_default();
    actions.iter().any(|allowed| allowed.as_str() == Some(action))
        && (everything || covers("db", database) && covers("collection", collection))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(privileges: Vec<Document>) -> Document {
        let user = doc! { "user": "hidden", "db": "admin" };
        doc! { "authInfo": { "authenticatedUsers": [user], "authenticatedUserPrivileges": privileges } }
    }

    fn may(resource: Document, actions: &[&str]) -> Document {
        doc! { "resource": resource, "actions": actions }
    }

    #[test]
    fn a_right_counts_where_it_was_given() {
        let on = |db: &str, collection: &str| doc! { "db": db, "collection": collection };
        let all = &ACTIONS[..];
        for privileges in [
            vec![may(on("jobs", ""), all)],
            vec![may(on("", ""), all)],
            vec![may(doc! { "anyResource": true }, all)],
            vec![
                may(on("jobs", "a"), all),
                may(on("jobs", ""), &["find", "remove"]),
                may(on("jobs", "b"), all),
            ],
        ] {
            assert_eq!(lacking(&status(privileges), "jobs", &ACTIONS, &["a", "b"]), Vec::<String>::new());
        }
        for (privileges, missing) in [
            (
                vec![may(on("jobs", ""), &["find"])],
                ["insert, update, remove on a", "insert, update, remove on b"],
            ),
            (
                vec![may(on("other", ""), all)],
                ["find, insert, update, remove on a", "find, insert, update, remove on b"],
            ),
            (
                vec![may(doc! { "cluster": true }, all)],
                ["find, insert, update, remove on a", "find, insert, update, remove on b"],
            ),
        ] {
            assert_eq!(lacking(&status(privileges), "jobs", &ACTIONS, &["a", "b"]), missing);
        }
        assert_eq!(
            lacking(
                &status(vec![may(on("jobs", "a"), all), may(on("jobs", ""), &all[..3])]),
                "jobs",
                &ACTIONS,
                &["a", "b"]
            ),
            ["remove on b"]
        );
    }

    #[test]
    fn where_nobody_logs_in_everybody_may_do_everything() {
        let status = doc! { "authInfo": { "authenticatedUsers": [], "authenticatedUserPrivileges": [] } };
        assert_eq!(lacking(&status, "jobs", &ACTIONS, &["a"]), Vec::<String>::new());
    }

    #[test]
    fn a_server_alone_has_no_transactions() {
        assert!(has_transactions(&doc! { "setName": "rs0" }));
        assert!(has_transactions(&doc! { "msg": "isdbgrid" }));
        assert!(!has_transactions(&doc! { "isWritablePrimary": true }));
    }
}
