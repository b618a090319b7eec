//! The reports of panics. Panic hooks belong to the process, so each test runs this program once more.

use std::panic;
use std::process::Command;
use std::thread;

use async_trait::async_trait;
use ratchet_api::spi::{HookError, SchedulerLifecycleHook};
use ratchet_store_memory::MemoryStore;

use crate::{Call, JobContext, JobFailure, Method, Ratchet};

/// Runs one of the ignored tests below in a process of its own; returns its stdout and stderr.
fn run(test: &str) -> (String, String) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let test = format!("panics::tests::{test}");
    let output = program.args(["--exact", &test, "--ignored", "--nocapture"]).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stdout}{stderr}");
    (stdout, stderr)
}

async fn body(ctx: JobContext, (text, how): (String, String)) -> Result<(), JobFailure> {
    match how.as_str() {
        "at once" => panic!("{text}"),
        "in a task" => Ok(tokio::spawn(ctx.scope(async move { panic!("{text}") })).await?),
        other => Err(JobFailure::new("Unknown", other)),
    }
}

/// Panics with a secret as soon as the node has started.
struct PanickingHook;

#[async_trait]
impl SchedulerLifecycleHook for PanickingHook {
    async fn after_start(&self) -> Result<(), HookError> {
        panic!("password=hunter2 of a hook");
    }
}

/// Runs jobs and a lifecycle hook that panic with a secret, and panics once outside of them.
async fn panicking_node() {
    let node = Ratchet::builder(MemoryStore::default())
        .allow(["test."])
        .method(Method::function("test.Panics", "run", body).unwrap())
        .hook(PanickingHook)
        .start()
        .await
        .unwrap();
    for how in ["at once", "in a task"] {
        let call: Call<()> = Call::new("test.Panics", "run").arg("password=hunter2\nERROR forged").arg(how);
        let job = node.enqueue(call).submit().await.unwrap();
        job.ended().await.unwrap();
        println!("job {} panicked {how}", job.id());
    }
    thread::spawn(|| panic!("outside of jobs")).join().unwrap_err();
    node.stop().await;
}

#[tokio::test]
#[ignore = "run by the tests below"]
async fn node_with_the_standard_hook() {
    panicking_node().await;
}

#[tokio::test]
#[ignore = "run by the tests below"]
async fn node_with_a_hook_of_its_own() {
    panic::set_hook(Box::new(|info| println!("seen: {}", info.location().unwrap().file())));
    panicking_node().await;
}

#[test]
fn the_text_of_a_panicking_job_is_sanitized_and_names_the_job() {
    let (stdout, stderr) = run("node_with_the_standard_hook");
    assert!(!stderr.contains("hunter2") && !stdout.contains("hunter2"), "{stdout}{stderr}");
    assert!(!stderr.lines().any(|line| line.starts_with("ERROR forged")), "{stderr}");
    let jobs: Vec<&str> =
        stdout.lines().filter_map(|line| line.strip_prefix("job ")?.split(' ').next()).collect();
    assert_eq!(jobs.len(), 2, "{stdout}");
    for job in jobs {
        let wanted = format!(" in job {job}: Panic: password=[REDACTED]");
        assert!(
            stderr.lines().any(|line| line.contains("panics/tests.rs:") && line.contains(&wanted)),
            "{stderr}"
        );
    }
    assert!(stderr.contains(" in a lifecycle hook: Panic: password=[REDACTED] of a hook"), "{stderr}");
    assert!(stderr.contains("outside of jobs"), "the standard hook tells about the others: {stderr}");
}

#[test]
fn a_hook_that_was_there_before_is_called_for_every_panic() {
    let (stdout, stderr) = run("node_with_a_hook_of_its_own");
    assert_eq!(stdout.matches("seen: ").count(), 4, "{stdout}");
    assert!(!stderr.contains("panicked at"), "{stderr}");
}
