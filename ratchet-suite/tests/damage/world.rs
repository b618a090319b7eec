//! A store with many damages at once, a node that works on it, and the checks that must hold nevertheless.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_api::store::JobStore;
use ratchet_api::{JobId, JobStatus, Owner, ResourceLimit};
use ratchet_core::{JobContext, JobFailure, Ratchet, Scheduler, jobs};

use crate::damages::Damage;
use crate::innocent::Innocents;
use crate::scenes::SCENES;
use crate::stage::{Instance, Stage, named};
use crate::tables::{Hit, Row, Tables, Wrong};
use crate::watch::{Log, Watched, warnings};
use crate::{reads, steer};

/// The result of a world.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) applied: usize,
    pub(crate) refused: usize,
    pub(crate) violations: Vec<String>,
    /// Whether each violation names its damage.
    pub(crate) named: bool,
}

const LEASE: Duration = Duration::from_secs(3);
const BEAT: Duration = Duration::from_millis(100);
/// A node is at rest once nothing has changed for so many beats.
const STILL: usize = 8;
/// The number of beats after which it must be at rest: far more than a busy machine needs.
const PATIENCE: usize = 3_000;
/// The number of times that a job may be handed out: at first, after a death, and when its damage is found.
const CLAIMS: usize = 4;

#[derive(Clone, Copy)]
struct Worker;

#[jobs(target = "test.Worker")]
impl Worker {
    #[job]
    async fn work(&self, ctx: &JobContext) -> Result<u32, JobFailure> {
        ctx.info("at work");
        Ok(7)
    }
}

/// The rows of each instance, by scene, instance, table and role.
type Found<'a> = HashMap<(usize, usize, &'a str, usize), &'a Row>;

pub(crate) fn assign<'a>(rows: &'a [Row], built: &[Vec<Instance>]) -> Found<'a> {
    let mut names: HashMap<&str, (usize, usize, usize)> = HashMap::new();
    for (scene, instances) in built.iter().enumerate() {
        for (at, instance) in instances.iter().enumerate() {
            for (role, name) in instance.names.iter().enumerate() {
                names.insert(name, (scene, at, role));
            }
        }
    }
    let mut found = HashMap::new();
    for row in rows {
        let key = row.cells.iter().filter(|cell| cell.in_key);
        let owner = key.chain(&row.cells).find_map(|cell| names.get(cell.content.as_str()));
        if let Some((scene, at, role)) = owner {
            found.entry((*scene, *at, row.table.as_str(), *role)).or_insert(row);
        }
    }
    found
}

pub(crate) async fn stage(tables: &Arc<dyn Tables>) -> Stage {
    let store = tables.connect().await;
    let stage = Stage { store, dying: Owner::incarnate("dying"), cells: Arc::clone(tables) };
    stage.join(&stage.dying).await;
    let shared = ResourceLimit::new(named("shared"), 1_000_000);
    stage.store.configure_resource(&shared).await.expect("it is configured");
    stage
}

/// Applies these damages, each to an instance of its own, while a node works on the same store.
pub(crate) async fn run(tables: Arc<dyn Tables>, damages: &[Damage]) -> Report {
    let stage = stage(&tables).await;
    let mut of_scene: Vec<Vec<&Damage>> = vec![Vec::new(); SCENES.len()];
    damages.iter().for_each(|damage| of_scene[damage.scene].push(damage));
    let mut built = Vec::new();
    for (scene, damages) in SCENES.iter().zip(&of_scene) {
        built.push((scene.build)(&stage, damages.len()).await);
    }
    let mut innocents = Innocents::default();
    innocents.submit(&stage).await;
    stage.die(&stage.dying).await;

    let rows = tables.rows().await;
    let found = assign(&rows, &built);
    let mut hits = Vec::new();
    for (scene, damages) in of_scene.iter().enumerate() {
        for (at, damage) in damages.iter().enumerate() {
            let row = found.get(&(scene, at, damage.table.as_str(), damage.role));
            let row = *row.unwrap_or_else(|| panic!("{damage} has a row"));
            hits.push(Hit { row, column: &damage.column, value: &damage.value });
        }
    }
    let taken = tables.damage(&hits).await;
    let mut report = Report { named: true, ..Report::default() };
    report.applied = taken.iter().filter(|taken| **taken).count();
    report.refused = taken.len() - report.applied;

    let mut victims: HashMap<JobId, &Damage> = HashMap::new();
    for (instances, damages) in built.iter().zip(&of_scene) {
        for (instance, damage) in instances.iter().zip(damages) {
            victims.extend(instance.jobs.iter().map(|job| (*job, *damage)));
        }
    }
    report.violations.extend(reads::all(&*stage.store, &innocents).await);
    let all_ended = async || left_running(&*tables, &built, &of_scene).await.is_empty();
    work(&stage, &mut innocents, &victims, &mut report, all_ended).await;
    report.violations.extend(reads::all(&*stage.store, &innocents).await);
    report.violations.extend(reads::stories(&*stage.store, &victims).await);
    report.violations.extend(steer::all(&*stage.store, &built, &of_scene).await);
    report.violations.extend(left_running(&*tables, &built, &of_scene).await);
    tables.remove().await;
    report
}

pub(crate) async fn node(store: Arc<dyn JobStore>) -> Scheduler {
    let builder = Ratchet::builder_shared(store).register(Worker);
    let builder = builder.allow(["test."]).configure(|options| {
        options.node.lease = LEASE;
        options.node.beat = BEAT;
        options.node.recovery_interval = BEAT;
        options.execution.queue("default").slots = 32;
        options.execution.unknown_target_min_delay = BEAT;
        options.polling.error_delay = BEAT;
        options.recurring.min_poll = BEAT;
        options.recurring.max_poll = BEAT;
        options.retry.drain_interval = BEAT;
        // Jobs that wait for a resource that nobody configured do so quietly.
        options.retry.permit_delay = Duration::from_secs(3_600);
    });
    builder.start().await.expect("the node starts")
}

async fn work(
    stage: &Stage,
    innocents: &mut Innocents,
    victims: &HashMap<JobId, &Damage>,
    report: &mut Report,
    all_ended: impl AsyncFn() -> bool,
) {
    let watched = Watched::new(Arc::clone(&stage.store));
    let log = Arc::clone(&watched.log);
    let before = warnings().len();
    let node = node(Arc::new(watched)).await;
    innocents.submit(stage).await;

    let mut quiet = 0;
    let mut seen = (0, 0);
    for _ in 0..PATIENCE {
        until_next_beat(&log).await;
        let claims = log.lock().expect("nobody panics").claims.values().sum::<usize>();
        let now = (claims, warnings().len());
        quiet = if now == seen && innocents.left(&*stage.store).await.is_empty() { quiet + 1 } else { 0 };
        seen = now;
        if quiet == STILL {
            // On a busy machine it takes a while until the death of the dead is proven and their jobs have run again.
            let idle = stage.store.owned(&node.owner()).await.is_ok_and(|owned| owned.is_empty());
            if idle && all_ended().await {
                break;
            }
            quiet = 0;
        }
    }
    let warned = warnings();
    if quiet < STILL {
        let latest: Vec<_> = warned.iter().skip(before).rev().take(5).collect();
        report.violations.push(format!("the node does not come to rest; it last said {latest:#?}"));
        report.named = false;
    }
    let left = innocents.left(&*stage.store).await;
    if !left.is_empty() {
        report.violations.push(format!("innocent jobs have not succeeded: {left:?}"));
        report.named = false;
    }
    let owned = stage.store.owned(&node.owner()).await.expect("an answer");
    for claim in owned {
        report.violations.push(format!("{} is still held", name(victims, claim.id)));
    }
    {
        let log = log.lock().expect("nobody panics");
        for (job, times) in log.claims.iter().filter(|(_, times)| **times > CLAIMS) {
            report.violations.push(format!("{} was handed out {times} times", name(victims, *job)));
        }
        let mut errors: BTreeMap<&str, usize> = BTreeMap::new();
        log.errors.iter().for_each(|error| *errors.entry(error).or_default() += 1);
        for (error, times) in errors {
            report.violations.push(format!("a call failed {times} times: {error}"));
            report.named = false;
        }
    }
    node.stop().await;
}

/// Waits for the next beat to begin.
async fn until_next_beat(log: &Mutex<Log>) {
    let beats = || log.lock().expect("nobody panics").count("beat");
    let before = beats();
    while beats() == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn name(victims: &HashMap<JobId, &Damage>, job: JobId) -> String {
    victims.get(&job).map_or_else(|| format!("job {job}"), |damage| damage.to_string())
}

/// Returns jobs that are still RUNNING under a dead owner, unless the damaged row is the one by which it is alive.
async fn left_running(
    tables: &dyn Tables,
    built: &[Vec<Instance>],
    of_scene: &[Vec<&Damage>],
) -> Vec<String> {
    let running = tables.text(JobStatus::Running.as_str());
    let rows = tables.rows().await;
    let rows: Vec<Row> = rows
        .into_iter()
        .filter(|row| row.cells.iter().any(|cell| cell.column == "status" && cell.content == running))
        .filter(|row| matches!(row.table.as_str(), "scheduler_job" | "scheduler_job_queue"))
        .collect();
    // A job may have been given to a node whose name is damaged in the same way.
    let renamed = |damage: &Damage| {
        damage.table == "scheduler_node" && matches!(damage.column.as_str(), "node_id" | "_id")
    };
    let renamed: Vec<&Wrong> =
        of_scene.iter().flatten().filter(|damage| renamed(damage)).map(|damage| &damage.value).collect();
    let lives = |damage: &Damage| {
        let of_node = damage.column.ends_with("picked_by") && renamed.contains(&&damage.value);
        damage.table == "scheduler_node" || of_node
    };
    let (mut told, mut left) = (HashSet::new(), Vec::new());
    for (scene, at, ..) in assign(&rows, built).into_keys() {
        let damage = of_scene[scene][at];
        if !lives(damage) && told.insert((scene, at)) {
            left.push(format!("{damage} is left RUNNING"));
        }
    }
    left
}
