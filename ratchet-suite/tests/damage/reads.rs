//! Reads by people and tools: each is answered, whatever is stored.

use std::collections::{HashMap, HashSet};

use futures::StreamExt as _;
use ratchet_api::store::{ArchiveFilter, JobFilter, JobStore, PageRequest};
use ratchet_api::{JobId, StoreError, StoreErrorKind};

use crate::damages::Damage;
use crate::innocent::Innocents;
use crate::world::name;

/// Makes every kind of read; returns the ones that failed.
pub(crate) async fn all(store: &dyn JobStore, innocents: &Innocents) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |what: &str, answer: Result<(), StoreError>| {
        if let Err(error) = answer {
            wrong.push(format!("{what} is not answered: {error}"));
        }
    };
    expect("queue_health", store.queue_health().await.map(drop));
    expect("dead_letters", store.dead_letters(1_000).await.map(drop));
    expect("nodes", store.nodes().await.map(drop));
    expect("recurring", store.recurring().await.map(drop));
    expect("resources", store.resources().await.map(drop));
    expect("paused_queues", store.paused_queues().await.map(drop));
    expect("batches", store.batches(None, 10_000).await.map(drop));
    expect("archived", store.archived(&ArchiveFilter::default(), 10_000).await.map(drop));
    wrong.extend(listed(store, innocents).await);
    wrong
}

/// Reads the history of each damaged job: it is shown, or the reply says that the row cannot be read.
pub(crate) async fn stories(store: &dyn JobStore, victims: &HashMap<JobId, &Damage>) -> Vec<String> {
    let ask = |job: JobId| async move {
        let error = store.job_story(job).await.err().filter(|error| error.kind() != StoreErrorKind::Corrupt);
        error.map(|error| format!("{}: explain fails: {error}", name(victims, job)))
    };
    let asked = futures::stream::iter(victims.keys().copied().map(ask)).buffer_unordered(16);
    asked.filter_map(std::future::ready).collect().await
}

/// Checks that page after page lists every innocent job once.
async fn listed(store: &dyn JobStore, innocents: &Innocents) -> Option<String> {
    let (mut seen, mut page) = (HashSet::new(), PageRequest::first(500));
    loop {
        let answer = match store.query_jobs(&JobFilter::default(), &page).await {
            Ok(answer) => answer,
            Err(error) => return Some(format!("query_jobs is not answered: {error}")),
        };
        for job in &answer.jobs {
            if !seen.insert(job.spec.id) {
                return Some(format!("job {} is listed twice", job.spec.id));
            }
        }
        match answer.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    let missing: Vec<_> = innocents.ids().iter().filter(|job| !seen.contains(job)).collect();
    (!missing.is_empty()).then(|| format!("{} innocent jobs are not listed", missing.len()))
}
