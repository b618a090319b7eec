//! The audit trail of dead-letter alerts.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_api::store::DlqAlertStore;
use ratchet_api::{Alerted, DlqAlert, Fingerprint, JobId, NewDlqAlert, StoreResult, Timestamp};

use super::SqlStore;
use crate::store::info::present;
use crate::store::lock_rows::ids_of;
use crate::store::row::{Cells, read_all, read_readable};
use crate::store::session::Session;

#[async_trait]
impl DlqAlertStore for SqlStore {
    async fn record_alerts(&self, alerts: &[NewDlqAlert]) -> StoreResult<Vec<Alerted>> {
        self.transaction("record_alerts", |session| Box::pin(record(session, alerts))).await
    }

    async fn alerts(&self, job: JobId) -> StoreResult<Vec<DlqAlert>> {
        self.read("alerts", |session| Box::pin(alerts_of(session, job))).await
    }
}

/// The alerts of one fingerprint.
struct Group {
    told_at: Timestamp,
    count: u64,
}

/// Records alerts. It locks the groups first, so that each of several recorders sees the alerts of the others, then
/// decides, and writes once.
async fn record(session: &mut Session<'_>, alerts: &[NewDlqAlert]) -> StoreResult<Vec<Alerted>> {
    let mut groups = lock_groups(session, alerts).await?;
    let now = present(session).await?;
    let mut latest = latest_alerts(session, alerts).await?;
    let mut recorded: Vec<&NewDlqAlert> = Vec::new();
    let mut answers = Vec::with_capacity(alerts.len());
    for alert in alerts {
        let Some(group) = groups.get_mut(alert.fingerprint.as_str()) else { continue };
        let twin = latest.get(&(alert.job, alert.error_hash.clone()));
        if twin.is_some_and(|at| now.since(*at) < alert.window) {
            answers.push(Alerted { recorded: false, notify: false, count: group.count });
            continue;
        }
        let notify = group.count == 0 || now.since(group.told_at) >= alert.window;
        if notify {
            *group = Group { told_at: now, count: 0 };
        }
        group.count = group.count.saturating_add(1);
        latest.insert((alert.job, alert.error_hash.clone()), now);
        recorded.push(alert);
        answers.push(Alerted { recorded: true, notify, count: group.count });
    }
    write(session, &recorded, &groups, now).await?;
    Ok(answers)
}

async fn lock_groups(
    session: &mut Session<'_>,
    alerts: &[NewDlqAlert],
) -> StoreResult<HashMap<String, Group>> {
    let lock = session.sql().lock_alert_groups.bind();
    let rows = lock.arg("fingerprints", fingerprints(alerts.iter())).rows(session).await?;
    // A group that cannot be read starts over.
    let group = |cells: Cells<'_>| match (cells.get("told_at"), cells.get("alert_count")) {
        (Ok(told_at), Ok(count)) => Group { told_at, count },
        _ => Group { told_at: Timestamp::MIN, count: 0 },
    };
    let groups =
        read_all(session.op(), &rows, |cells: Cells<'_>| Ok((cells.get("fingerprint")?, group(cells))))?;
    Ok(groups.into_iter().collect())
}

async fn latest_alerts(
    session: &mut Session<'_>,
    alerts: &[NewDlqAlert],
) -> StoreResult<HashMap<(JobId, String), Timestamp>> {
    let latest = session.sql().latest_alerts.bind();
    let rows = latest.arg("job_ids", ids_of(alerts.iter().map(|alert| &alert.job))).rows(session).await?;
    let latest = read_readable(session.op(), "an alert", &rows, |cells| {
        Ok(((cells.get("job_id")?, cells.get("error_hash")?), cells.get("latest")?))
    });
    Ok(latest.into_iter().collect())
}

async fn write(
    session: &mut Session<'_>,
    recorded: &[&NewDlqAlert],
    groups: &HashMap<String, Group>,
    now: Timestamp,
) -> StoreResult<()> {
    if recorded.is_empty() {
        return Ok(());
    }
    let groups: Vec<_> = groups.iter().collect();
    let insert = session.sql().insert_alerts.bind();
    insert
        .arg("now", now)
        .arg("job_ids", ids_of(recorded.iter().map(|alert| &alert.job)))
        .arg("error_hashes", recorded.iter().map(|alert| alert.error_hash.as_str()).collect::<Vec<_>>())
        .arg("fingerprints", fingerprints(recorded.iter().copied()))
        .arg("groups", groups.iter().map(|(fingerprint, _)| fingerprint.as_str()).collect::<Vec<_>>())
        .arg("told_at", groups.iter().map(|(_, group)| group.told_at).collect::<Vec<_>>())
        .arg(
            "counts",
            groups.iter().map(|(_, g)| i64::try_from(g.count).unwrap_or(i64::MAX)).collect::<Vec<_>>(),
        )
        .run(session)
        .await?;
    Ok(())
}

fn fingerprints<'a>(alerts: impl Iterator<Item = &'a NewDlqAlert>) -> Vec<&'a str> {
    alerts.map(|alert| alert.fingerprint.as_str()).collect()
}

/// The alerts of a job, oldest first.
pub(crate) async fn alerts_of(session: &mut Session<'_>, job: JobId) -> StoreResult<Vec<DlqAlert>> {
    let rows = session.sql().alerts.bind().arg("job_id", job).rows(session).await?;
    Ok(read_readable(session.op(), "an alert", &rows, |cells| {
        let fingerprint = Fingerprint::from_stored(cells.get::<String>("fingerprint")?);
        Ok(DlqAlert::new(
            cells.get("job_id")?,
            cells.get("error_hash")?,
            fingerprint,
            cells.get("alert_sent_at")?,
        ))
    }))
}
