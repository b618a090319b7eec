//! A little torture with every change: five kills and five freezes a store, a short lease.

use std::process::Command;

/// Whether all was well, and what was told.
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

#[test]
fn a_lost_job_and_a_second_outcome_are_noticed() {
    let (good, told) = torture(&["--store", "sqlite", "--faults", "0", "--jobs", "20", "--spoil"]);
    assert!(!good, "{told}");
    assert!(told.contains("lost or stuck 1"), "{told}");
    assert!(told.contains("stale or second outcomes 2"), "{told}");
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
fn a_failover_of_the_database_loses_nothing_on_postgres() {
    survives(&["--store", "postgres", "--scenario", "failover", "--faults", "1", "--jobs", "200"]);
}

#[test]
fn an_outage_of_the_database_loses_nothing_on_postgres() {
    survives(&["--store", "postgres", "--scenario", "outage", "--faults", "1", "--jobs", "200"]);
}
