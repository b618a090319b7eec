//! The effects on callers and connections when the server, the network or the caller gives up.

mod common;

use std::time::Duration;

use common::node::{Node, until};
use common::proxy::{Cut, Proxy};
use common::user::User;
use common::{pooled_url, url};
use futures::future::join_all;
use ratchet_api::store::{
    ExecutionStore as _, JobBulkStore as _, JobClaimStore as _, JobCrudStore as _, JobTerminalStore as _,
};
use ratchet_api::{Effect, End, Inserted, JobClaim, JobId, Outcome, StoreResult, Submission, Verdict};
use ratchet_store_postgres::{Pooler, PostgresOptions, PostgresStore};
use ratchet_tck::fixture::job;
use sqlx::PgConnection;

/// Short, so that a test that waits for it is quick; long enough for a busy machine to answer.
const PATIENCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_call_that_takes_too_long_fails_and_leaves_nothing_behind() {
    takes_too_long(&url(), Pooler::None).await;
}

#[tokio::test]
async fn behind_a_pooler_as_well_a_call_that_takes_too_long_leaves_nothing_behind() {
    takes_too_long(&pooled_url(), Pooler::Transaction).await;
}

async fn takes_too_long(url: &str, pooler: Pooler) {
    const CONNECTIONS: usize = 2;
    let node = Node::new().await;
    let change = |options: &mut PostgresOptions| {
        options.pooler = pooler;
        options.operation_timeout = PATIENCE;
        options.connections = CONNECTIONS;
    };
    let store = node.peer(url, change).await;
    let mut blocker = lock_node(&node).await;
    for _ in 0..2 {
        let calls = (0..CONNECTIONS).map(|_| async { transient(store.claim(&node.claiming(1)).await) });
        join_all(calls).await;
    }
    // Operations that need no locked row work meanwhile.
    store.find(&[JobId::generate()]).await.expect("find answers");
    // The server has noticed that the callers of the claims are gone, although the lock is still held.
    let mut watcher = node.session().await;
    until(async || waiting(&mut watcher, &node).await.is_empty()).await;
    let left = sessions(&mut watcher, &node).await;
    assert!(left.len() <= CONNECTIONS + 1, "the store's, and one of the test itself: {left:?}");

    sqlx::raw_sql("ROLLBACK").execute(&mut blocker).await.expect("the lock goes");
    store.claim(&node.claiming(1)).await.expect("claim answers");
    store.close().await;
    node.close().await;
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_nothing_behind() {
    let node = Node::new().await;
    let store = node.peer(&url(), |options| options.connections = 1).await;
    let mut blocker = lock_node(&node).await;
    let mut watcher = node.session().await;
    let request = node.claiming(1);
    tokio::select! {
        _ = store.claim(&request) => panic!("the claim waits for the lock"),
        () = until(async || !waiting(&mut watcher, &node).await.is_empty()) => {}
    }
    store.find(&[JobId::generate()]).await.expect("the only connection is free again");
    until(async || waiting(&mut watcher, &node).await.is_empty()).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut blocker).await.expect("the lock goes");
    store.close().await;
    node.close().await;
}

#[tokio::test]
async fn one_call_pays_for_connections_that_were_killed_while_idle() {
    const CONNECTIONS: usize = 3;
    let node = Node::new().await;
    let store = node.peer(&url(), |options| options.connections = CONNECTIONS).await;
    let mut watcher = use_all(&node, &store, CONNECTIONS).await;
    let idle = sessions(&mut watcher, &node).await;
    assert!(idle.len() >= CONNECTIONS, "{idle:?}");
    kill(&mut watcher, &idle).await;
    transient(store.claim(&node.claiming(1)).await);
    for _ in 0..CONNECTIONS {
        store.claim(&node.claiming(1)).await.expect("claim answers");
    }
    store.close().await;
    node.close().await;
}

#[tokio::test]
async fn one_call_pays_for_connections_that_lead_nowhere() {
    const CONNECTIONS: usize = 3;
    let (node, proxy) = (Node::new().await, Proxy::to(&url()));
    let change = |options: &mut PostgresOptions| {
        options.operation_timeout = PATIENCE;
        options.connections = CONNECTIONS;
    };
    let store = node.peer(&proxy.url, change).await;
    use_all(&node, &store, CONNECTIONS).await;
    proxy.silence();
    transient(store.claim(&node.claiming(1)).await);
    for _ in 0..CONNECTIONS {
        store.claim(&node.claiming(1)).await.expect("claim answers");
    }
    store.close().await;
    node.close().await;
}

/// Uses so many connections of the store at once, so that each is there and idle.
async fn use_all(node: &Node, store: &PostgresStore, connections: usize) -> PgConnection {
    let blocker = lock_node(node).await;
    let mut watcher = node.session().await;
    let requests: Vec<_> = (0..connections).map(|_| node.claiming(1)).collect();
    let claims = requests.iter().map(|request| store.claim(request));
    let freed = async {
        until(async || waiting(&mut watcher, node).await.len() == connections).await;
        drop(blocker);
    };
    let (claims, ()) = tokio::join!(join_all(claims), freed);
    assert!(claims.iter().all(StoreResult::is_ok), "{claims:?}");
    watcher
}

#[tokio::test]
async fn a_call_whose_connection_is_killed_can_be_sent_again() {
    let node = Node::new().await;
    let store = node.peer(&url(), |_| {}).await;
    node.fill(1).await;
    let mut watcher = node.session().await;

    let blocker = lock_node(&node).await;
    let request = node.claiming(1);
    let (claimed, ()) = tokio::join!(store.claim(&request), kill_waiting(&mut watcher, &node));
    transient(claimed);
    drop(blocker);
    let claims = store.claim(&request).await.expect("claim answers");
    assert_eq!(claims.len(), 1, "what was undone can be claimed");

    let blocker = lock(&node, "SELECT FROM scheduler_job_queue FOR UPDATE").await;
    let outcomes = [succeeded(&claims[0])];
    let (committed, ()) =
        tokio::join!(store.commit(&node.owner, &outcomes), kill_waiting(&mut watcher, &node));
    transient(committed);
    drop(blocker);
    let verdicts = store.commit(&node.owner, &outcomes).await.expect("commit answers");
    assert!(matches!(verdicts[..], [Verdict::Recorded(_)]), "{verdicts:?}");
    store.close().await;
    node.close().await;
}

#[tokio::test]
async fn an_outcome_that_never_reached_the_server_is_recorded_at_the_second_try() {
    let (node, proxy, store) = through_proxy().await;
    node.fill(1).await;
    let claim = node.claim(1).await.remove(0);
    proxy.cut(Cut::BeforeRequest);
    transient(store.commit(&node.owner, &[succeeded(&claim)]).await);
    let verdicts = store.commit(&node.owner, &[succeeded(&claim)]).await.expect("commit answers");
    assert!(matches!(verdicts[..], [Verdict::Recorded(_)]), "{verdicts:?}");
    store.close().await;
    node.close().await;
}

#[tokio::test]
async fn an_outcome_whose_reply_was_lost_is_recognised() {
    let (node, proxy, store) = through_proxy().await;
    node.fill(2).await;
    let claims = node.claim(2).await;
    let plain = succeeded(&claims[0]);
    // This one goes through a transaction of several statements.
    let mut chained = succeeded(&claims[1]);
    let next = Submission::single(job());
    chained.effects = vec![Effect::Submit(Box::new(next.clone()))];

    for outcome in [plain, chained] {
        let outcomes = [outcome];
        proxy.cut(Cut::AfterCommit);
        transient(store.commit(&node.owner, &outcomes).await);
        let verdicts = store.commit(&node.owner, &outcomes).await.expect("commit answers");
        assert_eq!(verdicts, [Verdict::AlreadyRecorded]);
        let history = store.executions(outcomes[0].id).await.expect("executions answers");
        assert_eq!(history.len(), 1, "it is recorded once");
    }
    let found = store.find(&[next.id().expect("an id")]).await.expect("find answers");
    assert!(found[0].is_some(), "its effect happened");
    store.close().await;
    node.close().await;
}

#[tokio::test]
async fn an_outcome_whose_commit_took_too_long_is_recognised() {
    let (node, proxy) = (Node::new().await, Proxy::to(&url()));
    let store = node.peer(&proxy.url, |options| options.operation_timeout = PATIENCE).await;
    node.fill(2).await;
    let claims = node.claim(2).await;
    let mut chained = succeeded(&claims[1]);
    chained.effects = vec![Effect::Submit(Box::new(Submission::single(job())))];
    for outcome in [succeeded(&claims[0]), chained] {
        let outcomes = [outcome];
        proxy.cut(Cut::SilentAfterCommit);
        // By now it is unknown whether it is recorded.
        transient(store.commit(&node.owner, &outcomes).await);
        let verdicts = store.commit(&node.owner, &outcomes).await.expect("commit answers");
        assert_eq!(verdicts, [Verdict::AlreadyRecorded]);
    }
    store.close().await;
    node.close().await;
}

/// The situation after a failover, when a proxy leads elsewhere but a connection still goes to the old primary.
#[tokio::test]
async fn a_connection_to_a_server_that_only_reads_is_dropped_and_another_one_is_opened() {
    let (node, mut user) = (Node::new().await, User::new().await);
    user.grant(&node.place).await;
    let name = user.name.clone();
    user.run(&format!("ALTER ROLE {name} SET default_transaction_read_only = on")).await;
    let mut options = node.place.options();
    options.connections = 1;
    let store = PostgresStore::lazy(&user.url(None), options).expect("a URL of PostgreSQL");
    store.find(&[JobId::generate()]).await.expect("reading works");
    // From now on another connection would write, but not the one that is open.
    user.run(&format!("ALTER ROLE {name} RESET default_transaction_read_only")).await;
    transient(store.claim(&node.claiming(1)).await);
    store.claim(&node.claiming(1)).await.expect("the next call has another connection");
    store.close().await;
    user.drop().await;
    node.close().await;
}

#[tokio::test]
async fn claims_whose_reply_was_lost_are_found_among_the_owned() {
    let (node, proxy, store) = through_proxy().await;
    node.fill(3).await;
    proxy.cut(Cut::AfterCommit);
    transient(store.claim(&node.claiming(3)).await);
    assert_eq!(store.claim(&node.claiming(3)).await.expect("claim answers"), [], "they are taken");
    let owned = store.owned(&node.owner).await.expect("owned answers");
    assert_eq!(owned.len(), 3);
    let outcomes: Vec<Outcome> = owned.iter().map(succeeded).collect();
    let verdicts = store.commit(&node.owner, &outcomes).await.expect("commit answers");
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Recorded(_))), "{verdicts:?}");
    store.close().await;
    node.close().await;
}

#[tokio::test]
async fn jobs_whose_insert_was_not_answered_are_told_as_stored() {
    let (node, proxy, store) = through_proxy().await;
    let alone = Submission::single(job());
    let mut two = Submission::single(job());
    two.jobs.push(job());
    for submission in [alone, two] {
        proxy.cut(Cut::AfterCommit);
        transient(store.insert(std::slice::from_ref(&submission)).await);
        let again = store.insert(std::slice::from_ref(&submission)).await.expect("insert answers");
        assert_eq!(again, [Inserted::Existing(submission.id().expect("an id"))]);
    }
    store.close().await;
    node.close().await;
}

async fn through_proxy() -> (Node, Proxy, PostgresStore) {
    let node = Node::new().await;
    let proxy = Proxy::to(&url());
    let store = node.peer(&proxy.url, |_| {}).await;
    (node, proxy, store)
}

fn succeeded(claim: &JobClaim) -> Outcome {
    Outcome::new(claim.id, claim.fence, End::Succeeded { result: None })
}

fn transient<T: std::fmt::Debug>(answer: StoreResult<T>) {
    let error = answer.expect_err("the call fails");
    assert!(error.is_transient(), "{error:?}");
}

/// Locks the row that every claim of the node must lock, until the connection is dropped.
async fn lock_node(node: &Node) -> PgConnection {
    lock(node, "SELECT FROM scheduler_node FOR UPDATE").await
}

async fn lock(node: &Node, text: &'static str) -> PgConnection {
    let mut connection = node.session().await;
    sqlx::raw_sql("BEGIN").execute(&mut connection).await.expect("a transaction begins");
    sqlx::raw_sql(text).execute(&mut connection).await.expect("the rows are locked");
    connection
}

/// The stores' sessions that wait for a lock while they work on this schema.
async fn waiting(watcher: &mut PgConnection, node: &Node) -> Vec<i32> {
    let query = "SELECT a.pid FROM pg_stat_activity a WHERE a.application_name = 'ratchet' AND a.wait_event_type = 'Lock'
        AND EXISTS (
            SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
            WHERE l.pid = a.pid AND c.relnamespace = $1::text::regnamespace
        )";
    pids(watcher, node, query).await
}

/// The stores' sessions whose last statement was a short one on this schema, which the server remembers whole.
async fn sessions(watcher: &mut PgConnection, node: &Node) -> Vec<i32> {
    let query = "SELECT a.pid FROM pg_stat_activity a
        WHERE a.application_name = 'ratchet' AND position($1::text IN a.query) > 0";
    pids(watcher, node, query).await
}

async fn pids(watcher: &mut PgConnection, node: &Node, query: &'static str) -> Vec<i32> {
    let query = sqlx::query_scalar(query).bind(node.place.name());
    query.fetch_all(watcher).await.expect("the server tells its sessions")
}

async fn kill(watcher: &mut PgConnection, sessions: &[i32]) {
    // Waits until each is gone.
    let kill = sqlx::query("SELECT pg_terminate_backend(pid, 60000) FROM unnest($1::int[]) AS t (pid)")
        .bind(sessions);
    kill.execute(watcher).await.expect("the sessions are killed");
}

/// Kills the session that waits for a lock, once there is one.
async fn kill_waiting(watcher: &mut PgConnection, node: &Node) {
    until(async || !waiting(watcher, node).await.is_empty()).await;
    let sessions = waiting(watcher, node).await;
    kill(watcher, &sessions).await;
}
