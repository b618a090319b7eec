//! The real program, on a real file.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod program;
mod shop;

use std::process::Stdio;

use ratchet_api::store::{JobCrudStore as _, JobStoreExt as _};
use ratchet_api::{JobId, JobStatus};
use serde_json::Value;

use program::{each, ids, json, ratchet, refused, run, said, text};
use shop::Shop;

#[tokio::test]
async fn the_status_of_a_store_fits_on_a_screen() {
    let shop = Shop::open().await;
    let (running, _) = (shop.running("mail").await, shop.failed("the oven is cold", 2).await);
    let status = json(&shop.url, &["status"]);
    assert_eq!(status["store"]["kind"], "sqlite");
    assert_eq!(status["store"]["location"], shop.url);
    assert!(status["database_time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(each(&status["queues"], "name"), ["default", "mail"]);
    assert_eq!((&status["queues"][0]["failed"], &status["queues"][1]["running"]), (&2.into(), &1.into()));
    assert_eq!(status["nodes"][0]["owner"], shop.owner.as_str());
    assert_eq!(status["nodes"][0]["state"], "alive");
    assert_eq!(status["dead_letters"]["count"], 2);
    assert_eq!(status["dead_letters"]["groups"][0]["count"], 2);

    let screen = said(&shop.url, &["status"]);
    assert!(screen.starts_with("Store  sqlite at "), "{screen}");
    for word in [shop.owner.as_str(), "mail", "the oven is cold", "Dead letters: 2"] {
        assert!(screen.contains(word), "{word}: {screen}");
    }
    assert!(!screen.contains(&running.to_string()));
}

#[tokio::test]
async fn jobs_are_listed_by_every_filter_and_page_by_page() {
    let shop = Shop::open().await;
    let plain = shop.pending("default").await;
    let tagged = shop.tagged(&["eu", "urgent"]).await;
    let keyed = shop.keyed("order-7").await;
    let mail = shop.pending("mail").await;
    let failed = shop.failed("no flour", 1).await[0];
    let list = |arguments: &[&str]| {
        let page = json(&shop.url, &[&["jobs", "list"], arguments].concat());
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

    let first = json(&shop.url, &["jobs", "list", "--limit", "3"]);
    assert_eq!(each(&first["jobs"], "id"), ids(&[failed, mail, keyed]));
    let next = first["next"].as_str().unwrap();
    let second = json(&shop.url, &["jobs", "list", "--limit", "3", "--after", next]);
    assert_eq!(each(&second["jobs"], "id"), ids(&[tagged, plain]));
    assert_eq!(second["next"], Value::Null);

    let screen = said(&shop.url, &["jobs", "list", "--limit", "1"]);
    assert!(screen.contains(&failed.to_string()) && screen.contains("shop.Oven.bake"), "{screen}");
    assert!(screen.ends_with(&format!("There are more: --after {failed}\n")), "{screen}");
    assert_eq!(said(&shop.url, &["jobs", "list", "--queue", "none"]), "No job matches.\n");
}

#[tokio::test]
async fn a_job_tells_its_whole_story() {
    let shop = Shop::open().await;
    let (parent, child) = shop.chain().await;
    shop.log(parent, 3).await;
    let story = json(&shop.url, &["jobs", "show", &parent.to_string()]);
    assert_eq!(story["job"]["status"], "FAILED");
    assert_eq!(story["job"]["call"]["payload"]["args"], serde_json::json!(["cake", 1.50]));
    assert_eq!(story["attempts"][0]["result"], "FAILED");
    assert_eq!(story["attempts"][0]["node"], shop.owner.as_str());
    assert_eq!(story["waited_for_by"][0]["job"], child.to_string());
    assert_eq!(story["waited_for_by"][0]["condition"], "SUCCESS");
    assert_eq!(each(&story["log"], "message"), ["line 0", "line 1", "line 2"]);
    assert_eq!(story["alerts"].as_array().unwrap().len(), 1);
    let other = json(&shop.url, &["jobs", "show", &child.to_string()]);
    assert_eq!(other["waits_for"][0]["job"], parent.to_string());

    let screen = said(&shop.url, &["jobs", "show", &parent.to_string(), "--log-lines", "2"]);
    for word in ["FAILED", "[\"cake\",1.50]", "line 1", "more with --log-lines", "Attempts", "Alerts"] {
        assert!(screen.contains(word), "{word}: {screen}");
    }
    assert!(!screen.contains("line 2"));
    let nobody = JobId::generate().to_string();
    assert!(refused(&shop.url, &["jobs", "show", &nobody]).contains("there is no job"));
}

#[tokio::test]
async fn a_job_tells_how_far_it_is_and_a_callback_what_it_is_about() {
    let shop = Shop::open().await;
    let running = shop.running("default").await;
    shop.progress(running, 3, "three of ten cakes").await;
    let screen = said(&shop.url, &["jobs", "show", &running.to_string()]);
    assert!(screen.contains("3 of 10: three of ten cakes"), "{screen}");
    let story = json(&shop.url, &["jobs", "show", &running.to_string()]);
    assert_eq!(story["job"]["progress"]["done"], 3);

    let failed = shop.failed("no eggs", 1).await[0];
    let callback = shop.callback(failed).await;
    let screen = said(&shop.url, &["jobs", "show", &callback.to_string()]);
    assert!(screen.contains(&format!("job {failed}, which is FAILED: no eggs")), "{screen}");
}

#[tokio::test]
async fn a_log_that_is_longer_than_a_story_is_read_to_its_end() {
    let shop = Shop::open().await;
    let job = shop.pending("default").await;
    shop.log(job, 1_200).await;
    let story = json(&shop.url, &["jobs", "show", &job.to_string(), "--log-lines", "5000"]);
    assert_eq!(story["log"].as_array().unwrap().len(), 1_200);
    assert_eq!(story["log_has_more"], false);
}

#[tokio::test]
async fn jobs_are_cancelled_and_each_is_answered() {
    let shop = Shop::open().await;
    let (waiting, running, nobody) =
        (shop.pending("default").await, shop.running("mail").await, JobId::generate());
    let [a, b, c] = [waiting, running, nobody].map(|id| id.to_string());
    let answers = json(&shop.url, &["jobs", "cancel", &a, &b, &c, "--reason", "rain"]);
    assert_eq!(
        each(&answers["jobs"], "answer"),
        ["is cancelled", "is told to stop; it runs", "there is no such job"]
    );
    let job = shop.store.find(&[waiting]).await.unwrap().pop().unwrap().unwrap();
    assert_eq!((job.status, job.cancel_reason.as_deref()), (JobStatus::Canceled, Some("rain")));

    let again = run(&shop.url, &["jobs", "cancel", &a]);
    assert_eq!(again.status.code(), Some(1), "nothing was changed");
    assert_eq!(text(&again.stdout), format!("{a}  unchanged: it is CANCELED\n"));
}

#[tokio::test]
async fn jobs_are_paused_resumed_and_retried() {
    let shop = Shop::open().await;
    let waiting = shop.pending("default").await;
    let failed = shop.failed("no eggs", 1).await[0];
    let [a, b] = [waiting, failed].map(|id| id.to_string());
    assert_eq!(said(&shop.url, &["jobs", "pause", &a]), format!("{a}  is paused\n"));
    assert_eq!(shop.store.status_of(waiting).await.unwrap(), Some(JobStatus::Paused));
    assert_eq!(said(&shop.url, &["jobs", "resume", &a]), format!("{a}  is resumed: PENDING again\n"));
    assert_eq!(shop.store.status_of(waiting).await.unwrap(), Some(JobStatus::Pending));

    let some = said(&shop.url, &["jobs", "retry", &a, &b]);
    assert_eq!(some, format!("{a}  unchanged: it is PENDING\n{b}  is retried: PENDING again\n"));
    let job = shop.store.find(&[failed]).await.unwrap().pop().unwrap().unwrap();
    assert_eq!((job.status, job.attempts, job.last_error), (JobStatus::Pending, 0, None));
    assert_eq!(run(&shop.url, &["jobs", "retry", &a, &b]).status.code(), Some(1));
}

#[tokio::test]
async fn a_dead_letter_whose_key_is_taken_says_by_whom() {
    let shop = Shop::open().await;
    let failed = shop.failed_with_key("order-7").await;
    let holder = shop.keyed("order-7").await;
    let output = run(&shop.url, &["jobs", "retry", &failed.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("{failed}  unchanged: job {holder} has its business key order-7\n");
    assert_eq!(text(&output.stdout), expected);
}

#[tokio::test]
async fn dead_letters_are_retried_by_group_and_all() {
    let shop = Shop::open().await;
    let eggs = shop.failed("no eggs", 3).await;
    let flour = shop.failed("no flour", 2).await;
    let groups = json(&shop.url, &["dlq", "list"]);
    assert_eq!(each(&groups["groups"], "error"), ["OvenError: no eggs", "OvenError: no flour"]);
    assert_eq!(groups["groups"][0]["newest"], eggs[2].to_string());
    let fingerprint = groups["groups"][0]["fingerprint"].as_str().unwrap().to_owned();
    assert!(said(&shop.url, &["dlq", "list"]).contains(&fingerprint));

    let unsure = refused(&shop.url, &["dlq", "retry", &fingerprint]);
    assert_eq!(unsure, "error: 3 jobs will be retried: say --yes if that is meant\n");
    let revived = json(&shop.url, &["dlq", "retry", &fingerprint, "--yes"]);
    assert_eq!((&revived["done"], &revived["key_taken"]), (&3.into(), &Value::Array(vec![])));
    for (jobs, status) in [(&eggs, JobStatus::Pending), (&flour, JobStatus::Failed)] {
        for job in jobs {
            assert_eq!(shop.store.status_of(*job).await.unwrap(), Some(status));
        }
    }
    let none = run(&shop.url, &["dlq", "retry", "--fingerprint", &fingerprint, "--yes"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), "No job matches.\n"));
    assert_eq!(said(&shop.url, &["dlq", "retry", "--all", "--yes"]), "2 jobs retried.\n");
    let none = run(&shop.url, &["dlq", "retry", "--all"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), "No job matches.\n"));
    assert_eq!(said(&shop.url, &["dlq", "list"]), "There are no dead letters.\n");
    assert_eq!(run(&shop.url, &["dlq", "retry"]).status.code(), Some(2), "which ones?");
}

#[tokio::test]
async fn many_dead_letters_show_progress() {
    let shop = Shop::open().await;
    shop.failed("no sugar", 620).await;
    let output = run(&shop.url, &["dlq", "retry", "--all", "--yes"]);
    assert_eq!(text(&output.stdout), "620 jobs retried.\n");
    assert_eq!(text(&output.stderr), "500 retried so far\n620 retried so far\n");
}

#[tokio::test]
async fn jobs_are_cancelled_by_what_they_have_in_common() {
    let shop = Shop::open().await;
    let (mail, other) = (shop.pending("mail").await, shop.pending("default").await);
    let (tagged, running) = (shop.tagged(&["eu"]).await, shop.running("mail").await);
    let unsure = refused(&shop.url, &["jobs", "cancel", "--queue", "mail"]);
    assert_eq!(unsure, "error: 2 jobs will be cancelled: say --yes if that is meant\n");
    let cancel = |arguments: &[&str]| json(&shop.url, &[&["jobs", "cancel", "--yes"], arguments].concat());
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
    assert_eq!(said(&shop.url, &["jobs", "cancel", "--all", "--yes"]), "1 job cancelled.\n");
    let (none, both) = (["jobs", "cancel", "--yes"], ["jobs", "cancel", "--all", "--queue", "mail"]);
    assert_eq!(run(&shop.url, &none).status.code(), Some(2), "which ones?");
    assert_eq!(run(&shop.url, &both).status.code(), Some(2), "all, or some?");
}

#[tokio::test]
async fn failed_jobs_are_retried_by_when_they_ended_and_up_to_a_limit() {
    let shop = Shop::open().await;
    let failed = shop.failed("no eggs", 5).await;
    let future = "2999-01-01T00:00:00Z";
    let none = run(&shop.url, &["jobs", "retry", "--ended-from", future, "--yes"]);
    assert_eq!(text(&none.stdout), "No job matches.\n");
    let some = ["jobs", "retry", "--target", "shop.Oven", "--ended-until", future, "--limit", "2", "--yes"];
    assert_eq!(said(&shop.url, &some), "2 jobs retried.\n");
    for (job, status) in failed.iter().rev().zip([JobStatus::Pending, JobStatus::Pending, JobStatus::Failed])
    {
        assert_eq!(shop.store.status_of(*job).await.unwrap(), Some(status), "newest first");
    }
    assert_eq!(run(&shop.url, &["jobs", "retry", "--ended-from", "noon"]).status.code(), Some(2));
}

#[tokio::test]
async fn dead_letters_that_lost_their_key_are_named_and_the_rest_is_retried() {
    let shop = Shop::open().await;
    let lost = shop.failed_with_key("order-7").await;
    let holder = shop.keyed("order-7").await;
    shop.failed("no eggs", 1).await;
    let answer = said(&shop.url, &["dlq", "retry", "--all", "--yes"]);
    let expected = format!(
        "{lost}  unchanged: job {holder} has its business key, or that of a dependent\n1 of 2 jobs retried.\n"
    );
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn queues_are_shown_paused_and_resumed() {
    let shop = Shop::open().await;
    assert_eq!(said(&shop.url, &["queues"]), "No queue has a job.\n");
    shop.pending("mail").await;
    assert_eq!(said(&shop.url, &["queues", "pause", "mail"]), "Queue mail is now paused.\n");
    assert_eq!(said(&shop.url, &["queues", "pause", "mail"]), "Queue mail was already paused.\n");
    let queues = json(&shop.url, &["queues"]);
    assert_eq!(
        (&queues["queues"][0]["name"], &queues["queues"][0]["paused"]),
        (&"mail".into(), &true.into())
    );
    assert_eq!(queues["queues"][0]["ready_by_priority"]["normal"], 1);
    let resumed = json(&shop.url, &["queues", "resume", "mail"]);
    assert_eq!(resumed, serde_json::json!({ "queue": "mail", "paused": false, "changed": true }));
    assert!(said(&shop.url, &["queues"]).contains("open"));
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
    let shop = Shop::open().await;
    shop.came_from_the_future().await;
    for command in [&["status"][..], &["jobs", "list"], &["migrate"]] {
        let error = refused(&shop.url, command);
        assert!(error.contains("version 999") && error.contains("use the newer program"), "{error}");
        assert_eq!(error.matches("newer program").count(), 1, "each reason once: {error}");
    }
    let status = run(&shop.url, &["migrate", "--status"]);
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
        assert_eq!(error.contains(&format!("--features {feature}")), !built_in, "{error}");
    }
}

#[tokio::test]
async fn stored_text_does_not_steer_the_terminal() {
    let shop = Shop::open().await;
    let job = shop.keyed("\u{1b}[2Jgone").await;
    let screen = said(&shop.url, &["jobs", "show", &job.to_string()]);
    assert!(screen.contains("\\u{1b}[2Jgone") && !screen.contains('\u{1b}'), "{screen}");
}

/// Clears the screen in one character, turns the line around, and ends it.
const HOSTILE: &str = "a\u{9b}2J\u{202e}b\u{2028}c\u{2066}d\u{1b}]0;e\u{7f}\u{feff}";
/// What names may have of it.
const HOSTILE_NAME: &str = "a\u{202e}b\u{2028}c\u{2066}";

#[tokio::test]
async fn no_text_that_is_stored_reaches_the_terminal_as_it_is() {
    let shop = Shop::open().await;
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
            let shown = said(&shop.url, &[command, json].concat());
            let raw = shown.chars().find(|c| HOSTILE.contains(*c) && !c.is_ascii_graphic());
            assert_eq!(raw, None, "{command:?} {json:?}: {shown}");
            assert!(!shown.contains("\nforged"), "{command:?} {json:?}: {shown}");
        }
    }
    let story = json(&shop.url, &["jobs", "show", &job]);
    assert_eq!(story["job"]["business_key"], format!("{HOSTILE}\nforged"), "the value is the same");
    assert_eq!(story["job"]["call"]["payload"]["args"][0], HOSTILE_NAME);

    let taken = run(&shop.url, &["jobs", "retry", &failed]);
    let taken = text(&taken.stdout);
    assert!(taken.contains("has its business key") && !taken.contains("\nforged"), "{taken}");
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_trouble() {
    let shop = Shop::open().await;
    for _ in 0..3 {
        shop.pending("default").await;
    }
    for arguments in [&["jobs", "list"][..], &["status", "--json"], &["--help"]] {
        let mut child =
            ratchet(&shop.url, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
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
    let summary = "15 jobs succeeded, 1 failed for good, 1 cancelled; 3 were tried again.";
    assert!(screen.contains(summary), "{screen}");
    let counts = |status| json(&url, &["jobs", "list", "--status", status])["jobs"].as_array().unwrap().len();
    assert_eq!(["succeeded", "failed", "canceled"].map(counts), [15, 1, 1]);
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::{json, refused, run, said, shop, text};
    use ratchet_api::Submission;
    use ratchet_api::store::JobBulkStore as _;
    use ratchet_servers::Server;
    use ratchet_store_core::{Dialect, Namespace, Statement};
    use ratchet_store_postgres::{PostgresOptions, PostgresStore};
    use sqlx::{Connection as _, PgConnection};

    #[tokio::test]
    async fn a_schema_that_is_not_migrated_is_refused_with_advice_until_it_is() {
        let url = ratchet_servers::url(Server::Postgres).unwrap_or_else(|error| panic!("{error}"));
        let schema = format!("cli_{}", ratchet_api::JobId::generate().as_uuid().simple());
        let on = |arguments: &[&'static str]| [arguments, &["--schema", schema.clone().leak()]].concat();

        assert!(refused(&url, &on(&["status"])).contains("run `ratchet migrate`"));
        assert_eq!(run(&url, &on(&["migrate", "--status"])).status.code(), Some(1));
        assert!(said(&url, &on(&["migrate"])).contains("1 version was applied"));
        assert_eq!(json(&url, &on(&["migrate", "--status"]))["current"], true);
        let status = said(&url, &on(&["status"]));
        assert!(status.starts_with("Store  postgres at postgres"), "{status}");
        assert_eq!(said(&url, &on(&["jobs", "list"])), "No job matches.\n");

        let mut options = PostgresOptions::default();
        let namespace = Namespace::schema(&schema).unwrap();
        options.namespace = namespace.clone();
        let store = PostgresStore::connect(&url, options).await.unwrap();
        let job = shop::call("shop.Till");
        let id: &str = job.spec.id.to_string().leak();
        store.insert(&[Submission::single(job)]).await.unwrap();
        assert_eq!(json(&url, &on(&["jobs", "list"]))["jobs"][0]["id"], id);
        assert_eq!(said(&url, &on(&["jobs", "cancel", id])), format!("{id}  is cancelled\n"));
        assert_eq!(json(&url, &on(&["jobs", "show", id]))["job"]["status"], "CANCELED");
        let many: Vec<_> = (0..3).map(|_| Submission::single(shop::call("shop.Till"))).collect();
        store.insert(&many).await.unwrap();
        let some = on(&["jobs", "cancel", "--target", "shop.Till", "--limit", "2", "--yes"]);
        assert_eq!(said(&url, &some), "2 jobs cancelled.\n");
        store.close().await;

        assert!(
            text(&run(&url, &on(&["jobs", "list", "--prefix", "x_"])).stderr).contains("exclude each other")
        );

        let mut server = PgConnection::connect(&url).await.unwrap();
        let drop = Statement::compile("DROP SCHEMA ratchet CASCADE", Dialect::Postgres, &namespace).unwrap();
        sqlx::raw_sql(drop.sql()).execute(&mut server).await.unwrap();
    }
}

#[cfg(feature = "mongodb")]
#[test]
fn a_mongodb_without_collections_is_refused_with_advice() {
    let url =
        ratchet_servers::url(ratchet_servers::Server::Mongodb).unwrap_or_else(|error| panic!("{error}"));
    for command in [&["status"][..], &["jobs", "list"], &["dlq", "list"], &["queues"]] {
        let error = refused(&url, &[command, &["--schema", "cli_nobody_made_this"]].concat());
        assert!(error.contains("run `ratchet migrate`"), "{error}");
    }
}
