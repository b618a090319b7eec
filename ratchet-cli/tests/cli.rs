//! The real program, on a real file.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod program;
mod shop;

use std::process::Stdio;

use ratchet_api::store::JobStoreExt as _;
use ratchet_api::{JobId, JobStatus};
use serde_json::Value;

use program::{each, ids, json, ratchet, refused, run, said, text};
use shop::Shop;
#[cfg(any(feature = "postgres", feature = "mongodb"))]
use shop::TestStore;

shop::on_every_store! {
    the_status_of_a_store_fits_on_a_screen
    jobs_are_listed_by_every_filter_and_page_by_page
    a_job_tells_its_whole_story
    a_job_tells_how_far_it_is_and_a_callback_what_it_is_about
    a_log_that_is_longer_than_a_story_is_read_to_its_end
    jobs_are_canceled_and_each_is_answered
    jobs_are_paused_resumed_and_retried
    a_dead_letter_whose_key_is_taken_says_by_whom
    dead_letters_are_retried_by_group_and_all
    many_dead_letters_show_progress
    jobs_are_canceled_by_what_they_have_in_common
    failed_jobs_are_retried_by_when_they_ended_and_up_to_a_limit
    dead_letters_that_lost_their_key_are_named_and_the_rest_is_retried
    queues_are_shown_paused_and_resumed
    limits_of_resources_are_shown_and_set
    what_a_job_is_parked_on_is_shown
    stored_text_does_not_steer_the_terminal
    no_text_that_is_stored_reaches_the_terminal_as_it_is
    a_reader_that_has_seen_enough_is_no_trouble
}

async fn the_status_of_a_store_fits_on_a_screen(shop: &Shop) {
    let (running, _) = (shop.running("mail").await, shop.failed("the oven is cold", 2).await);
    let status = json(shop, &["status"]);
    assert_eq!(status["store"]["kind"], shop.place.kind());
    let location = status["store"]["location"].as_str().unwrap();
    assert!(shop.place.url().ends_with(location) || location.contains("://"), "{location}");
    assert!(status["database_time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(each(&status["queues"], "name"), ["default", "mail"]);
    assert_eq!((&status["queues"][0]["failed"], &status["queues"][1]["running"]), (&2.into(), &1.into()));
    assert_eq!(status["nodes"][0]["owner"], shop.owner.as_str());
    assert_eq!(status["nodes"][0]["state"], "alive");
    assert_eq!(status["dead_letters"]["count"], 2);
    assert_eq!(status["dead_letters"]["groups"][0]["count"], 2);

    let screen = said(shop, &["status"]);
    assert!(screen.starts_with(&format!("Store  {} at ", shop.place.kind())), "{screen}");
    for word in [shop.owner.as_str(), "mail", "the oven is cold", "Dead letters: 2"] {
        assert!(screen.contains(word), "{word}: {screen}");
    }
    assert!(!screen.contains(&running.to_string()));
}

async fn jobs_are_listed_by_every_filter_and_page_by_page(shop: &Shop) {
    let plain = shop.pending("default").await;
    let tagged = shop.tagged(&["eu", "urgent"]).await;
    let keyed = shop.keyed("order-7").await;
    let mail = shop.pending("mail").await;
    let failed = shop.failed("no flour", 1).await[0];
    let list = |arguments: &[&str]| {
        let page = json(shop, &[&["jobs", "list"], arguments].concat());
        each(&page["jobs"], "id")
    };
    assert_eq!(list(&[]), ids(&[failed, mail, keyed, tagged, plain]));
    assert_eq!(list(&["--status", "failed"]), ids(&[failed]));
    assert_eq!(list(&["--status", "pending,failed"]), ids(&[failed, mail, keyed, tagged, plain]));
    assert_eq!(list(&["--queue", "mail"]), ids(&[mail]));
    assert_eq!(list(&["--target", "shop.Oven"]), ids(&[failed]));
    assert_eq!(list(&["--tag", "eu", "--tag", "urgent"]), ids(&[tagged]));
    assert_eq!(list(&["--tag", "eu", "--tag", "us"]), ids(&[]));
    assert_eq!(list(&["--key", "order-7"]), ids(&[keyed]));

    let first = json(shop, &["jobs", "list", "--limit", "3"]);
    assert_eq!(each(&first["jobs"], "id"), ids(&[failed, mail, keyed]));
    let next = first["next"].as_str().unwrap();
    let second = json(shop, &["jobs", "list", "--limit", "3", "--after", next]);
    assert_eq!(each(&second["jobs"], "id"), ids(&[tagged, plain]));
    assert_eq!(second["next"], Value::Null);

    let screen = said(shop, &["jobs", "list", "--limit", "1"]);
    assert!(screen.contains(&failed.to_string()) && screen.contains("shop.Oven.bake"), "{screen}");
    assert!(screen.ends_with(&format!("There are more: --after {failed}\n")), "{screen}");
    assert_eq!(said(shop, &["jobs", "list", "--queue", "none"]), "No job matches.\n");
}

async fn a_job_tells_its_whole_story(shop: &Shop) {
    let (parent, child) = shop.chain().await;
    shop.log(parent, 3).await;
    let story = json(shop, &["jobs", "show", &parent.to_string()]);
    assert_eq!(story["job"]["status"], "FAILED");
    assert_eq!(story["job"]["call"]["payload"]["args"], serde_json::json!(["cake", 1.50]));
    assert_eq!(story["attempts"][0]["result"], "FAILED");
    assert_eq!(story["attempts"][0]["node"], shop.owner.as_str());
    assert_eq!(story["waited_for_by"][0]["job"], child.to_string());
    assert_eq!(story["waited_for_by"][0]["condition"], "SUCCESS");
    assert_eq!(each(&story["log"], "message"), ["line 0", "line 1", "line 2"]);
    assert_eq!(story["alerts"].as_array().unwrap().len(), 1);
    let other = json(shop, &["jobs", "show", &child.to_string()]);
    assert_eq!(other["waits_for"][0]["job"], parent.to_string());

    let screen = said(shop, &["jobs", "show", &parent.to_string(), "--log-lines", "2"]);
    for word in ["FAILED", "[\"cake\",1.50]", "line 1", "more with --log-lines", "Attempts", "Alerts"] {
        assert!(screen.contains(word), "{word}: {screen}");
    }
    assert!(!screen.contains("line 2"));
    let nobody = JobId::generate().to_string();
    assert!(refused(shop, &["jobs", "show", &nobody]).contains("there is no job"));
}

async fn a_job_tells_how_far_it_is_and_a_callback_what_it_is_about(shop: &Shop) {
    let running = shop.running("default").await;
    shop.progress(running, 3, "three of ten cakes").await;
    let screen = said(shop, &["jobs", "show", &running.to_string()]);
    assert!(screen.contains("3 of 10: three of ten cakes"), "{screen}");
    let story = json(shop, &["jobs", "show", &running.to_string()]);
    assert_eq!(story["job"]["progress"]["done"], 3);

    let failed = shop.failed("no eggs", 1).await[0];
    let callback = shop.callback(failed).await;
    let screen = said(shop, &["jobs", "show", &callback.to_string()]);
    assert!(screen.contains(&format!("job {failed}, which is FAILED: no eggs")), "{screen}");
}

async fn a_log_that_is_longer_than_a_story_is_read_to_its_end(shop: &Shop) {
    let job = shop.pending("default").await;
    shop.log(job, 1_200).await;
    let story = json(shop, &["jobs", "show", &job.to_string(), "--log-lines", "5000"]);
    assert_eq!(story["log"].as_array().unwrap().len(), 1_200);
    assert_eq!(story["log_has_more"], false);
}

async fn jobs_are_canceled_and_each_is_answered(shop: &Shop) {
    let (waiting, running, nobody) =
        (shop.pending("default").await, shop.running("mail").await, JobId::generate());
    let [a, b, c] = [waiting, running, nobody].map(|id| id.to_string());
    let answers = json(shop, &["jobs", "cancel", &a, &b, &c, "--reason", "rain"]);
    assert_eq!(
        each(&answers["jobs"], "answer"),
        ["is canceled", "is told to stop; it runs", "there is no such job"]
    );
    let job = shop.store.find(&[waiting]).await.unwrap().pop().unwrap().unwrap();
    assert_eq!((job.status, job.cancel_reason.as_deref()), (JobStatus::Canceled, Some("rain")));

    let again = run(shop, &["jobs", "cancel", &a]);
    assert_eq!(again.status.code(), Some(1), "nothing was changed");
    assert_eq!(text(&again.stdout), format!("{a}  unchanged: it is CANCELED\n"));
}

async fn jobs_are_paused_resumed_and_retried(shop: &Shop) {
    let waiting = shop.pending("default").await;
    let failed = shop.failed("no eggs", 1).await[0];
    let [a, b] = [waiting, failed].map(|id| id.to_string());
    assert_eq!(said(shop, &["jobs", "pause", &a]), format!("{a}  is paused\n"));
    assert_eq!(shop.store.status_of(waiting).await.unwrap(), Some(JobStatus::Paused));
    assert_eq!(said(shop, &["jobs", "resume", &a]), format!("{a}  is resumed: PENDING again\n"));
    assert_eq!(shop.store.status_of(waiting).await.unwrap(), Some(JobStatus::Pending));

    let some = said(shop, &["jobs", "retry", &a, &b]);
    assert_eq!(some, format!("{a}  unchanged: it is PENDING\n{b}  is retried: PENDING again\n"));
    let job = shop.store.find(&[failed]).await.unwrap().pop().unwrap().unwrap();
    assert_eq!((job.status, job.attempts, job.last_error), (JobStatus::Pending, 0, None));
    assert_eq!(run(shop, &["jobs", "retry", &a, &b]).status.code(), Some(1));
}

async fn a_dead_letter_whose_key_is_taken_says_by_whom(shop: &Shop) {
    let failed = shop.failed_with_key("order-7").await;
    let holder = shop.keyed("order-7").await;
    let output = run(shop, &["jobs", "retry", &failed.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("{failed}  unchanged: job {holder} has its business key order-7\n");
    assert_eq!(text(&output.stdout), expected);
}

async fn dead_letters_are_retried_by_group_and_all(shop: &Shop) {
    let eggs = shop.failed("no eggs", 3).await;
    let flour = shop.failed("no flour", 2).await;
    let groups = json(shop, &["dlq", "list"]);
    assert_eq!(each(&groups["groups"], "error"), ["OvenError: no eggs", "OvenError: no flour"]);
    assert_eq!(groups["groups"][0]["newest"], eggs[2].to_string());
    let fingerprint = groups["groups"][0]["fingerprint"].as_str().unwrap().to_owned();
    assert!(said(shop, &["dlq", "list"]).contains(&fingerprint));

    let unsure = refused(shop, &["dlq", "retry", &fingerprint]);
    assert_eq!(unsure, "error: 3 jobs will be retried: say --yes if that is meant\n");
    let revived = json(shop, &["dlq", "retry", &fingerprint, "--yes"]);
    assert_eq!((&revived["done"], &revived["key_taken"]), (&3.into(), &Value::Array(vec![])));
    for (jobs, status) in [(&eggs, JobStatus::Pending), (&flour, JobStatus::Failed)] {
        for job in jobs {
            assert_eq!(shop.store.status_of(*job).await.unwrap(), Some(status));
        }
    }
    let none = run(shop, &["dlq", "retry", "--fingerprint", &fingerprint, "--yes"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), "No job matches.\n"));
    assert_eq!(said(shop, &["dlq", "retry", "--all", "--yes"]), "2 jobs retried.\n");
    let none = run(shop, &["dlq", "retry", "--all"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), "No job matches.\n"));
    assert_eq!(said(shop, &["dlq", "list"]), "There are no dead letters.\n");
    assert_eq!(run(shop, &["dlq", "retry"]).status.code(), Some(2), "which ones?");
}

async fn many_dead_letters_show_progress(shop: &Shop) {
    shop.failed("no sugar", 620).await;
    let output = run(shop, &["dlq", "retry", "--all", "--yes"]);
    assert_eq!(text(&output.stdout), "620 jobs retried.\n");
    assert_eq!(text(&output.stderr), "500 retried so far\n620 retried so far\n");
}

async fn jobs_are_canceled_by_what_they_have_in_common(shop: &Shop) {
    let (mail, other) = (shop.pending("mail").await, shop.pending("default").await);
    let (tagged, running) = (shop.tagged(&["eu"]).await, shop.running("mail").await);
    let unsure = refused(shop, &["jobs", "cancel", "--queue", "mail"]);
    assert_eq!(unsure, "error: 2 jobs will be canceled: say --yes if that is meant\n");
    let cancel = |arguments: &[&str]| json(shop, &[&["jobs", "cancel", "--yes"], arguments].concat());
    let waiting = cancel(&["--queue", "mail", "--status", "pending", "--reason", "rain"]);
    assert_eq!((&waiting["done"], &waiting["told_to_stop"]), (&1.into(), &0.into()));
    let rest = cancel(&["--queue", "mail"]);
    assert_eq!((&rest["done"], &rest["told_to_stop"]), (&1.into(), &1.into()));
    assert_eq!(cancel(&["--target", "shop.Till", "--tag", "eu"])["done"], 1);
    for (job, status) in
        [(mail, JobStatus::Canceled), (running, JobStatus::Canceled), (tagged, JobStatus::Canceled)]
    {
        assert_eq!(shop.store.status_of(job).await.unwrap(), Some(status));
    }
    let job = shop.store.find(&[mail]).await.unwrap().pop().unwrap().unwrap();
    assert_eq!(job.cancel_reason.as_deref(), Some("rain"));
    assert_eq!(shop.store.status_of(other).await.unwrap(), Some(JobStatus::Pending));
    assert_eq!(said(shop, &["jobs", "cancel", "--all", "--yes"]), "1 job canceled.\n");
    let (none, both) = (["jobs", "cancel", "--yes"], ["jobs", "cancel", "--all", "--queue", "mail"]);
    assert_eq!(run(shop, &none).status.code(), Some(2), "which ones?");
    assert_eq!(run(shop, &both).status.code(), Some(2), "all, or some?");
}

async fn failed_jobs_are_retried_by_when_they_ended_and_up_to_a_limit(shop: &Shop) {
    let failed = shop.failed("no eggs", 5).await;
    let future = "2999-01-01T00:00:00Z";
    let none = run(shop, &["jobs", "retry", "--ended-from", future, "--yes"]);
    assert_eq!(text(&none.stdout), "No job matches.\n");
    let some = ["jobs", "retry", "--target", "shop.Oven", "--ended-until", future, "--limit", "2", "--yes"];
    assert_eq!(said(shop, &some), "2 jobs retried.\n");
    for (job, status) in failed.iter().rev().zip([JobStatus::Pending, JobStatus::Pending, JobStatus::Failed])
    {
        assert_eq!(shop.store.status_of(*job).await.unwrap(), Some(status), "newest first");
    }
    assert_eq!(run(shop, &["jobs", "retry", "--ended-from", "noon"]).status.code(), Some(2));
}

async fn dead_letters_that_lost_their_key_are_named_and_the_rest_is_retried(shop: &Shop) {
    let lost = shop.failed_with_key("order-7").await;
    let holder = shop.keyed("order-7").await;
    shop.failed("no eggs", 1).await;
    let answer = said(shop, &["dlq", "retry", "--all", "--yes"]);
    let expected = format!(
        "{lost}  unchanged: job {holder} has its business key, or that of a dependent\n1 of 2 jobs retried.\n"
    );
    assert_eq!(answer, expected);
}

async fn queues_are_shown_paused_and_resumed(shop: &Shop) {
    assert_eq!(said(shop, &["queues"]), "No queue has a job.\n");
    shop.pending("mail").await;
    assert_eq!(said(shop, &["queues", "pause", "mail"]), "Queue mail is now paused.\n");
    assert_eq!(said(shop, &["queues", "pause", "mail"]), "Queue mail was already paused.\n");
    let queues = json(shop, &["queues"]);
    assert_eq!(
        (&queues["queues"][0]["name"], &queues["queues"][0]["paused"]),
        (&"mail".into(), &true.into())
    );
    assert_eq!(queues["queues"][0]["ready_by_priority"]["normal"], 1);
    let resumed = json(shop, &["queues", "resume", "mail"]);
    assert_eq!(resumed, serde_json::json!({ "queue": "mail", "paused": false, "changed": true }));
    assert!(said(shop, &["queues"]).contains("open"));
}

async fn limits_of_resources_are_shown_and_set(shop: &Shop) {
    assert!(said(shop, &["resources"]).contains("ratchet resources set NAME LIMIT"));
    let new = said(shop, &["resources", "set", "printer", "2"]);
    assert!(new.starts_with("At most 2 jobs use printer at once; before, it had no limit"), "{new}");
    let set = json(shop, &["resources", "set", "printer", "3"]);
    assert_eq!(set, serde_json::json!({ "resource": "printer", "limit": 3, "was": 2 }));
    let same = said(shop, &["resources", "set", "printer", "3"]);
    assert_eq!(same, "At most 3 jobs use printer at once, as before.\n");

    let holder = shop.holding("printer").await;
    let list = json(shop, &["resources", "list"]);
    let printer = serde_json::json!({ "name": "printer", "limit": 3, "held_by": [holder.to_string()] });
    assert_eq!(list, serde_json::json!({ "resources": [printer] }));
    assert!(said(shop, &["resources"]).contains(&holder.to_string()));
    let one = said(shop, &["resources", "set", "plotter", "1"]);
    assert!(one.starts_with("At most 1 job uses plotter at once; before"), "{one}");
}

async fn what_a_job_is_parked_on_is_shown(shop: &Shop) {
    let job = shop.parked().await;
    assert_eq!(json(shop, &["jobs", "list"])["jobs"][0]["parked_on"], "method:shop.Nobody.bake");
    let shown = said(shop, &["jobs", "show", &job.to_string()]);
    assert!(shown.lines().any(|line| line.trim_start().starts_with("parked on ")), "{shown}");
}

#[test]
fn a_file_is_migrated_once_and_tells_its_versions() {
    let directory = tempfile::tempdir().unwrap();
    let url = directory.path().join("new.db").display().to_string();
    assert!(refused(&url, &["status"]).contains("make it with `ratchet migrate`"));
    assert!(refused(&url, &["migrate", "--status"]).contains("does not exist"));
    assert!(!std::path::Path::new(&url).exists(), "looking makes nothing");

    let output = run(&url, &["migrate"]);
    assert_eq!(text(&output.stdout), "The schema is up to date: 1 version was applied.\n");
    assert_eq!(text(&output.stderr), "applying 001 baseline\napplied 001 baseline\n");
    assert_eq!(said(&url, &["migrate"]), "Nothing to do: the schema is up to date.\n");
    assert_eq!(json(&url, &["migrate"])["applied"], serde_json::json!([]));
    let versions = json(&url, &["migrate", "--status"]);
    assert_eq!((&versions["current"], &versions["versions"][0]["state"]), (&true.into(), &"applied".into()));
    assert!(said(&format!("sqlite:{url}"), &["status"]).contains("No node is known."));
}

#[test]
fn a_file_without_tables_is_refused_with_advice() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let url = format!("sqlite:{}", file.path().display());
    for command in [&["status"][..], &["jobs", "list"], &["dlq", "list"], &["queues"]] {
        assert!(refused(&url, command).contains("run `ratchet migrate`"), "{command:?}");
    }
    let status = run(&url, &["migrate", "--status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stdout).contains("pending"));
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_advice() {
    let shop = &Shop::on_sqlite().await;
    shop.came_from_the_future().await;
    for command in [&["status"][..], &["jobs", "list"], &["migrate"]] {
        let error = refused(shop, command);
        assert!(error.contains("version 999") && error.contains("use the newer program"), "{error}");
        assert_eq!(error.matches("newer program").count(), 1, "each reason once: {error}");
    }
    let status = run(shop, &["migrate", "--status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stdout).contains("A migration would be refused"));
}

#[test]
fn a_file_that_is_none_of_sqlite_says_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "Dear diary, ".repeat(100)).unwrap();
    let url = format!("sqlite:{}", file.path().display());
    assert!(refused(&url, &["status"]).contains("is not a database of SQLite"));
}

#[test]
fn what_names_no_store_is_refused_with_advice() {
    assert!(refused("", &["status"]).contains("--url or RATCHET_URL"));
    assert!(refused("mysql://me:s3cret@db/app", &["status"]).contains("not supported yet"));
    assert!(refused("jobs.db", &["status", "--schema", "s"]).contains("use --prefix"));
}

#[test]
fn no_password_is_ever_shown() {
    for url in [
        "postgres://me:s3cret@127.0.0.1:1/app",
        "postgres://me:s3cret@127.0.0.1:port/app",
        "postgres://me:p/s3cret@127.0.0.1:1/app?sslmode=none",
        "mongodb://me:s3cret@127.0.0.1:port/?serverSelectionTimeoutMS=50",
        "mongodb://me:x@s3cret:y@127.0.0.1:1/?serverSelectionTimeoutMS=50",
        "mysql://me:s3cret@127.0.0.1/app",
        "oracle://me:s3cret@127.0.0.1/app",
    ] {
        let commands: [&[&str]; 7] = [
            &["status"],
            &["migrate"],
            &["migrate", "--status"],
            &["status", url],
            &["jobs", "show", url],
            &["jobs", "list", "--help"],
            &["nonsense", url],
        ];
        for arguments in commands {
            let output = run(url, arguments);
            let all = text(&output.stdout) + &text(&output.stderr);
            assert!(!all.is_empty() && !all.contains("s3cret"), "{url} {arguments:?}: {all}");
        }
    }
}

#[test]
fn a_driver_that_is_not_built_in_names_its_feature() {
    for (built_in, url, feature) in [
        (cfg!(feature = "postgres"), "postgres://me:s3cret@127.0.0.1:1/app", "postgres"),
        (
            cfg!(feature = "mongodb"),
            "mongodb://me:s3cret@127.0.0.1:1/?serverSelectionTimeoutMS=50",
            "mongodb",
        ),
    ] {
        let error = refused(url, &["status"]);
        assert_eq!(
            error.contains(&format!("`cargo install --path ratchet-cli --features {feature}`")),
            !built_in,
            "{error}"
        );
    }
}

async fn stored_text_does_not_steer_the_terminal(shop: &Shop) {
    let job = shop.keyed("\u{1b}[2Jgone").await;
    let screen = said(shop, &["jobs", "show", &job.to_string()]);
    assert!(screen.contains("\\u{1b}[2Jgone") && !screen.contains('\u{1b}'), "{screen}");
}

/// A text that clears the screen, reverses the line and ends it, each in one character.
const HOSTILE: &str = "a\u{9b}2J\u{202e}b\u{2028}c\u{2066}d\u{1b}]0;e\u{7f}\u{feff}";
/// The part of it that names may contain.
const HOSTILE_NAME: &str = "a\u{202e}b\u{2028}c\u{2066}";

async fn no_text_that_is_stored_reaches_the_terminal_as_it_is(shop: &Shop) {
    let (job, failed) = shop.hostile(HOSTILE, HOSTILE_NAME).await;
    let (job, failed) = (job.to_string(), failed.to_string());
    let commands: [&[&str]; 9] = [
        &["status"],
        &["nodes"],
        &["queues"],
        &["dlq", "list"],
        &["jobs", "list"],
        &["jobs", "show", &job],
        &["jobs", "show", &failed],
        &["explain", &job],
        &["explain", &failed],
    ];
    for command in commands {
        for json in [&[][..], &["--json"]] {
            let shown = said(shop, &[command, json].concat());
            let raw = shown.chars().find(|c| HOSTILE.contains(*c) && !c.is_ascii_graphic());
            assert_eq!(raw, None, "{command:?} {json:?}: {shown}");
            assert!(!shown.contains("\nforged"), "{command:?} {json:?}: {shown}");
        }
    }
    let story = json(shop, &["jobs", "show", &job]);
    assert_eq!(story["job"]["business_key"], format!("{HOSTILE}\nforged"), "the value is the same");
    assert_eq!(story["job"]["call"]["payload"]["args"][0], HOSTILE_NAME);

    let taken = run(shop, &["jobs", "retry", &failed]);
    let taken = text(&taken.stdout);
    assert!(taken.contains("has its business key") && !taken.contains("\nforged"), "{taken}");
}

async fn a_reader_that_has_seen_enough_is_no_trouble(shop: &Shop) {
    for _ in 0..3 {
        shop.pending("default").await;
    }
    for arguments in [&["jobs", "list"][..], &["status", "--json"], &["--help"]] {
        let mut child =
            ratchet(shop, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        &[][..],
        &["migrate"],
        &["status"],
        &["jobs"],
        &["jobs", "list"],
        &["jobs", "show"],
        &["jobs", "cancel"],
        &["jobs", "pause"],
        &["jobs", "resume"],
        &["jobs", "retry"],
        &["dlq"],
        &["dlq", "list"],
        &["dlq", "retry"],
        &["queues"],
        &["queues", "pause"],
        &["queues", "resume"],
    ] {
        let help = said("jobs.db", &[command, &["--help"]].concat());
        assert!(help.contains("Example") && help.contains("  ratchet "), "{command:?}: {help}");
    }
}

#[test]
fn the_demo_ends_with_its_summary() {
    let directory = tempfile::tempdir().unwrap();
    let url = directory.path().join("demo.db").display().to_string();
    let screen = said("", &["demo", "--file", &url]);
    let summary = "15 jobs succeeded, 1 failed for good, 1 canceled; 3 were tried again.";
    assert!(screen.contains(summary), "{screen}");
    let counts = |status| json(&url, &["jobs", "list", "--status", status])["jobs"].as_array().unwrap().len();
    assert_eq!(["succeeded", "failed", "canceled"].map(counts), [15, 1, 1]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_schema_that_is_not_migrated_is_refused_with_advice_until_it_is() {
    let place = TestStore::schema();
    is_refused_until_it_is_migrated(&place);
    assert_eq!(run(&place, &["migrate", "--status"]).status.code(), Some(0));
    let both = run(&place, &["jobs", "list", "--prefix", "x_"]);
    assert!(text(&both.stderr).contains("exclude each other"));
    place.remove().await;
}

#[cfg(feature = "mongodb")]
#[tokio::test]
async fn a_database_without_collections_is_refused_with_advice_until_it_has_them() {
    let place = TestStore::database();
    is_refused_until_it_is_migrated(&place);
    place.remove().await;
}

#[cfg(any(feature = "postgres", feature = "mongodb"))]
fn is_refused_until_it_is_migrated(place: &TestStore) {
    for command in [&["status"][..], &["jobs", "list"], &["dlq", "list"], &["queues"]] {
        assert!(refused(place, command).contains("run `ratchet migrate`"), "{command:?}");
    }
    assert_eq!(run(place, &["migrate", "--status"]).status.code(), Some(1));
    said(place, &["migrate"]);
    said(place, &["migrate"]);
    assert_eq!(said(place, &["jobs", "list"]), "No job matches.\n");
}
