//! The plans of the statements of a claim.

use anyhow::{Context as _, Result};
use ratchet_store_core::{Dialect, Namespace, Statement};
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

use crate::store::Plan;

const SCRATCH_TABLES: &str = include_str!("../../../../ratchet-store-sqlite/queries/connect/tables.sql");
const CHOOSE_BEST: &str = include_str!("../../../../ratchet-store-sqlite/queries/connect/choose_best.sql");
const CLAIM: &str = include_str!("../../../../ratchet-store-sqlite/queries/claim/claim.sql");
const QUEUE: &str = "q";

pub(super) async fn plan(connection: &mut SqliteConnection) -> Result<Plan> {
    sqlx::raw_sql(compiled(SCRATCH_TABLES)?.sql()).execute(&mut *connection).await?;
    let mut plan = Plan::default();
    let claim = without_comments(compiled(CLAIM)?.sql().as_str());
    for statement in claim.split(';').map(str::to_owned).chain([heads()?]) {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let steps = sqlx::query(explain).fetch_all(&mut *connection).await?;
        let steps = steps.iter().map(|step| step.try_get("detail")).collect::<Result<Vec<String>, _>>()?;
        examine(&steps, &mut plan);
    }
    Ok(plan)
}

fn compiled(text: &'static str) -> Result<Statement> {
    Ok(Statement::compile(text, Dialect::Sqlite, &Namespace::bare())?)
}

/// Removes comments, which may contain semicolons.
fn without_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    lines.join("\n")
}

/// The statement of the trigger that reads the heads: plans do not include the work of triggers.
fn heads() -> Result<String> {
    let trigger = compiled(CHOOSE_BEST)?.sql();
    let (_, body) =
        trigger.as_str().split_once("INSERT INTO chosen (job_id, now)").context("the trigger has changed")?;
    let (body, _) = body.rsplit_once("END").context("the trigger has no end")?;
    let columns = ["queue", "lim", "boost_ms", "now"].into_iter().zip(1..);
    let body = columns.fold(body.to_owned(), |body, (name, place)| {
        body.replace(&format!("new.{name}"), &format!("?{place}"))
    });
    Ok(body.trim().trim_end_matches(';').to_owned())
}

/// Adds an objection for each scan. A search by the claim index or the primary key is fine. Sorts are judged by their
/// input: heads, or the few rows that were chosen.
fn examine(steps: &[String], plan: &mut Plan) {
    for step in steps {
        let reads_queue = step.split_whitespace().nth(1) == Some(QUEUE);
        let by_key = ["idx_claim_executable", "PRIMARY KEY"].iter().any(|key| step.contains(key));
        if reads_queue && (step.starts_with("SCAN") || !by_key) {
            plan.objections.push(step.clone());
        }
        if step.contains("TEMP B-TREE") && !step.contains("ORDER BY") {
            plan.objections.push(step.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_by_key_is_fine_and_a_scan_is_not() {
        let mut plan = Plan::default();
        let fine = [
            "SEARCH q USING COVERING INDEX idx_claim_executable (queue=? AND priority=?)",
            "SCAN c",
            "SEARCH q USING PRIMARY KEY (job_id=?)",
            "USE TEMP B-TREE FOR ORDER BY",
        ];
        examine(&fine.map(str::to_owned), &mut plan);
        assert!(plan.objections.is_empty(), "{:?}", plan.objections);
        examine(&["SCAN q".to_owned(), "SEARCH q USING INDEX other (x=?)".to_owned()], &mut plan);
        assert_eq!(plan.objections.len(), 2);
    }
}
