//! Controls by operators and programs on damaged rows: each is carried out or refused with a reason, and no call fails.

use std::time::Duration;

use futures::StreamExt as _;
use ratchet_api::store::JobStore;
use ratchet_api::{Fingerprint, JobId, LockName, NewDlqAlert, Owner, ResourceLimit, StoreError};

use crate::damages::Damage;
use crate::scenes::SCENES;
use crate::stage::{Instance, named, text};

/// Makes a call that touches each damaged row; returns the ones that failed.
pub(crate) async fn all(
    store: &dyn JobStore,
    built: &[Vec<Instance>],
    damages: &[Vec<&Damage>],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((scene, instances), damages) in SCENES.iter().zip(built).zip(damages) {
        let steer = |(instance, damage): (&'_ Instance, &'_ &Damage)| {
            let (instance, damage) = (instance.clone(), damage.to_string());
            async move { one(store, scene.name, &instance).await.err().map(|error| format!("{damage}: {error}")) }
        };
        let steered = futures::stream::iter(instances.iter().zip(damages).map(steer)).buffer_unordered(16);
        wrong.extend(steered.filter_map(std::future::ready).collect::<Vec<_>>().await);
    }
    wrong
}

async fn one(store: &dyn JobStore, scene: &str, instance: &Instance) -> Result<(), StoreError> {
    const MOMENT: Duration = Duration::from_secs(1);
    match (scene, instance.texts.first(), instance.jobs.first()) {
        ("locked", Some(name), _) => {
            let name = LockName::new(name.clone()).expect("a name");
            let lease = store.try_lock(&name, MOMENT, &Owner::incarnate("operator")).await?;
            if let Some(lease) = lease {
                store.renew_lock(&lease, MOMENT).await?;
                store.unlock(&lease).await?;
            }
        }
        ("paused_queue", Some(name), _) => drop(store.set_queue_paused(&named(name), false).await?),
        ("limited", Some(name), _) => store.configure_resource(&ResourceLimit::new(named(name), 2)).await?,
        ("failed", Some(print), Some(job)) => drop(store.record_alerts(&[alert(*job, print)]).await?),
        ("linked", _, Some(job)) => drop(store.cancel(&[(*job).into()], &text("not needed")).await?),
        ("paused", _, Some(job)) => drop(store.resume(&[(*job).into()]).await?),
        ("waiting", _, Some(job)) => drop(store.retry(&[(*job).into()]).await?),
        _ => {}
    }
    Ok(())
}

fn alert(job: JobId, print: &str) -> NewDlqAlert {
    let fingerprint = Fingerprint::from_stored(print);
    NewDlqAlert { job, error_hash: "hash".to_owned(), fingerprint, window: Duration::from_secs(1) }
}
