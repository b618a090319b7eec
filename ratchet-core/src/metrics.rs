//! The metrics of a node, which are passed to the application's sink.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratchet_api::spi::{GateRejection, JobLabels, MetricsSink, RunEnd, RunResult, SubmitResult};
use ratchet_api::store::{JobStore, NodeStore};
use ratchet_api::{
    DeadReason, HandBackReason, Inserted, JobClaim, JobSpec, ParkedOn, QueueLimit, StoreResult, Submission,
    Verdict,
};

use crate::outcome::{About, Conclusion};

/// The sink, if there is one. Its panics do no harm.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Option<Arc<Guarded>>);

struct Guarded {
    sink: Box<dyn MetricsSink>,
    panicked: AtomicBool,
}

impl Metrics {
    pub(crate) fn new(sink: impl MetricsSink) -> Self {
        Self(Some(Arc::new(Guarded { sink: Box::new(sink), panicked: AtomicBool::new(false) })))
    }

    /// Calls the sink. A panic of it must not become one of a job, the poller or the heartbeat.
    pub(crate) fn tell(&self, call: impl FnOnce(&dyn MetricsSink)) {
        let Some(guarded) = &self.0 else { return };
        if catch_unwind(AssertUnwindSafe(|| call(&*guarded.sink))).is_err()
            && !guarded.panicked.swap(true, Ordering::Relaxed)
        {
            tracing::error!("the metrics sink panicked: numbers are missing; further panics are not logged");
        }
    }

    /// The same store, with every call measured.
    pub(crate) fn measured(&self, store: Arc<dyn JobStore>) -> Arc<dyn JobStore> {
        match &self.0 {
            Some(_) => Arc::new(Measured { observed: store, metrics: self.clone() }),
            None => store,
        }
    }

    /// The same connection, with every call measured.
    pub(crate) fn measured_nodes(&self, nodes: Box<dyn NodeStore>) -> Box<dyn NodeStore> {
        match &self.0 {
            Some(_) => Box::new(MeasuredNodes { observed: nodes, metrics: self.clone() }),
            None => nodes,
        }
    }

    /// Reports how long a call to the store took.
    async fn observe<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let begun = Instant::now();
        let answer = call.await;
        let error = answer.as_ref().err().map(|error| error.kind());
        self.tell(|sink| sink.store_call(operation, begun.elapsed(), error));
        answer
    }

    /// Reports the result of a submission; `None` if it never reached the store, or the store failed.
    pub(crate) fn submitted(&self, submission: &Submission, inserted: Option<&Inserted>) {
        let result = match inserted {
            Some(Inserted::New) => SubmitResult::New,
            Some(Inserted::Existing(_) | Inserted::AlreadyFired) => SubmitResult::Duplicate,
            Some(Inserted::KeyTaken { .. }) => SubmitResult::KeyTaken,
            Some(Inserted::Refused(_)) | None => SubmitResult::Refused,
        };
        for job in &submission.jobs {
            self.tell(|sink| sink.submitted(&labels_of(&job.spec), result));
        }
    }

    /// Reports how many jobs of each queue a claim returned.
    pub(crate) fn claimed(&self, asked: &[QueueLimit], claims: &[JobClaim]) {
        if self.0.is_none() {
            return;
        }
        for QueueLimit { queue, .. } in asked {
            let count = claims.iter().filter(|claim| claim.queue == *queue).count();
            if count > 0 {
                self.tell(|sink| sink.claimed(queue, count));
            }
        }
    }

    /// Reports how an attempt ended, once the store has answered.
    pub(crate) fn attempted(
        &self,
        about: About<'_>,
        conclusion: &Conclusion,
        verdict: &Verdict,
        ran_for: Option<Duration>,
    ) {
        let labels = labels(about);
        match fact(conclusion, verdict, ran_for) {
            Some(Fact::Ended(result, error_type)) => {
                let (attempt, ran_for) = (about.claim.attempts + 1, ran_for.unwrap_or_default());
                let end = RunEnd::new(result, error_type, attempt, ran_for);
                self.tell(|sink| sink.ended(&labels, &end));
            }
            Some(Fact::Rejected(why)) => self.tell(|sink| sink.gate_rejected(&labels, why)),
            None => {}
        }
        if let (Conclusion::Succeeded { submissions, .. }, Verdict::Recorded(recorded)) =
            (conclusion, verdict)
        {
            for (submission, inserted) in submissions.iter().zip(&recorded.submitted) {
                self.submitted(submission, Some(inserted));
            }
        }
    }
}

/// The fact that is reported about an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Fact<'a> {
    Ended(RunResult, Option<&'a str>),
    Rejected(GateRejection),
}

fn fact<'a>(conclusion: &'a Conclusion, verdict: &Verdict, ran_for: Option<Duration>) -> Option<Fact<'a>> {
    let canceled = match ran_for {
        Some(_) => Fact::Ended(RunResult::Canceled, None),
        None => Fact::Rejected(GateRejection::Gone),
    };
    match verdict {
        Verdict::Recorded(_) | Verdict::AlreadyRecorded => {}
        Verdict::CanceledInstead => return Some(canceled),
        Verdict::LeaseLost | Verdict::EdgesChanged { .. } => return None,
    }
    Some(match conclusion {
        Conclusion::Succeeded { .. } => Fact::Ended(RunResult::Succeeded, None),
        Conclusion::Retry { error, .. } => Fact::Ended(RunResult::Retried, Some(error.class.as_str())),
        Conclusion::Dead { reason: DeadReason::Denied, .. } => Fact::Rejected(GateRejection::Denied),
        Conclusion::Dead { reason: DeadReason::UnknownTarget, .. } => {
            Fact::Rejected(GateRejection::UnknownTarget)
        }
        Conclusion::Dead { error, .. } => {
            ran_for?;
            Fact::Ended(RunResult::Dead, Some(error.class.as_str()))
        }
        Conclusion::Canceled { .. } => canceled,
        Conclusion::Crashed { .. } => return None,
        Conclusion::Park { on } => match on {
            ParkedOn::Method(_) => Fact::Rejected(GateRejection::UnknownTarget),
            ParkedOn::Resource(_) => Fact::Rejected(GateRejection::ResourceFull),
            _ => return None,
        },
        Conclusion::HandBack { reason, .. } => match reason {
            HandBackReason::BreakerOpen => Fact::Rejected(GateRejection::BreakerOpen),
            HandBackReason::UnknownTarget => Fact::Rejected(GateRejection::UnknownTarget),
            HandBackReason::Snoozed => Fact::Ended(RunResult::Snoozed, None),
            _ => return None,
        },
    })
}

/// The labels of a claimed job.
pub(crate) fn labels(about: About<'_>) -> JobLabels<'_> {
    let payload = about.job.map(|job| &job.spec.payload);
    JobLabels {
        queue: &about.claim.queue,
        target: payload.map(|payload| payload.target()),
        method: payload.map(|payload| payload.method()),
        job_type: about.claim.job_type,
        priority: about.claim.priority,
    }
}

fn labels_of(spec: &JobSpec) -> JobLabels<'_> {
    JobLabels {
        queue: &spec.queue,
        target: Some(spec.payload.target()),
        method: Some(spec.payload.method()),
        job_type: spec.job_type,
        priority: spec.priority,
    }
}

/// A store whose calls are measured.
struct Measured {
    observed: Arc<dyn JobStore>,
    metrics: Metrics,
}

impl Measured {
    async fn observe<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        self.metrics.observe(operation, call).await
    }
}

ratchet_api::delegate_store!(Measured => observed:
    StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, LockStore, NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore,
    WorkflowConditionStore, BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

/// A dedicated connection whose calls are measured.
struct MeasuredNodes {
    observed: Box<dyn NodeStore>,
    metrics: Metrics,
}

impl MeasuredNodes {
    async fn observe<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        self.metrics.observe(operation, call).await
    }
}

ratchet_api::delegate_store!(MeasuredNodes => observed: NodeStore);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use ratchet_api::{ErrorRecord, JobFailure, Recorded, ResourceName, Sanitized};

    use super::*;
    use crate::defaults::DefaultErrorSanitizer;

    fn text(text: &str) -> Sanitized {
        Sanitized::new(&DefaultErrorSanitizer::default(), &JobFailure::new("", text))
    }

    #[test]
    fn an_attempt_is_told_by_what_was_recorded() {
        let error = || ErrorRecord::new("a.B", text("Down"), text("Down: not yet"));
        let back = |reason| Conclusion::HandBack { delay: Duration::ZERO, reason };
        let dead = |reason| Conclusion::Dead { error: error(), reason };
        let good = Conclusion::Succeeded { result: None, unkept: None, submissions: Vec::new() };
        let retry = Conclusion::Retry { delay: Duration::ZERO, error: error() };
        let off = Conclusion::Canceled { reason: text("not needed") };
        let recorded = Verdict::Recorded(Recorded::default());
        let (ran, unrun) = (Some(Duration::from_secs(1)), None);
        let ended = |result, class| Some(Fact::Ended(result, class));
        let rejected = |why| Some(Fact::Rejected(why));

        assert_eq!(fact(&good, &recorded, ran), ended(RunResult::Succeeded, None));
        assert_eq!(fact(&good, &Verdict::AlreadyRecorded, ran), ended(RunResult::Succeeded, None));
        assert_eq!(fact(&good, &Verdict::CanceledInstead, ran), ended(RunResult::Canceled, None));
        assert_eq!(fact(&good, &Verdict::LeaseLost, ran), None, "nobody knows what it came to");
        assert_eq!(fact(&retry, &recorded, ran), ended(RunResult::Retried, Some("Down")));
        assert_eq!(fact(&dead(DeadReason::Exhausted), &recorded, ran), ended(RunResult::Dead, Some("Down")));
        assert_eq!(fact(&dead(DeadReason::Crashed), &recorded, unrun), None, "its body ran elsewhere");
        assert_eq!(fact(&dead(DeadReason::Denied), &recorded, unrun), rejected(GateRejection::Denied));
        assert_eq!(
            fact(&dead(DeadReason::UnknownTarget), &recorded, unrun),
            rejected(GateRejection::UnknownTarget)
        );
        assert_eq!(fact(&off, &recorded, ran), ended(RunResult::Canceled, None));
        assert_eq!(fact(&off, &recorded, unrun), rejected(GateRejection::Gone));
        let parked = |on| Conclusion::Park { on };
        let door = ParkedOn::Resource(ResourceName::new("door").unwrap());
        assert_eq!(fact(&parked(door), &recorded, unrun), rejected(GateRejection::ResourceFull));
        let method = ParkedOn::Method("a.B.c".to_owned());
        assert_eq!(fact(&parked(method), &recorded, unrun), rejected(GateRejection::UnknownTarget));
        for (reason, told) in [
            (HandBackReason::BreakerOpen, rejected(GateRejection::BreakerOpen)),
            (HandBackReason::UnknownTarget, rejected(GateRejection::UnknownTarget)),
            (HandBackReason::Snoozed, ended(RunResult::Snoozed, None)),
            (HandBackReason::Released, None),
            (HandBackReason::Crashed, None),
        ] {
            assert_eq!(fact(&back(reason), &recorded, ran), told, "{reason:?}");
        }
    }

    #[test]
    fn a_sink_that_panics_is_called_again_and_harms_nobody() {
        struct Panicking(Arc<AtomicUsize>);
        impl MetricsSink for Panicking {
            fn lease_lost(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
                panic!("on purpose");
            }
        }
        let calls = Arc::<AtomicUsize>::default();
        let metrics = Metrics::new(Panicking(Arc::clone(&calls)));
        metrics.tell(|sink| sink.lease_lost());
        metrics.tell(|sink| sink.lease_lost());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
