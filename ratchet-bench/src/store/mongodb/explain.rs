//! The plans of the store's own claims: its commands are captured as the driver sends them, and explained by the
//! server.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use ratchet_api::store::{ClaimRequest, JobClaimStore as _};
use ratchet_api::{StoreClock, Timestamp};

use super::MongoPlace;
use crate::claim::{put_back, still_at};
use crate::store::{Plan, TestDatabase as _};

/// Commands that the server can explain.
const EXPLAINED: [&str; 4] = ["aggregate", "find", "update", "findAndModify"];
/// Fields that the driver adds to a command and that `explain` refuses.
const OF_THE_SESSION: [&str; 6] =
    ["lsid", "txnNumber", "$clusterTime", "$db", "writeConcern", "$readPreference"];

/// Claims, puts back, and explains every command of the claim as it would run again.
pub(super) async fn plan(
    place: &MongoPlace,
    clock: StoreClock,
    request: &ClaimRequest,
    most: u64,
) -> Result<Plan> {
    let sent: Arc<Mutex<Vec<Document>>> = Arc::default();
    let heard = Arc::clone(&sent);
    let hear = EventHandler::callback(move |event| {
        if let CommandEvent::Started(started) = event
            && EXPLAINED.contains(&started.command_name.as_str())
        {
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(started.command);
        }
    });
    let store = place.store(clock, |client| client.command_event_handler = Some(hear)).await?;
    let putting_back = place.connect(still_at(Timestamp::MIN), 1).await?;
    sent.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let claims = store.claim(request).await?;
    let commands = std::mem::take(&mut *sent.lock().unwrap_or_else(PoisonError::into_inner));
    put_back(putting_back.as_ref(), &request.owner, &claims).await?;
    let database = place.database().await?;
    let mut plan = Plan::default();
    for command in commands {
        examine(&explain(&database, command).await?, most, &mut plan);
    }
    Ok(plan)
}

async fn explain(database: &Database, mut command: Document) -> Result<Document> {
    for field in OF_THE_SESSION {
        command.remove(field);
    }
    Ok(database.run_command(doc! { "explain": command, "verbosity": "executionStats" }).await?)
}

/// Examines a part of a reply and all parts inside it.
fn examine(told: &Document, most: u64, plan: &mut Plan) {
    let count = |name: &str| told.get(name).and_then(number).unwrap_or_default();
    if let Ok(stage) = told.get_str("stage") {
        if stage == "COLLSCAN" && told.contains_key("nReturned") && count("docsExamined") > most {
            plan.objections.push(format!("a COLLSCAN of {} documents", count("docsExamined")));
        }
        if stage.starts_with("SORT") && count("memLimit") > 0 && input(told) > most {
            plan.objections.push(format!("a {stage} of {} documents (at most {most})", input(told)));
        }
    }
    if told.contains_key("totalDocsExamined") {
        let read = count("totalDocsExamined").max(count("totalKeysExamined"));
        plan.most_read = plan.most_read.max(Some(read));
        if read > most {
            plan.objections.push(format!("a command reads {read} keys or documents (at most {most})"));
        }
    }
    for (_, value) in told {
        examine_value(value, most, plan);
    }
}

fn examine_value(value: &Bson, most: u64, plan: &mut Plan) {
    match value {
        Bson::Document(part) => examine(part, most, plan),
        Bson::Array(parts) => parts.iter().for_each(|part| examine_value(part, most, plan)),
        _ => {}
    }
}

/// The number of documents that a stage received.
fn input(stage: &Document) -> u64 {
    let below = stage.get_document("inputStage").ok();
    below.and_then(|below| number(below.get("nReturned")?)).unwrap_or_default()
}

fn number(value: &Bson) -> Option<u64> {
    let number = value.as_i64().or_else(|| value.as_i32().map(i64::from));
    number
        .or_else(|| value.as_f64().map(|number| number as i64))
        .and_then(|number| u64::try_from(number).ok())
}
