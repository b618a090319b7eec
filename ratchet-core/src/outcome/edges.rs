//! The effects of a job's end on the edges that lead from it. Pure.

use std::cmp::Ordering;

use ratchet_api::{Comparison, Condition, Edge, EdgeState, Effect, JobStatus, JsonText, ResultTest};
use serde_json::Value;

/// The effects of an end on open edges, in the order of their priorities.
pub(crate) fn decide(edges: &[Edge], status: JobStatus, result: Option<&JsonText>) -> Vec<Effect> {
    let value: Value = result.and_then(|result| result.decode().ok()).unwrap_or_default();
    let open = edges.iter().filter(|edge| edge.state == EdgeState::Open);
    let effect = |edge: &Edge| match holds(&edge.condition, status, &value) {
        true => Effect::Satisfy(edge.child),
        false => Effect::Refuse(edge.child),
    };
    open.map(effect).collect()
}

fn holds(condition: &Condition, status: JobStatus, result: &Value) -> bool {
    let succeeded = status == JobStatus::Succeeded;
    match condition {
        Condition::Success => succeeded,
        Condition::Failure => status == JobStatus::Failed,
        Condition::ResultValue(test) => succeeded && passes(test, result),
        // An unknown predicate never holds, and a job without a batch satisfies no condition on one.
        Condition::Custom(_)
        | Condition::BatchSuccess
        | Condition::BatchFailure
        | Condition::BatchSuccessRate(_)
        | Condition::BatchFailureCount(_)
        | Condition::BatchCustom(_) => false,
    }
}

/// Whether a result passes a test. A missing value equals null, and is neither less nor greater than anything.
fn passes(test: &ResultTest, result: &Value) -> bool {
    let found = result.pointer(&test.pointer).unwrap_or(&Value::Null);
    let order = compare(found, &test.value);
    match test.op {
        Comparison::Eq => order == Some(Ordering::Equal),
        Comparison::Ne => order != Some(Ordering::Equal),
        Comparison::Lt => order == Some(Ordering::Less),
        Comparison::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Gt => order == Some(Ordering::Greater),
        Comparison::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Compares two values. Numbers and strings have an order; everything else is equal or not.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) => (a == b).then_some(Ordering::Equal),
    }
}

#[cfg(test)]
mod tests {
    use ratchet_api::JobId;
    use serde_json::json;

    use super::*;

    fn decided(condition: Condition, status: JobStatus, result: Option<&str>) -> bool {
        let edge = Edge::new(JobId::generate(), JobId::generate(), condition);
        let result = result.map(|text| JsonText::parse(text).unwrap());
        let effects = decide(std::slice::from_ref(&edge), status, result.as_ref());
        match effects.as_slice() {
            [Effect::Satisfy(child)] if *child == edge.child => true,
            [Effect::Refuse(child)] if *child == edge.child => false,
            other => panic!("one effect on the child, not {other:?}"),
        }
    }

    #[test]
    fn success_and_failure_follow_from_the_status() {
        for (condition, status, holds) in [
            (Condition::Success, JobStatus::Succeeded, true),
            (Condition::Success, JobStatus::Failed, false),
            (Condition::Failure, JobStatus::Failed, true),
            (Condition::Failure, JobStatus::Canceled, false),
            (Condition::Custom("nobody's".into()), JobStatus::Succeeded, false),
        ] {
            assert_eq!(decided(condition.clone(), status, None), holds, "{condition:?} {status}");
        }
    }

    #[test]
    fn a_result_is_compared_by_pointer_number_and_text() {
        let test = |pointer: &str, op, value| {
            Condition::ResultValue(ResultTest { pointer: pointer.to_owned(), op, value })
        };
        let result = Some(r#"{"sum": 12, "name": "b", "list": [1.5], "large": 9007199254740993}"#);
        for (condition, holds) in [
            (test("/sum", Comparison::Gt, json!(10)), true),
            (test("/sum", Comparison::Lt, json!(12)), false),
            (test("/sum", Comparison::Le, json!(12.0)), true),
            (test("/name", Comparison::Ge, json!("a")), true),
            (test("/name", Comparison::Gt, json!(1)), false),
            (test("/list/0", Comparison::Eq, json!(1.5)), true),
            // Both are the same as floating-point numbers.
            (test("/large", Comparison::Gt, json!(9_007_199_254_740_992_u64)), true),
            (test("/nothing", Comparison::Eq, json!(null)), true),
            (test("/nothing", Comparison::Ne, json!(1)), true),
            (test("", Comparison::Ne, json!({})), true),
        ] {
            assert_eq!(decided(condition.clone(), JobStatus::Succeeded, result), holds, "{condition:?}");
            assert!(!decided(condition, JobStatus::Failed, result), "a failed parent has no result");
        }
    }

    #[test]
    fn an_edge_that_is_decided_is_left_alone() {
        let mut edge = Edge::new(JobId::generate(), JobId::generate(), Condition::Success);
        edge.state = EdgeState::Refused;
        assert_eq!(decide(&[edge], JobStatus::Succeeded, None), []);
    }
}
