//! The steps that users and nodes can take, and the generator of random sequences of them.

use std::fmt;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use ratchet_api::{Backoff, JobPriority};

/// The number of nodes.
pub(crate) const NODES: usize = 2;
/// The number of different business keys, and of idempotency keys.
pub(crate) const KEYS: u8 = 3;
/// The maximum length of a sequence.
const MOST_STEPS: usize = 40;

/// A reference to a stored job: an index, taken modulo the number of jobs.
pub(crate) type Pick = usize;

/// One action of a user or a node, or a change of the environment.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Submit(Order),
    /// Submits a job that replaces another one.
    Replace(Pick, Order),
    /// Submits a job together with the outcome of the running body.
    Enqueue(Order),
    Cancel(Pick),
    Pause(Pick),
    Resume(Pick),
    Retry(Pick),
    /// Lets a node run everything that is due.
    Run(usize),
    /// Moves the clock.
    Advance(Duration),
    Queue {
        paused: bool,
    },
    Breaker {
        open: bool,
    },
    /// Sets the limit of the resource.
    Limit(u32),
}

/// A job as it is submitted.
#[derive(Clone, Default)]
pub(crate) struct Order {
    pub(crate) priority: JobPriority,
    pub(crate) delay: Duration,
    pub(crate) expires: Option<Duration>,
    pub(crate) business_key: Option<u8>,
    pub(crate) idempotency_key: Option<u8>,
    pub(crate) resource: bool,
    pub(crate) target: Target,
    pub(crate) max_retries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) parents: Vec<(Pick, On)>,
    /// Whether one satisfied parent is enough.
    pub(crate) any_parent: bool,
    /// The script of its runs, one after the other; it succeeds once they are used up.
    pub(crate) runs: Vec<Run>,
}

/// The target of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Target {
    #[default]
    Known,
    /// A known target behind a breaker.
    Guarded,
    /// A target that no node knows.
    Unknown,
    /// A target that no node knows and that the policy denies.
    Denied,
}

/// The condition of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Success,
    Failure,
}

/// One run of a body: the steps meanwhile, and its end.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) meanwhile: Vec<Step>,
    pub(crate) end: End,
}

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeed,
    Fail,
    DoNotRetry,
    RetryAfter(Duration),
    Snooze(Duration),
    Panic,
    /// The body hangs until its timeout.
    Hang,
}

impl Order {
    /// Whether its time is limited. No step is taken during its runs then, since the limit is in real time.
    pub(crate) fn is_limited(&self) -> bool {
        self.runs.iter().any(|run| run.end == End::Hang)
    }
}

impl fmt::Debug for Order {
    /// Shows only the fields that differ from the default: people read the sequences that fail.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::default();
        let mut order = f.debug_struct("Order");
        macro_rules! show {
            ($($field:ident)*) => {
                $(if format!("{:?}", self.$field) != format!("{:?}", plain.$field) {
                    order.field(stringify!($field), &self.$field);
                })*
            };
        }
        show!(priority delay expires business_key idempotency_key resource target max_retries backoff parents any_parent runs);
        order.finish()
    }
}

/// Generates a sequence.
pub(crate) fn sequence() -> impl Strategy<Value = Vec<Step>> {
    vec(step(true), 1..=MOST_STEPS)
}

/// Generates a step; with `deep`, its bodies may take steps too.
fn step(deep: bool) -> BoxedStrategy<Step> {
    let pick = || 0_usize..16;
    prop_oneof![
        8 => order(deep).prop_map(Step::Submit),
        1 => (pick(), order(deep)).prop_map(|(old, order)| Step::Replace(old, order)),
        1 => order(deep).prop_map(Step::Enqueue),
        2 => pick().prop_map(Step::Cancel),
        2 => pick().prop_map(Step::Pause),
        2 => pick().prop_map(Step::Resume),
        3 => pick().prop_map(Step::Retry),
        9 => (0..NODES).prop_map(Step::Run),
        5 => select(vec![secs(1), secs(10), mins(1), mins(20), mins(120)]).prop_map(Step::Advance),
        1 => any::<bool>().prop_map(|paused| Step::Queue { paused }),
        1 => any::<bool>().prop_map(|open| Step::Breaker { open }),
        1 => (0_u32..3).prop_map(Step::Limit),
    ]
    .boxed()
}

fn order(deep: bool) -> impl Strategy<Value = Order> {
    let when = (
        select(vec![JobPriority::Normal, JobPriority::Lowest, JobPriority::High, JobPriority::Critical]),
        prop_oneof![3 => Just(Duration::ZERO), 1 => select(vec![secs(10), mins(1), mins(20)])],
        weighted(0.1, select(vec![secs(10), mins(1), mins(20)])),
    );
    let keys = (weighted(0.4, 0..KEYS), weighted(0.1, 0..KEYS), prop::bool::weighted(0.3));
    let call = (
        prop_oneof![
            12 => Just(Target::Known),
            2 => Just(Target::Guarded),
            1 => Just(Target::Unknown),
            1 => Just(Target::Denied),
        ],
        0_u32..3,
        select(vec![Backoff::None, Backoff::Fixed(secs(10)), Backoff::Exponential(secs(10))]),
    );
    let on = prop_oneof![3 => Just(On::Success), 1 => Just(On::Failure)];
    let parents =
        (prop_oneof![2 => Just(vec![]), 1 => vec((0_usize..16, on), 1..3)], prop::bool::weighted(0.3));
    (when, keys, call, parents, vec(run(deep), 0..3)).prop_map(
        |(
            (priority, delay, expires),
            (business_key, idempotency_key, resource),
            (target, max_retries, backoff),
            (parents, any_parent),
            runs,
        )| Order {
            priority,
            delay,
            expires,
            business_key,
            idempotency_key,
            resource,
            target,
            max_retries,
            backoff,
            parents,
            any_parent,
            runs,
        },
    )
}

fn run(deep: bool) -> BoxedStrategy<Run> {
    let end = prop_oneof![
        4 => Just(End::Succeed),
        8 => Just(End::Fail),
        2 => Just(End::DoNotRetry),
        1 => Just(End::RetryAfter(secs(30))),
        2 => select(vec![Duration::ZERO, secs(10)]).prop_map(End::Snooze),
        2 => Just(End::Panic),
        1 => Just(End::Hang),
    ];
    if deep {
        (vec(step(false), 0..3), end).prop_map(|(meanwhile, end)| Run { meanwhile, end }).boxed()
    } else {
        end.prop_map(|end| Run { meanwhile: Vec::new(), end }).boxed()
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn mins(mins: u64) -> Duration {
    secs(60 * mins)
}
