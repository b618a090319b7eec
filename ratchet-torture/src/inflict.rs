//! Injects the faults, and derives from the evidence how long work stopped because of them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use crate::fleet::Fleet;
use crate::ledger::{self, Run as Ran};
use crate::plan::{Fault, Step};
use crate::witness::{Change, Hold, Witness};

/// The variable with the name of the file from which libfaketime reads the clock.
const CLOCK: &str = "FAKETIME_TIMESTAMP_FILE";
/// A period in which the database could not be used, by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Absence {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// Injects all faults. Returns the periods in which the database was away.
pub(crate) async fn inflict(
    mut fleet: Fleet,
    witness: &dyn Witness,
    steps: &[Step],
) -> Result<(Fleet, Vec<Absence>)> {
    let mut absences = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        eprint!("\rfault {} of {}: {:?}                    ", at + 1, steps.len(), step.fault);
        sleep(step.after).await;
        let from = ledger::now();
        let back = inflict_one(&mut fleet, witness, step.fault).await?;
        absences.extend(back.map(|until| Absence { from, until }));
    }
    eprintln!();
    Ok((fleet, absences))
}

/// Injects one fault. Returns when the database was back, if it was away.
async fn inflict_one(fleet: &mut Fleet, witness: &dyn Witness, fault: Fault) -> Result<Option<i64>> {
    match fault {
        Fault::Kill(worker) => fleet.kill(worker).await?,
        Fault::Term(worker) => fleet.ask_to_end(worker).await?,
        Fault::Freeze(worker, time) => {
            fleet.freeze(worker).await?;
            sleep(time).await;
            fleet.thaw(worker).await?;
        }
        Fault::Outage(time) => {
            witness.cut().await?;
            sleep(time).await;
            witness.mend().await?;
            return Ok(Some(ledger::now()));
        }
        Fault::DiskFull(time) => {
            witness.fill_disk().await?;
            sleep(time).await;
            witness.free_disk().await?;
            return Ok(Some(ledger::now()));
        }
        Fault::Restart => {
            anyhow::ensure!(witness.crash().await?, "this store has no server to restart");
            return Ok(Some(ledger::now()));
        }
        Fault::Failover(reading) => return witness.fail_over(reading).await.map(Some),
        Fault::StepDown => return witness.step_down().await.map(Some),
        Fault::SetClock(shows) => set_clock(shows)?,
        Fault::None => {}
    }
    Ok(None)
}

/// Sets the clock of this process, its workers and its database, all of which run under libfaketime.
fn set_clock(shows: &str) -> Result<()> {
    let file =
        std::env::var_os(CLOCK).with_context(|| format!("{CLOCK} is not set; use `cargo xtask torture`"))?;
    // Atomically: other processes read it all the time.
    let new = PathBuf::from(&file).with_extension("new");
    std::fs::write(&new, format!("{shows}\n"))?;
    Ok(std::fs::rename(new, file)?)
}

/// The time from `at` until a body ended.
pub(crate) fn first_end(at: i64, runs: &[Ran]) -> Option<i64> {
    runs.iter().filter_map(|run| run.ended).filter(|ended| *ended >= at).min().map(|ended| ended - at)
}

/// For each absence, the longest interval between two of these instants that overlaps it.
pub(crate) fn gaps(absences: &[Absence], mut instants: Vec<i64>) -> Vec<i64> {
    instants.sort_unstable();
    let longest = |away: &Absence| {
        let around = |[last, next]: &&[i64; 2]| *last <= away.until && *next >= away.from;
        instants.array_windows().filter(around).map(|[last, next]| next - last).max()
    };
    absences.iter().filter_map(longest).collect()
}

/// The time from `at` until a job was claimed, by the clock of the database, which is that of this machine.
pub(crate) fn first_claim(at: i64, changes: &[Change]) -> Option<i64> {
    let claimed = |change: &&Change| {
        let owner = |hold: &Option<Hold>| hold.as_ref().is_some_and(|hold| hold.owner.is_some());
        change.at >= at && !owner(&change.old) && owner(&change.new)
    };
    changes.iter().filter(claimed).map(|change| change.at - at).min()
}

#[cfg(test)]
mod tests {
    use ratchet_api::JobId;

    use super::*;

    #[test]
    fn a_gap_is_the_longest_time_between_two_instants_around_an_absence() {
        let around = |from, until| gaps(&[Absence { from, until }], vec![2_000, 10, 500, 520, 530, 700, 705]);
        assert_eq!(around(525, 701), [170]);
        assert_eq!(around(600, 610), [170]);
        assert_eq!(around(3_000, 3_010), [0; 0], "nothing came after it");
    }

    #[test]
    fn work_goes_on_with_the_next_end_of_a_body() {
        let (job, other) = (JobId::generate(), JobId::generate());
        let run = |job, fence, process: &str, started, ended| Ran {
            job,
            fence,
            process: process.to_owned(),
            started,
            told: None,
            ended,
        };
        let runs = [
            run(job, 2, "a", 90, None),
            run(job, 5, "b", 250, Some(260)),
            run(job, 8, "c", 900, Some(910)),
            run(other, 2, "a", 80, Some(95)),
        ];
        assert_eq!(first_end(100, &runs), Some(160));
        assert_eq!(first_end(1_000, &runs), None);
    }
}
