use super::*;

const A: &str = "a/1";
const B: &str = "b/1";

fn hold(status: &str, owner: Option<&str>, fence: i64) -> Option<Hold> {
    Some(Hold { status: status.to_owned(), owner: owner.map(str::to_owned), fence })
}

fn change(job: JobId, at: i64, old: Option<Hold>, new: Option<Hold>) -> Change {
    Change { job, at, old, new, old_lease: None, due: Some(at) }
}

fn run(job: JobId, fence: i64) -> Run {
    Run { job, fence, process: "p".to_owned(), started: 0, told: None, ended: Some(1) }
}

fn recorded(job: JobId, fence: i64, owner: &str, result: &str) -> Recorded {
    Recorded { job, fence, owner: owner.to_owned(), result: result.to_owned() }
}

/// A job that crashed with one owner, was taken over by another, and succeeded there.
fn good() -> (JobId, Evidence) {
    let job = JobId::generate();
    let taken = change(job, 30, hold("RUNNING", Some(A), 2), hold("RUNNING", Some(B), 3));
    let evidence = Evidence {
        accepted: vec![job],
        runs: vec![run(job, 2), run(job, 5)],
        changes: vec![
            change(job, 10, None, hold("PENDING", None, 1)),
            change(job, 20, hold("PENDING", None, 1), hold("RUNNING", Some(A), 2)),
            Change { old_lease: Some(29), ..taken },
            change(job, 31, hold("RUNNING", Some(B), 3), hold("PENDING", None, 4)),
            change(job, 40, hold("PENDING", None, 4), hold("RUNNING", Some(B), 5)),
            change(job, 50, hold("RUNNING", Some(B), 5), None),
        ],
        recorded: vec![recorded(job, 3, B, "CRASHED"), recorded(job, 5, B, "SUCCEEDED")],
        ends: HashMap::from([(job, End { status: JobStatus::Succeeded, attempts: 0, crashes: 1 })]),
        guilty: HashSet::new(),
    };
    (job, evidence)
}

/// The violations found after a change of this evidence.
fn found(spoil: impl FnOnce(JobId, &mut Evidence)) -> Vec<&'static str> {
    let (job, mut evidence) = good();
    spoil(job, &mut evidence);
    check(&evidence, 3).into_iter().map(|violation| violation.invariant).collect()
}

fn end(evidence: &mut Evidence, change: impl FnOnce(&mut End)) {
    change(evidence.ends.values_mut().next().expect("a job"));
}

#[test]
fn a_good_story_has_no_violation() {
    assert_eq!(found(|_, _| {}), [""; 0]);
}

#[test]
fn a_job_that_was_accepted_and_is_gone_is_lost() {
    assert_eq!(found(|_, evidence| evidence.ends.clear()), ["I1"]);
}

#[test]
fn a_job_that_never_ends_is_stuck() {
    let stuck = found(|_, evidence| {
        evidence.changes.pop();
        evidence.recorded.pop();
        end(evidence, |end| end.status = JobStatus::Running);
    });
    assert_eq!(stuck, ["I1"]);
}

#[test]
fn a_job_that_succeeded_without_a_run_did_not() {
    let never = found(|_, evidence| {
        evidence.runs.clear();
        end(evidence, |end| end.crashes = 0);
    });
    assert_eq!(never, ["I2"]);
}

#[test]
fn an_outcome_of_whoever_lost_the_job_is_stale() {
    assert_eq!(found(|job, evidence| evidence.recorded.push(recorded(job, 3, A, "FAILED"))), ["I11", "I3"]);
    assert_eq!(found(|job, evidence| evidence.recorded[1] = recorded(job, 2, A, "SUCCEEDED")), ["I3"]);
}

#[test]
fn a_second_success_is_one_too_many() {
    assert_eq!(found(|job, evidence| evidence.recorded.push(recorded(job, 2, A, "SUCCEEDED"))), ["I3"]);
}

#[test]
fn a_job_is_not_taken_from_the_living() {
    assert_eq!(found(|_, evidence| evidence.changes[2].old_lease = Some(31)), ["I4"]);
    assert_eq!(found(|_, evidence| evidence.changes[2].old_lease = None), [""; 0], "its row is gone");
}

#[test]
fn a_claim_before_the_due_time_is_early() {
    assert_eq!(found(|_, evidence| evidence.changes[1].due = Some(21)), ["early"]);
    assert_eq!(found(|_, evidence| evidence.changes[2].due = Some(99)), [""; 0], "no claim");
}

#[test]
fn a_move_that_is_not_in_the_table_is_found() {
    let born = found(|_, evidence| evidence.changes[0].new = hold("PAUSED", None, 1));
    assert_eq!(born, ["I5"]);
    let ended = found(|_, evidence| evidence.changes[5].old = hold("PENDING", None, 5));
    assert_eq!(ended, ["I5"], "what waits does not succeed");
}

#[test]
fn runs_failures_and_crashes_are_counted() {
    assert_eq!(found(|job, evidence| evidence.runs.push(run(job, 5))), ["I11"]);
    assert_eq!(found(|job, evidence| evidence.runs.push(run(job, 9))), ["I11"]);
    assert_eq!(found(|_, evidence| end(evidence, |end| end.attempts = 1)), ["I11"]);
    assert_eq!(found(|_, evidence| end(evidence, |end| end.crashes = 5)), ["I11"]);
}

#[test]
fn who_is_blamed_wrongly_or_not_at_all_is_noticed() {
    let guilty = |job, evidence: &mut Evidence| assert!(evidence.guilty.insert(job));
    assert_eq!(found(guilty), ["blame"], "it succeeded");
    let wronged = found(|_, evidence| end(evidence, |end| end.status = JobStatus::Failed));
    assert!(wronged.contains(&"blame"), "{wronged:?}");
    let known = found(|job, evidence| {
        guilty(job, evidence);
        end(evidence, |end| end.status = JobStatus::Failed);
        evidence.recorded[1].result = "FAILED".to_owned();
    });
    assert_eq!(known, [""; 0], "its end is no failed attempt");
}
