//! Nodes, their work and the reasons for idleness, by the real program on a real file.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod program;
mod shop;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ratchet_api::store::{JobFilter, PageRequest, PermitRequest};
use ratchet_api::{
    Beat, Condition, Due, Edge, Inserted, JobId, JobStatus, NodeInfo, Owner, QueueName, ResourceLimit,
    ResourceName, Submission,
};
use ratchet_core::maintenance::Task;

use program::{each, json, ratchet, refused, run, said, text};
use shop::{Damage, Shop, call};

shop::on_every_store! {
    nodes_tell_whether_they_live_and_what_they_know
    a_job_says_why_it_is_not_running
    a_job_says_whom_it_waits_for
    an_ended_job_says_how_and_an_archived_one_that_it_is
    damaged_rows_are_shown_and_hide_no_others
    maintenance_is_done_now_and_says_what_it_did
    maintenance_deletes_nothing_that_can_be_missed_before_it_was_asked
    maintenance_that_is_told_to_stop_frees_its_lock_and_the_next_one_goes_on
    workers_share_a_store_and_one_finishes_what_a_killed_one_left
}

/// Polls until the condition holds.
macro_rules! until {
    ($seen:expr) => {
        while !$seen {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
}

async fn join(shop: &Shop, label: &str, methods: &[&str], lease: Duration) -> Owner {
    let mut info = NodeInfo::new(Owner::incarnate(label));
    info.label = label.to_owned();
    info.methods = methods.iter().map(ToString::to_string).collect();
    shop.store.join(&info, lease).await.unwrap();
    info.owner
}

async fn nodes_tell_whether_they_live_and_what_they_know(shop: &Shop) {
    let dead = join(shop, "mixer", &["shop.Oven", "shop.Till"], Duration::from_millis(1)).await;
    until!(each(&json(shop, &["nodes"]), "state") == ["alive", "dead"]);
    let nodes = json(shop, &["nodes"]);
    assert_eq!(each(&nodes, "owner"), [shop.owner.as_str(), dead.as_str()]);
    assert_eq!((&nodes[1]["label"], &nodes[1]["methods"][1]), (&"mixer".into(), &"shop.Till".into()));
    assert_eq!(nodes[1]["dead_since"], nodes[1]["lease_until"]);
    assert!(nodes[0]["dead_since"].is_null());

    let mut last = Beat::new(shop.owner.clone(), Duration::from_secs(3_600));
    last.draining = true;
    assert!(shop.store.beat(&last).await.unwrap().accepted);
    let nodes = json(shop, &["nodes"]);
    assert_eq!(each(&nodes, "state"), ["draining", "dead"]);
    assert!(nodes[0]["dead_since"].is_null());

    let screen = said(shop, &["nodes"]);
    let died = format!("{dead}  dead since ");
    for word in
        [died.as_str(), "  draining\n", "label      mixer", "methods    shop.Oven, shop.Till", "+0 ms"]
    {
        assert!(screen.contains(word), "{word}: {screen}");
    }
}

/// The reasons why a job is not running, one word each.
fn why(shop: &Shop, job: JobId) -> Vec<String> {
    each(&json(shop, &["explain", &job.to_string()])["reasons"], "reason")
}

fn told(shop: &Shop, job: JobId) -> String {
    said(shop, &["explain", &job.to_string()])
}

async fn a_job_says_why_it_is_not_running(shop: &Shop) {
    let first = shop.pending("default").await;
    assert_eq!(why(shop, first), ["unknown_method"]);
    assert!(told(shop, first).contains("no live node knows shop.Till.bake (1 is alive)"));
    join(shop, "seller", &["shop.Till.bake", "shop.Oven.bake"], Duration::from_secs(3_600)).await;
    assert_eq!(why(shop, first), ["ready"]);
    assert!(told(shop, first).contains("Not known here: which circuit breakers are open"));

    let (second, third) = (shop.pending("default").await, shop.pending("default").await);
    let mut urgent = call("shop.Till");
    urgent.spec.priority = ratchet_core::JobPriority::Critical;
    let urgent = shop.submit(urgent).await;
    assert_eq!(
        (why(shop, urgent), why(shop, second)),
        (vec!["ready".to_owned()], vec!["jobs_ahead".to_owned()])
    );
    assert!(told(shop, third).contains("3 jobs are before it in queue default"));

    let mut later = call("shop.Till");
    later.due = Due::After(Duration::from_secs(600));
    let later = shop.submit(later).await;
    assert_eq!(why(shop, later), ["not_due"]);
    let mail = shop.pending("mail").await;
    shop.store.set_queue_paused(&QueueName::new("mail").unwrap(), true).await.unwrap();
    assert_eq!(why(shop, mail), ["queue_paused"]);
    assert!(told(shop, mail).contains("`ratchet queues resume mail`"));
    shop.store.pause(&[mail.into()]).await.unwrap();
    assert_eq!(why(shop, mail), ["paused", "queue_paused"]);

    assert!(refused(shop, &["explain", &JobId::generate().to_string()]).contains("there is no job"));
}

async fn a_job_says_whom_it_waits_for(shop: &Shop) {
    join(shop, "seller", &["shop.Till.bake"], Duration::from_secs(3_600)).await;
    let (parent, child) = (call("shop.Till"), call("shop.Till"));
    let (first, second) = (parent.spec.id, child.spec.id);
    let mut submission = Submission::single(parent);
    submission.jobs.push(child);
    submission.edges.push(Edge::new(first, second, Condition::Success));
    assert_eq!(shop.store.insert(&[submission]).await.unwrap(), [Inserted::New]);
    let waits = json(shop, &["explain", &second.to_string()]);
    assert_eq!(waits["reasons"][0]["reason"], "waits_for");
    assert_eq!(waits["reasons"][0]["jobs"][0]["job"], first.to_string());
    assert!(told(shop, second).contains(&format!("{first}  PENDING  needs SUCCESS")));

    let smtp = ResourceName::new("smtp").unwrap();
    let letter = || {
        let mut letter = call("shop.Till");
        letter.spec.resource = Some(smtp.clone());
        letter
    };
    let held = shop.submit(letter()).await;
    assert_eq!(why(shop, held), ["unknown_resource"]);
    shop.store.configure_resource(&ResourceLimit::new(smtp.clone(), 1)).await.unwrap();
    let claims = shop.claim(&[held]).await;
    let request = PermitRequest { id: held, fence: claims[0].fence, resource: smtp.clone() };
    shop.store.acquire(&shop.owner, &[request]).await.unwrap();
    assert!(told(shop, held).contains(&format!("it runs on {} since ", shop.owner)));
    let wants = shop.submit(letter()).await;
    let text = told(shop, wants);
    for word in ["all 1 are taken", &held.to_string(), shop.owner.as_str()] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

async fn an_ended_job_says_how_and_an_archived_one_that_it_is(shop: &Shop) {
    let failed = shop.failed("the oven is cold", 1).await[0];
    let text = told(shop, failed);
    for word in ["it ended as FAILED at ", "the oven is cold", "`ratchet jobs retry`"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let archive = ["maintenance", "run", "archive", "--older-than", "0s"];
    let asks = refused(shop, &archive);
    let says = "1 dead letter older than 0 ms will be archived and can no longer be retried: say --yes";
    assert!(asks.contains(says), "{asks}");
    assert!(told(shop, failed).contains("it ended as FAILED at "), "nothing was done");
    said(shop, &[&archive[..], &["--yes"]].concat());
    let error = refused(shop, &["explain", &failed.to_string()]);
    assert!(error.contains("was archived at ") && error.contains("it ended as FAILED"), "{error}");
}

async fn damaged_rows_are_shown_and_hide_no_others(shop: &Shop) {
    let (good, queue) = (shop.pending("pastry").await, shop.pending("bread").await);
    let failed = shop.failed("CorruptRow: it cannot be read", 1).await[0];
    let (parent, child) = shop.chain().await;
    shop.place.damage(Damage::Queue, queue).await;
    shop.place.damage(Damage::Call, failed).await;
    shop.place.damage(Damage::Backoff, parent).await;
    shop.place.damage(Damage::Node, good).await;

    let status = json(shop, &["status"]);
    assert!(each(&status["queues"], "name").contains(&"pastry".to_owned()), "{status}");
    let groups = status["dead_letters"].to_string();
    assert!(groups.contains("CorruptRow") && groups.contains(&failed.to_string()), "{groups}");
    assert!(said(shop, &["status"]).contains("CorruptRow"));

    let told = told(shop, failed);
    for word in ["cannot be read", "target", "FAILED", "CorruptRow"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert_eq!(json(shop, &["explain", &failed.to_string()])["result"], "FAILED");
    assert!(!why(shop, good).is_empty());
    assert!(!why(shop, child).is_empty(), "one of its parents cannot be read");
}

async fn maintenance_is_done_now_and_says_what_it_did(shop: &Shop) {
    let failed = shop.failed("the oven is cold", 3).await;
    shop.log(failed[0], 4).await;
    let old = ["maintenance", "run", "archive", "dlq-purge", "log-purge", "--older-than", "1d", "--yes"];
    assert_eq!(
        said(shop, &old),
        "archive        0 archived\ndlq-purge      0 deleted\nlog-purge      0 deleted\n"
    );
    let done = json(shop, &["maintenance", "run", "log-purge", "dlq-purge", "--older-than", "0s", "-y"]);
    assert_eq!(each(&done["tasks"], "outcome"), ["done", "done"]);
    assert_eq!((&done["tasks"][0]["rows"], &done["tasks"][1]["rows"]), (&4.into(), &3.into()));

    let (lock, other) = (Task::Archive.lock().unwrap(), Owner::incarnate("other"));
    shop.store.try_lock(&lock, Duration::from_secs(60), &other).await.unwrap().unwrap();
    let busy = run(shop, &["maintenance", "run", "archive", "--older-than", "0s"]);
    assert_eq!(busy.status.code(), Some(1));
    assert!(text(&busy.stdout).contains("nothing was done: another node is at it"));

    for (arguments, problem) in [
        (&["maintenance", "run", "tidy", "--older-than", "1d"][..], "there is no task `tidy`"),
        (&["maintenance", "run", "archive"], "--older-than"),
        (&["maintenance", "run", "archive", "--older-than", "1w"], "such as 90d"),
        (&["maintenance", "run", "--older-than", "1d"], "<TASK>..."),
    ] {
        let wrong = run(shop, arguments);
        assert_eq!(wrong.status.code(), Some(2), "{arguments:?}");
        assert!(text(&wrong.stderr).contains(problem), "{}", text(&wrong.stderr));
    }
}

async fn maintenance_deletes_nothing_that_can_be_missed_before_it_was_asked(shop: &Shop) {
    let failed = shop.failed("the oven is cold", 3).await;
    shop.log(failed[0], 4).await;
    let purge =
        |tasks: &[&'static str], age| [&["maintenance", "run"], tasks, &["--older-than", age]].concat();
    for (tasks, will_be) in [
        (&["dlq-purge"][..], "3 dead letters older than 0 ms"),
        (&["log-purge"], "log lines older than 0 ms"),
        (
            &["archive", "archive-purge"],
            "3 dead letters older than 0 ms will be archived and can no longer be retried, and archived jobs older \
             than 0 ms",
        ),
        (&["log-purge", "dlq-purge"], "log lines older than 0 ms and 3 dead letters older than 0 ms"),
    ] {
        let error = refused(shop, &purge(tasks, "0s"));
        assert_eq!(error, format!("error: {will_be} will be deleted for good: say --yes if that is meant\n"));
    }
    // Nothing would be lost.
    said(shop, &purge(&["dlq-purge", "node-purge"], "1d"));
    assert_eq!(json(shop, &["dlq", "list"])["groups"][0]["count"], 3);
    assert_eq!(json(shop, &["jobs", "show", &failed[0].to_string()])["log"].as_array().unwrap().len(), 4);
}

async fn maintenance_that_is_told_to_stop_frees_its_lock_and_the_next_one_goes_on(shop: &Shop) {
    const LINES: usize = 40_000;
    let job = shop.pending("default").await;
    shop.log(job, LINES).await;
    let purge = ["maintenance", "run", "log-purge", "--older-than", "0s", "--yes"];
    let mut child = ratchet(shop, &purge).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "log-purge: 1000 deleted so far\n");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(1));
    assert!(text(&stopped.stdout).contains("then it was stopped"), "{}", text(&stopped.stdout));
    let rest = json(shop, &purge);
    assert_eq!(rest["tasks"][0]["outcome"], "done");
    assert!((1..LINES as u64).contains(&rest["tasks"][0]["rows"].as_u64().unwrap()));
}

/// A worker process that ends with the test, even if that fails.
struct Worker(Child);

impl Worker {
    fn start(shop: &Shop, label: &str, rate: &str) -> Self {
        let arguments = ["worker", "--label", label, "--rate", rate, "--lease", "2"];
        Self(ratchet(shop, &arguments).stdout(Stdio::null()).spawn().unwrap())
    }

    fn ask_to_end(&self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn labels(shop: &Shop) -> Vec<String> {
    shop.store.nodes().await.unwrap().into_iter().map(|node| node.info.label).collect()
}

async fn count(shop: &Shop, statuses: &[JobStatus]) -> usize {
    let mut filter = JobFilter::default();
    filter.statuses = statuses.to_vec();
    shop.store.query_jobs(&filter, &PageRequest::first(1_000)).await.unwrap().jobs.len()
}

async fn workers_share_a_store_and_one_finishes_what_a_killed_one_left(shop: &Shop) {
    let mut stays = Worker::start(shop, "stays", "0");
    until!(labels(shop).await.contains(&"stays".to_owned()));
    let killed = Worker::start(shop, "killed", "20");
    until!(count(shop, &[JobStatus::Succeeded]).await >= 10);
    drop(killed);
    until!(count(shop, &[JobStatus::Pending, JobStatus::Running]).await == 0);
    stays.ask_to_end();
    assert!(stays.0.wait().unwrap().success());
    assert!(!labels(shop).await.contains(&"stays".to_owned()), "it left in good order");
    let wrong = run(shop, &["worker", "--rate=-1"]);
    assert!(text(&wrong.stderr).contains("--rate"), "{}", text(&wrong.stderr));
}
