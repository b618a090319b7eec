//! The plans of the store's own claims: the server's `auto_explain` sends them to the client.

use anyhow::{Context as _, Result};
use ratchet_api::store::{ClaimRequest, JobClaimStore as _};
use ratchet_api::{StoreClock, Timestamp};
use serde_json::Value;

use super::PgPlace;
use crate::claim::{put_back, still_at};
use crate::notices;
use crate::store::{Plan, TestDatabase as _};

/// A prepared statement may change its plan after five runs.
const CLAIMS: usize = 8;
const TABLE: &str = "scheduler_job_queue";
const SETTINGS: [(&str, &str); 6] = [
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_timing", "off"),
    ("auto_explain.log_format", "json"),
    ("client_min_messages", "log"),
];

/// Claims and puts back a few times; `None` if the server does not show us its plans.
pub(super) async fn plan(
    place: &PgPlace,
    clock: StoreClock,
    request: &ClaimRequest,
    most: u64,
) -> Result<Option<Plan>> {
    let Ok(store) = place.store(&telling(&place.url), clock, 1).await else { return Ok(None) };
    let putting_back = place.connect(still_at(Timestamp::MIN), 1).await?;
    let mut plan = Plan::default();
    for _ in 0..CLAIMS {
        let (claims, said) = notices::during(store.claim(request)).await;
        put_back(putting_back.as_ref(), &request.owner, &claims?).await?;
        for text in said.iter().filter_map(|text| text.split_once("plan:").map(|(_, plan)| plan)) {
            let told: Value = serde_json::from_str(text).context("a plan cannot be read")?;
            examine(&told["Plan"], most, &mut plan);
        }
    }
    store.close().await;
    Ok(plan.most_read.is_some().then_some(plan))
}

/// The URL with the settings of `auto_explain` for every session.
fn telling(url: &str) -> String {
    let settings: Vec<String> =
        SETTINGS.iter().map(|(name, value)| format!("-c%20{name}%3D{value}")).collect();
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}options={}", settings.join("%20"))
}

/// Examines a node and all below it.
fn examine(node: &Value, most: u64, plan: &mut Plan) {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let rows = rows(node);
    if node["Relation Name"] == TABLE && kind.contains("Scan") {
        plan.most_read = plan.most_read.max(Some(rows));
        let index = node["Index Name"].as_str().map(|name| format!(" by {name}")).unwrap_or_default();
        if rows > most {
            plan.objections.push(format!("a {kind}{index} reads {rows} rows (at most {most})"));
        }
        if kind == "Seq Scan" {
            plan.objections.push(format!("a Seq Scan of {TABLE}"));
        }
    }
    for below in node["Plans"].as_array().into_iter().flatten() {
        if kind.contains("Sort") && self::rows(below) > most {
            plan.objections.push(format!("a {kind} of {} rows (at most {most})", self::rows(below)));
        }
        examine(below, most, plan);
    }
}

/// The rows that a node read in all its runs, whether they passed its filter or not.
fn rows(node: &Value) -> u64 {
    let number = |name: &str| node[name].as_f64().unwrap_or_default();
    let read =
        number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    (read * number("Actual Loops")).round() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scan_of_heads_is_fine_and_a_sort_of_the_due_is_not() {
        let head =
            json!({"Node Type": "Index Scan", "Relation Name": TABLE, "Actual Rows": 66, "Actual Loops": 5});
        let mut plan = Plan::default();
        examine(&json!({"Node Type": "Limit", "Plans": [head]}), 1_000, &mut plan);
        assert!(plan.objections.is_empty());
        assert_eq!(plan.most_read, Some(330));

        let all = json!({"Node Type": "Seq Scan", "Relation Name": TABLE, "Actual Rows": 900,
            "Rows Removed by Filter": 600, "Actual Loops": 1});
        examine(&json!({"Node Type": "Sort", "Plans": [all]}), 1_000, &mut plan);
        assert_eq!(plan.objections.len(), 3, "{:?}", plan.objections);
    }
}
