//! Behind the real PgBouncer in transaction mode, with few server connections for many clients.

mod common;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use common::harness::PgHarness;
use common::node::{LEASE, Node, insert};
use common::pooled_url;
use ratchet_api::store::{
    ClaimRequest, JobClaimStore as _, JobCrudStore as _, JobTerminalStore as _, NodeStore as _,
};
use ratchet_api::{End, Enlist as _, Inserted, JobId, NodeInfo, Outcome, Owner, StoreErrorKind, Submission};
use ratchet_servers::Server;
use ratchet_store_postgres::{Pooler, PostgresStore};
use ratchet_tck::fixture::job;
use ratchet_tck::{StoreHarness, cases, run_case};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

/// The number of suite cases that run at a time: three times as many clients as PgBouncer has server connections.
const AT_ONCE: usize = 4;

#[test]
fn the_whole_suite_passes() {
    let harness: Arc<dyn StoreHarness> =
        Arc::new(PgHarness { server: Server::Pgbouncer, pooler: Pooler::Transaction });
    let left = Mutex::new(cases::all());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(case) = next else { return };
                    if let Err(failure) = run_case(&harness, case) {
                        failed.lock().unwrap().push(format!("{}: {}", case.id(), failure.0));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_on_few_server_connections_take_each_job_once() {
    const NODES: usize = 8;
    const JOBS: usize = 400;
    let node = Arc::new(Node::new().await);
    let nodes = (0..NODES).map(|_| {
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            let store = node.peer(&pooled_url(), |options| options.pooler = Pooler::Transaction).await;
            let owner = Owner::incarnate("node");
            store.join(&NodeInfo::new(owner.clone()), LEASE).await.expect("the node joins");
            insert(&store, (0..JOBS / NODES).map(|_| job())).await;
            let mut done = Vec::new();
            loop {
                let claims = store.claim(&ClaimRequest::new(owner.clone(), 7)).await.expect("claim answers");
                if claims.is_empty() {
                    return done;
                }
                let end = |id, fence| Outcome::new(id, fence, End::Succeeded { result: None });
                let outcomes: Vec<Outcome> = claims.iter().map(|claim| end(claim.id, claim.fence)).collect();
                let verdicts = store.commit(&owner, &outcomes).await.expect("commit answers");
                assert!(verdicts.iter().all(ratchet_api::Verdict::is_settled), "{verdicts:?}");
                done.extend(claims.into_iter().map(|claim| claim.id));
            }
        })
    });
    let mut taken: Vec<JobId> = Vec::new();
    for node in nodes.collect::<Vec<_>>() {
        taken.extend(node.await.expect("no node panics"));
    }
    // Each node claims until it finds nothing, and the last claim came after the last insert.
    assert_eq!(taken.len(), JOBS);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), JOBS, "no job was taken twice");
    Arc::into_inner(node).expect("every node is gone").close().await;
}

#[tokio::test]
async fn a_store_that_was_not_told_of_the_pooler_does_not_open() {
    let node = Node::new().await;
    let opened = PostgresStore::connect(&pooled_url(), node.place.options()).await;
    let error = opened.expect_err("the pooler is found");
    assert_eq!(error.kind(), StoreErrorKind::Other);
    assert!(error.to_string().contains("`pooler`"), "{error}");
    node.close().await;
}

/// Shows why the option exists, and that this PgBouncer does share its connections.
#[tokio::test]
async fn two_stores_that_name_their_statements_meet_on_one_server_connection() {
    const STORES: usize = 50;
    let node = Node::new().await;
    // More than the pooler has connections, which the other tests use at the same time.
    for _ in 0..STORES {
        let store = node.peer(&pooled_url(), |options| options.pooler = Pooler::Session).await;
        let found = store.find(&[JobId::generate()]).await;
        if found.is_err() || store.claim(&node.claiming(1)).await.is_err() {
            return node.close().await;
        }
    }
    panic!("statements with names work behind this pooler");
}

#[tokio::test]
async fn jobs_are_stored_in_a_transaction_of_the_user_that_comes_through_the_pooler() {
    let node = Node::new().await;
    let store = node.peer(&pooled_url(), |options| options.pooler = Pooler::Transaction).await;
    let server: PgConnectOptions = pooled_url().parse().expect("a URL");
    let mut user = PgConnection::connect_with(&server.extra_float_digits(None)).await.expect("it answers");
    let (kept, dropped) = (Submission::single(job()), Submission::single(job()));
    for (submission, commits) in [(&kept, true), (&dropped, false)] {
        let mut transaction = user.begin().await.expect("a transaction begins");
        let inserted = transaction.insert_in(&store, std::slice::from_ref(submission)).await;
        assert_eq!(inserted.expect("insert answers"), [Inserted::New]);
        match commits {
            true => transaction.commit().await.expect("it commits"),
            false => transaction.rollback().await.expect("it rolls back"),
        }
    }
    let ids = [kept.id().unwrap(), dropped.id().unwrap()];
    let found = store.find(&ids).await.expect("find answers");
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    node.close().await;
}
