//! A short torture run with every change: five kills and five freezes per store, a short lease.

use std::process::Command;

/// Runs the program. Returns whether it succeeded, and its output.
fn torture(args: &[&str]) -> (bool, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_ratchet-torture")).arg("run").args(args).output();
    let run = run.expect("it runs");
    let (told, went) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    (run.status.success(), format!("{told}\n{went}"))
}

fn survives(args: &[&str]) {
    let (good, told) = torture(args);
    assert!(good && told.contains("lost or stuck 0"), "{told}");
}

fn notices_spoiling(store: &str) {
    let (good, told) = torture(&["--store", store, "--faults", "0", "--jobs", "20", "--spoil"]);
    assert!(!good, "{told}");
    assert!(told.contains("lost or stuck 1"), "{told}");
    assert!(told.contains("stale or second outcomes 2"), "{told}");
}

#[test]
fn a_lost_job_and_a_second_outcome_are_noticed() {
    notices_spoiling("sqlite");
}

#[test]
fn a_lost_job_and_a_second_outcome_are_noticed_by_a_change_stream() {
    notices_spoiling("mongodb");
}

#[test]
fn kills_and_freezes_lose_nothing_on_sqlite() {
    survives(&["--store", "sqlite", "--scenario", "chaos", "--faults", "10", "--jobs", "500"]);
}

#[test]
fn kills_and_freezes_lose_nothing_on_postgres() {
    survives(&["--store", "postgres", "--scenario", "chaos", "--faults", "10", "--jobs", "500"]);
}

#[test]
fn kills_and_freezes_lose_nothing_on_mongodb() {
    survives(&["--store", "mongodb", "--scenario", "chaos", "--faults", "10", "--jobs", "500"]);
}

#[test]
fn a_failover_of_the_database_loses_nothing_on_postgres() {
    survives(&["--store", "postgres", "--scenario", "failover", "--faults", "1", "--jobs", "200"]);
}

#[test]
fn a_kill_and_a_step_down_of_the_primary_lose_nothing_on_mongodb() {
    survives(&["--store", "mongodb", "--scenario", "failover", "--faults", "2", "--jobs", "300"]);
}

#[test]
fn an_outage_of_the_database_loses_nothing_on_postgres() {
    survives(&["--store", "postgres", "--scenario", "outage", "--faults", "1", "--jobs", "200"]);
}

#[test]
fn an_outage_of_the_database_loses_nothing_on_mongodb() {
    survives(&["--store", "mongodb", "--scenario", "outage", "--faults", "1", "--jobs", "200"]);
}

#[test]
fn jobs_that_end_their_process_are_found_and_no_other_is_blamed_on_sqlite() {
    survives(&["--store", "sqlite", "--scenario", "poison-process", "--faults", "2", "--jobs", "300"]);
}

#[test]
fn jobs_that_end_their_process_are_found_and_no_other_is_blamed_on_postgres() {
    survives(&["--store", "postgres", "--scenario", "poison-process", "--faults", "2", "--jobs", "300"]);
}

#[test]
fn jobs_that_end_their_process_are_found_and_no_other_is_blamed_on_mongodb() {
    survives(&["--store", "mongodb", "--scenario", "poison-process", "--faults", "2", "--jobs", "300"]);
}
