//! The plan of faults. Pure: the same seed gives the same plan.

use std::time::Duration;

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::witness::StoreName;

/// The kind of faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Kill workers with SIGKILL; they start again at once under the same name
    Kill,
    /// Stop workers with SIGSTOP for longer than the lease, then continue them
    Freeze,
    /// End workers with SIGTERM; they start again when they have ended
    Term,
    /// Crash the database and start it again
    Restart,
    /// Cut all connections to the database for longer than the lease
    Outage,
    /// Fill the disk of the database for a while
    DiskFull,
    /// Kill the primary. PostgreSQL: its synchronous standby is promoted behind a proxy. MongoDB: the two other members
    /// elect one of them; of three faults, two tell the primary to step down instead
    Failover,
    /// Run bodies that keep every thread of the runtime busy, without other faults
    Spin,
    /// Run workers whose clocks are an hour ahead and an hour behind
    Clocks,
    /// Set the clock of the machine an hour ahead and an hour back, and that of the database with it
    Steps,
    /// Kill every worker before it has lived for a whole lease
    Crashloop,
    /// Submit one job per fault that ends the process that runs it: abort, exit, stack overflow, out of memory
    PoisonProcess,
    /// Kill and freeze workers
    Chaos,
}

/// A fault, and the wait before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) after: Duration,
    pub(crate) fault: Fault,
}

/// A single fault. Workers are given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill(usize),
    /// The worker, and for how long.
    Freeze(usize, Duration),
    Term(usize),
    Restart,
    Outage(Duration),
    /// For how long nothing can be written to the disk.
    DiskFull(Duration),
    /// The new clock, as libfaketime reads it.
    SetClock(&'static str),
    /// For how long the standby is read-only before it is promoted.
    Failover(Duration),
    /// The primary steps down in favor of another member.
    StepDown,
    /// No injected fault: the bodies or the clocks cause the trouble.
    None,
}

/// A plan of `faults` faults. Those that take a while are followed by the next when they are over.
pub(crate) fn plan(
    scenario: Scenario,
    store: StoreName,
    seed: u64,
    faults: usize,
    workers: usize,
    lease: Duration,
) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps: Vec<Step> = (0..faults).map(|at| step(scenario, &mut rng, at, workers, lease)).collect();
    if (scenario, store) == (Scenario::Failover, StoreName::Mongodb) {
        let planned = steps.iter_mut().enumerate().filter(|(at, _)| !at.is_multiple_of(3));
        planned.for_each(|(_, step)| step.fault = Fault::StepDown);
    }
    steps
}

/// How long the disk is full.
const DISK_FULL: Duration = Duration::from_secs(10);

/// The clock settings of the machine in turn: an hour ahead and back, an hour back and ahead.
const CLOCKS: [&str; 4] = ["+1h", "+0", "-1h", "+0"];

fn step(scenario: Scenario, rng: &mut StdRng, at: usize, workers: usize, lease: Duration) -> Step {
    let (worker, longer) = (rng.random_range(0..workers), lease.mul_f64(rng.random_range(1.1..2.0)));
    let (fault, most) = match scenario {
        Scenario::Kill => (Fault::Kill(worker), lease * 2),
        Scenario::Freeze => (Fault::Freeze(worker, longer), lease / 4),
        Scenario::Chaos if at.is_multiple_of(2) => (Fault::Kill(worker), lease / 4),
        Scenario::Chaos => (Fault::Freeze(worker, longer), lease / 4),
        Scenario::Term => (Fault::Term(worker), lease / 2),
        Scenario::Restart => (Fault::Restart, lease * 3),
        Scenario::Outage => (Fault::Outage(lease * 3), lease * 3),
        Scenario::DiskFull => (Fault::DiskFull(DISK_FULL), lease * 3),
        Scenario::Steps => (Fault::SetClock(CLOCKS[at % CLOCKS.len()]), lease * 6),
        // In turn and without randomness, so that no worker lives for longer than most of a lease.
        Scenario::Crashloop => {
            let after = lease.mul_f64(0.85 / workers as f64);
            return Step { after, fault: Fault::Kill(at % workers) };
        }
        Scenario::Failover => (Fault::Failover(lease.mul_f64(rng.random_range(0.1..1.5))), lease * 3),
        Scenario::PoisonProcess => return Step { after: Duration::ZERO, fault: Fault::None },
        Scenario::Spin | Scenario::Clocks => (Fault::None, lease / 2),
    };
    Step { after: most.mul_f64(rng.random()), fault }
}

/// The approximate duration of a plan.
pub(crate) fn duration(plan: &[Step]) -> Duration {
    let lasts = |fault: Fault| match fault {
        Fault::Freeze(_, time) | Fault::Outage(time) | Fault::DiskFull(time) => time,
        Fault::Restart | Fault::StepDown => Duration::from_secs(2),
        // Including the start of a standby for the new primary.
        Fault::Failover(time) => time + Duration::from_secs(12),
        Fault::Kill(_) | Fault::Term(_) | Fault::SetClock(_) | Fault::None => Duration::from_millis(300),
    };
    plan.iter().map(|step| step.after + lasts(step.fault)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    #[test]
    fn a_seed_gives_one_plan() {
        let of_seed = |seed| plan(Scenario::Chaos, StoreName::Sqlite, seed, 20, 3, LEASE);
        assert_eq!(of_seed(1), of_seed(1));
        assert_ne!(of_seed(1), of_seed(2));
    }

    #[test]
    fn whoever_is_frozen_outlives_its_lease() {
        for step in plan(Scenario::Freeze, StoreName::Sqlite, 7, 100, 3, LEASE) {
            assert!(matches!(step.fault, Fault::Freeze(worker, time) if worker < 3 && time > LEASE));
        }
    }

    #[test]
    fn in_a_crash_loop_nobody_lives_for_a_lease() {
        let steps = plan(Scenario::Crashloop, StoreName::Sqlite, 7, 30, 3, LEASE);
        let life: Duration = steps.iter().take(3).map(|step| step.after).sum();
        assert!(life > LEASE / 2 && life < LEASE, "{life:?}");
        assert!(steps.iter().enumerate().all(|(at, step)| step.fault == Fault::Kill(at % 3)));
    }

    #[test]
    fn chaos_is_half_kills_and_half_freezes() {
        let kills = plan(Scenario::Chaos, StoreName::Sqlite, 3, 200, 3, LEASE);
        assert_eq!(kills.iter().filter(|step| matches!(step.fault, Fault::Kill(_))).count(), 100);
    }

    #[test]
    fn of_three_failovers_of_a_replica_set_two_are_planned() {
        let killed = |store| {
            let steps = plan(Scenario::Failover, store, 3, 15, 3, LEASE);
            steps.iter().filter(|step| matches!(step.fault, Fault::Failover(_))).count()
        };
        assert_eq!(killed(StoreName::Mongodb), 5);
        assert_eq!(killed(StoreName::Postgres), 15);
    }
}
