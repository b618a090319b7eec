//! Shows that the suite has teeth: `cargo xtask tck --mutants`.
//!
//! Each mutant is a store or an engine that breaks one rule. The tests run against every one of them and have to notice.
//! A mutant that passes is a missing case; one that does not compile or no longer fits shows nothing and is
//! an error of the bank.

mod bank;
mod report;
mod scratch;
mod worker;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Result, bail};

pub(crate) use self::report::{Entry, Report, inputs};
use self::{
    bank::Mutant,
    scratch::Scratch,
    worker::{Fate, Worker},
};
use crate::servers::{self, Name, Running};

/// How many mutants are tried at once, unless told.
pub(crate) const WORKERS: usize = 2;

/// Tries all mutants, or those whose name or area a filter names; an error unless each is caught.
pub(crate) fn run(workspace: &Path, filters: &[String], workers: usize) -> Result<()> {
    let begun = Instant::now();
    let bank = bank::load(workspace)?;
    let inputs = inputs(workspace)?;
    let total = bank.len();
    let queue = select(bank, filters)?;
    let workers = workers.clamp(1, queue.len());
    let wanted = queue.len();
    let entries = servers::during(workspace, &servers_for(&queue), false, |running| {
        try_all(prepare(workspace, workers, running)?, queue)
    })?;

    let mut report = Report::read(workspace).unwrap_or_default();
    report.merge(inputs, total, entries.clone());
    report.write(workspace)?;
    let caught = entries.iter().filter(|entry| entry.is_caught()).count();
    println!("{caught}/{wanted} mutants caught in {:.0} s", begun.elapsed().as_secs_f64());
    if caught < wanted {
        bail!("{} mutants were not caught", wanted - caught);
    }
    Ok(())
}

/// The mutants to try, in an order that makes workers change suites and crates seldom.
fn select(bank: Vec<Mutant>, filters: &[String]) -> Result<VecDeque<Mutant>> {
    let wanted = |mutant: &Mutant| {
        filters.is_empty() || filters.iter().any(|f| mutant.area == *f || mutant.name.contains(f.as_str()))
    };
    let mut chosen: Vec<Mutant> = bank.into_iter().filter(wanted).collect();
    if chosen.is_empty() {
        bail!("no mutant is called like {}", filters.join(" or "));
    }
    // Within a suite the crate that the others build on comes last: its mutants cost the longest builds, and
    // taking the last one back costs one more.
    chosen.sort_by(|a, b| (a.suite, Reverse(&a.file)).cmp(&(b.suite, Reverse(&b.file))));
    Ok(chosen.into())
}

/// What the suites of these mutants need.
fn servers_for(queue: &VecDeque<Mutant>) -> Vec<Name> {
    let needed: BTreeSet<Name> = queue.iter().flat_map(|mutant| mutant.suite.servers()).copied().collect();
    needed.into_iter().collect()
}

fn prepare(workspace: &Path, count: usize, running: &[Running]) -> Result<Vec<Worker>> {
    let cores = thread::available_parallelism().map_or(1, usize::from).div_ceil(count);
    let mut workers = Vec::new();
    for number in 0..count {
        let scratch = Scratch::new(workspace, number);
        scratch.refresh(workspace)?;
        workers.push(Worker::new(scratch, cores, running));
    }
    if let [first, others @ ..] = workers.as_slice()
        && others.iter().any(|other| !other.is_warm())
    {
        println!("building the suites once for all workers");
        first.warm_up()?;
        others.iter().try_for_each(|other| other.take_over(first))?;
    }
    Ok(workers)
}

fn try_all(workers: Vec<Worker>, queue: VecDeque<Mutant>) -> Result<Vec<Entry>> {
    let queue = Queue(Mutex::new(queue));
    let work = |mut worker: Worker| -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        while let Some(mutant) = queue.next() {
            // Whatever stops one worker would stop the others too.
            let fate = worker.try_mutant(&mutant).inspect_err(|_| queue.clear())?;
            println!("{}", line(&mutant, &fate));
            entries.push(Entry::new(&mutant, &fate));
        }
        Ok(entries)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| work(worker))).collect();
        let mut entries = Vec::new();
        for thread in threads {
            entries.extend(thread.join().unwrap_or_else(|_| bail!("a worker broke off"))?);
        }
        Ok(entries)
    })
}

/// Mutants that nobody has taken yet.
struct Queue(Mutex<VecDeque<Mutant>>);

impl Queue {
    fn next(&self) -> Option<Mutant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// One line of progress.
fn line(mutant: &Mutant, fate: &Fate) -> String {
    let name = format!("{:<44}", mutant.name);
    match fate {
        Fate::Caught(by) => format!("caught  {name} by {}", killers(mutant, by)),
        Fate::Hung(by) if by.is_empty() => format!("caught  {name} by timeout"),
        Fate::Hung(by) => format!("caught  {name} by timeout and {}", killers(mutant, by)),
        Fate::Crashed => format!("caught  {name} by a crash of the suite"),
        Fate::Missed => format!("MISSED  {name} {}", mutant.rule),
        Fate::Broken(errors) => format!("BROKEN  {name} does not compile:\n{errors}"),
    }
}

/// One test that stands for all: from the mutant's own area, if there is one.
fn killers(mutant: &Mutant, by: &[String]) -> String {
    let own = |test: &&String| test.split_once("::").is_some_and(|(area, _)| area == mutant.area);
    let told = by.iter().find(own).or_else(|| by.first()).map_or("", String::as_str);
    match by.len() {
        0 | 1 => told.to_owned(),
        count => format!("{told} (+{} more)", count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bank::Suite;

    fn mutant(area: &str, name: &str, suite: Suite) -> Mutant {
        let (area, name, rule) = (area.into(), name.into(), "a rule".into());
        Mutant { area, name, rule, file: String::new(), edits: Vec::new(), suite, only: None }
    }

    fn names(bank: &[Mutant], filters: &[&str]) -> Result<Vec<String>> {
        let filters: Vec<String> = filters.iter().map(|f| (*f).to_owned()).collect();
        Ok(select(bank.to_vec(), &filters)?.into_iter().map(|mutant| mutant.name).collect())
    }

    #[test]
    fn a_filter_is_an_area_or_a_part_of_a_name() {
        let bank = [
            mutant("api", "backoff-grows", Suite::Api),
            mutant("lock", "no-term", Suite::Memory),
            mutant("claim", "claim-lock", Suite::Memory),
        ];
        assert_eq!(names(&bank, &[]).unwrap(), ["no-term", "claim-lock", "backoff-grows"]);
        assert_eq!(names(&bank, &["lock"]).unwrap(), ["no-term", "claim-lock"]);
        assert_eq!(names(&bank, &["term", "api"]).unwrap(), ["no-term", "backoff-grows"]);
        assert!(names(&bank, &["nothing"]).is_err());
    }

    #[test]
    fn only_the_servers_of_the_chosen_suites_are_needed() {
        let queue = |suites: &[Suite]| suites.iter().map(|suite| mutant("a", "b", *suite)).collect();
        assert_eq!(servers_for(&queue(&[Suite::Memory, Suite::Sql])), []);
        let every = [Name::Postgres, Name::Mysql, Name::Mariadb];
        assert_eq!(servers_for(&queue(&[Suite::Ddl, Suite::Api, Suite::Migrate])), every);
    }

    #[test]
    fn a_line_names_a_case_of_the_mutants_own_area() {
        let mutant = mutant("claim", "claim-ignores-due", Suite::Memory);
        let by = ["batch::a", "claim::b", "time::c"].map(str::to_owned).to_vec();
        assert!(line(&mutant, &Fate::Caught(by)).ends_with(" by claim::b (+2 more)"));
        assert!(line(&mutant, &Fate::Hung(vec![])).ends_with(" by timeout"));
        assert!(line(&mutant, &Fate::Missed).starts_with("MISSED  claim-ignores-due"));
    }
}
