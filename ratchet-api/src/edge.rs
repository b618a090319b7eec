//! Edges between jobs: a child waits for a parent, under a condition.

use serde::{Deserialize, Serialize};

use crate::{JobId, JobStatus, JsonText, UnknownValue};

/// A dependency: `child` waits until it is decided whether `parent` satisfies the condition.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Edge {
    /// The job that is waited for.
    pub parent: JobId,
    /// The job that waits.
    pub child: JobId,
    /// When the edge is satisfied.
    pub condition: Condition,
    /// Order of evaluation among the edges of one parent, lowest first.
    pub priority: i32,
    /// The decision. A new edge is stored as open, whatever this says.
    pub state: EdgeState,
    /// The submitter's answer in case the parent has ended before the edge is stored.
    ///
    /// A store can tell success from failure but evaluates nothing else; without an answer it refuses the submission
    /// with [`Refusal::ParentEnded`](crate::Refusal::ParentEnded) and the submitter reads the parent again. Not stored.
    pub if_ended: Option<EdgeState>,
}

impl Edge {
    /// Creates an open edge from `parent` to `child`.
    pub const fn new(parent: JobId, child: JobId, condition: Condition) -> Self {
        Self { parent, child, condition, priority: 0, state: EdgeState::Open, if_ended: None }
    }

    /// Decides the edge by the final status of its parent, without evaluating anything: a canceled parent refuses every
    /// edge, [`Condition::Success`] and [`Condition::Failure`] follow from the status, and the rest is
    /// [`if_ended`](Self::if_ended).
    pub fn decided_by(&self, parent: JobStatus) -> Option<EdgeState> {
        let satisfied_if = |holds| Some(if holds { EdgeState::Satisfied } else { EdgeState::Refused });
        match (parent, &self.condition) {
            (JobStatus::Canceled, _) => Some(EdgeState::Refused),
            (status, Condition::Success) => satisfied_if(status == JobStatus::Succeeded),
            (status, Condition::Failure) => satisfied_if(status == JobStatus::Failed),
            _ => self.if_ended,
        }
    }
}

/// The state of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EdgeState {
    /// Not decided yet.
    #[default]
    Open,
    /// The condition holds: the child needs one parent fewer.
    Satisfied,
    /// The condition does not hold: the child can no longer count on this parent.
    Refused,
}

impl EdgeState {
    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Satisfied => "SATISFIED",
            Self::Refused => "REFUSED",
        }
    }
}

impl std::str::FromStr for EdgeState {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Open, Self::Satisfied, Self::Refused]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownValue { what: "edge state", value: text.to_owned() })
    }
}

/// The condition of an edge: data, or the name of a registered predicate. Evaluated by the engine in the parent's
/// attempt, never by a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "expression", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Condition {
    /// The parent succeeded.
    Success,
    /// The parent failed for good.
    Failure,
    /// A value inside the parent's result passes this test.
    ResultValue(ResultTest),
    /// The registered predicate of this name accepts the parent's outcome.
    Custom(String),
    /// Every child of the parent's batch succeeded.
    BatchSuccess,
    /// Some child of the parent's batch failed.
    BatchFailure,
    /// At least this share (0 to 1) of the batch succeeded.
    BatchSuccessRate(f64),
    /// At most this many children failed.
    BatchFailureCount(u64),
    /// The registered predicate of this name accepts the batch.
    BatchCustom(String),
}

/// A comparison with one value of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultTest {
    /// JSON pointer into the result; empty for the whole.
    pub pointer: String,
    /// The comparison.
    pub op: Comparison,
    /// The value to compare with.
    pub value: serde_json::Value,
}

/// A comparison of two JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less: numbers and strings.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

impl Condition {
    /// The stored form: a type name and, for some, an expression.
    pub fn to_parts(&self) -> (String, Option<JsonText>) {
        let value = serde_json::to_value(self).unwrap_or_default();
        let name = value["type"].as_str().unwrap_or_default().to_owned();
        (name, value.get("expression").map(|e| JsonText::from_stored(e.to_string())))
    }

    /// Reads the stored form.
    pub fn from_parts(name: &str, expression: Option<&JsonText>) -> Result<Self, UnknownValue> {
        let unknown = || UnknownValue { what: "workflow condition", value: name.to_owned() };
        let mut value = serde_json::json!({ "type": name });
        if let Some(expression) = expression {
            value["expression"] = expression.decode().map_err(|_| unknown())?;
        }
        serde_json::from_value(value).map_err(|_| unknown())
    }

    /// The problem of a condition that is not valid: a share outside 0..=1, a bad JSON pointer, or a predicate without
    /// a name.
    pub fn problem(&self) -> Option<&'static str> {
        match self {
            Self::BatchSuccessRate(rate) if !(0.0..=1.0).contains(rate) => {
                Some("a success rate lies between 0 and 1")
            }
            Self::ResultValue(test) if !test.pointer.is_empty() && !test.pointer.starts_with('/') => {
                Some("a JSON pointer is empty or starts with `/`")
            }
            Self::Custom(name) | Self::BatchCustom(name) if name.is_empty() => {
                Some("a predicate needs a name")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_round_trip_through_their_parts() {
        let test = ResultTest { pointer: "/total".into(), op: Comparison::Ge, value: 100.into() };
        for condition in [
            Condition::Success,
            Condition::Failure,
            Condition::ResultValue(test),
            Condition::Custom("vip".into()),
            Condition::BatchSuccess,
            Condition::BatchSuccessRate(0.75),
            Condition::BatchFailureCount(3),
            Condition::BatchCustom("enough".into()),
        ] {
            let (name, expression) = condition.to_parts();
            assert!(name.len() <= 32, "{name}");
            assert_eq!(Condition::from_parts(&name, expression.as_ref()), Ok(condition));
        }
        assert!(Condition::from_parts("MAYBE", None).is_err());
        assert!(Condition::from_parts("CUSTOM", None).is_err());
    }

    #[test]
    fn the_end_of_a_parent_decides_plain_edges() {
        use EdgeState::{Refused, Satisfied};
        let (parent, child) = (JobId::generate(), JobId::generate());
        let edge = |condition| Edge::new(parent, child, condition);
        for (status, condition, decided) in [
            (JobStatus::Succeeded, Condition::Success, Some(Satisfied)),
            (JobStatus::Failed, Condition::Success, Some(Refused)),
            (JobStatus::Failed, Condition::Failure, Some(Satisfied)),
            (JobStatus::Succeeded, Condition::Failure, Some(Refused)),
            (JobStatus::Canceled, Condition::Failure, Some(Refused)),
            (JobStatus::Canceled, Condition::Custom("p".into()), Some(Refused)),
            (JobStatus::Succeeded, Condition::Custom("p".into()), None),
        ] {
            assert_eq!(edge(condition.clone()).decided_by(status), decided, "{status} {condition:?}");
        }
        let mut answered = edge(Condition::Custom("p".into()));
        answered.if_ended = Some(Satisfied);
        assert_eq!(answered.decided_by(JobStatus::Succeeded), Some(Satisfied));
    }

    #[test]
    fn edge_states_round_trip_by_their_stored_names() {
        for (state, name) in
            [(EdgeState::Open, "OPEN"), (EdgeState::Satisfied, "SATISFIED"), (EdgeState::Refused, "REFUSED")]
        {
            assert_eq!(state.as_str(), name);
            assert_eq!(name.parse(), Ok(state));
        }
        assert!("open".parse::<EdgeState>().is_err());
    }

    #[test]
    fn a_condition_that_cannot_be_meant_has_a_problem() {
        let at = |pointer: &str| {
            Condition::ResultValue(ResultTest {
                pointer: pointer.into(),
                op: Comparison::Eq,
                value: 1.into(),
            })
        };
        for condition in [
            Condition::Success,
            Condition::BatchSuccessRate(0.0),
            Condition::BatchSuccessRate(1.0),
            at(""),
            at("/total"),
            Condition::Custom("vip".into()),
            Condition::BatchCustom("enough".into()),
        ] {
            assert_eq!(condition.problem(), None, "{condition:?}");
        }
        let (rate, pointer, name) = (
            "a success rate lies between 0 and 1",
            "a JSON pointer is empty or starts with `/`",
            "a predicate needs a name",
        );
        for (condition, problem) in [
            (Condition::BatchSuccessRate(-0.1), rate),
            (Condition::BatchSuccessRate(1.1), rate),
            (Condition::BatchSuccessRate(f64::NAN), rate),
            (at("total"), pointer),
            (Condition::Custom(String::new()), name),
            (Condition::BatchCustom(String::new()), name),
        ] {
            assert_eq!(condition.problem(), Some(problem), "{condition:?}");
        }
    }
}
