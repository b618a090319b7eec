//! Texts: a stored one is returned byte for byte, and one that cannot be stored is refused before the insert.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::slice::from_ref;
use std::time::Duration;

use ratchet_api::store::{JobFilter, Loaded, PageRequest, ProgressReport};
use ratchet_api::{
    DeadReason, Effect, End, ErrorRecord, Inserted, InvalidSubmission, JobPayload, JobSpec, JsonText, Limits,
    LogLevel, MethodName, NewJob, NewLogLine, Refusal, Sanitized, Submission, TargetName,
};

use super::commit::{ran, recorded};
use super::keys::lives::{Life, named};
use crate::Fixture;
use crate::case::cases;
use crate::fixture::{call, job, job_with, text};

cases! { "payload";
    every_json_text_comes_back_byte_for_byte: ["insert.pending"] [21];
    every_reader_gets_the_same_text: ["insert.pending", "query.filter"] [];
    names_of_targets_and_methods_come_back_exactly: ["insert.pending"] [10];
    principal_and_trace_context_come_back_exactly: ["insert.pending"] [19];
    a_text_at_its_limit_is_stored_and_one_byte_more_is_refused: ["insert.pending", "insert.invalid", "info.limits"] [];
    what_an_outcome_submits_is_stored_whatever_its_size: ["commit.submit", "commit.succeeded"] [86 90];
    a_text_nested_to_the_limit_is_stored_and_one_level_more_is_refused: ["insert.pending", "insert.invalid"] [];
    a_payload_that_is_too_large_hurts_no_neighbour: ["insert.invalid", "insert.isolated"] [];
    many_large_jobs_fit_one_call: ["insert.pending"] [];
    a_result_comes_back_byte_for_byte: ["commit.succeeded"] [86];
    an_error_comes_back_as_it_was_sanitized: ["commit.retry", "commit.dead_letter", "execution.listed"] [99 108];
    a_reason_comes_back_as_it_was_sanitized: ["commit.canceled", "cancel.waiting", "cancel.running"] [];
    a_log_line_and_a_progress_message_come_back_as_they_were_sanitized: ["log.appended", "progress.fenced"] [];
}

/// Returns JSON that some database, driver or parser rewrites, rounds or refuses.
fn awkward_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "null",
        "true",
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1.10",
        "1e0",
        "1E+2",
        "1e400",
        "-1e-400",
        "0.1",
        "0.30000000000000004",
        "9007199254740993",
        "18446744073709551616",
        "123456789012345678901234567890.123456789012345678901234567890",
        r#""""#,
        r#""\u0000""#,
        r#""a\u0000b""#,
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""\ud83d\ude00""#,
        "\"\u{1f600}\"",
        r#""\u00e9""#,
        "\"\u{e9}\"",
        "\"e\u{301}\"",
        r#""\/""#,
        r#""/""#,
        r#""\b\f\n\r\t\"\\""#,
        "\"\u{7f}\u{80}\u{9f}\u{a0}\"",
        "\"\u{2028}\u{2029}\u{feff}\u{ffff}\u{10ffff}\"",
        "\"'; DROP TABLE scheduler_job; --\"",
        r#"{"a":1,"a":2}"#,
        r#"{"b":1,"a":2,"B":3,"":4}"#,
        r#"{"$ne":null,"$where":"1","a.b":1}"#,
        r#"{"$oid":"507f1f77bcf86cd799439011"}"#,
        r#"{"$numberLong":"1"}"#,
        r#"{"__proto__":{},"constructor":1}"#,
        "[ ]",
        " {\t\"a\" :\r\n[ 1 , 2 ]\n} ",
        "[1,2]\n",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.push(format!("1{}", "0".repeat(308)));
    texts.push(format!("1{}", "0".repeat(400)));
    texts.push(format!("0.{}1", "0".repeat(400)));
    texts
}

fn json(text: &str) -> JsonText {
    JsonText::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

/// Makes a job that carries the text in every place that takes JSON.
fn carrying(text: &str) -> NewJob {
    let args = format!("[{text}, {text}]");
    job_with(|new| {
        new.spec.payload = call(&args);
        new.spec.params = Some(json(text));
        new.spec.on_success = Some(call(&args));
        new.spec.on_failure = Some(call(&args));
    })
}

pub async fn every_json_text_comes_back_byte_for_byte(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let jobs: Vec<_> = awkward_texts().iter().map(|text| carrying(text)).collect();
    let call: Vec<_> = jobs.iter().cloned().map(Submission::single).collect();

    let inserted = writer.store.insert(&call).await.expect("insert answers");

    for (new, inserted) in jobs.into_iter().zip(inserted) {
        assert_eq!(inserted, Inserted::New, "{:?}", new.spec.params);
        assert_eq!(reader.job(new.spec.id).await.spec, new.spec);
    }
}

pub async fn every_reader_gets_the_same_text(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let new = carrying(r#" {"b":1,"a":"\u0000","a":1e400} "#);
    let claim = writer.running(new.clone()).await;

    let loaded = reader.store.load(&writer.owner, from_ref(&claim)).await.expect("load answers");
    let [Loaded::Job(loaded, _)] = &loaded[..] else { panic!("{loaded:?}") };
    assert_eq!(loaded.spec, new.spec);
    let page = reader.store.query_jobs(&JobFilter::default(), &PageRequest::first(10)).await;
    assert_eq!(page.expect("query_jobs answers").jobs[0].spec, new.spec);
    let story = reader.store.job_story(claim.id).await.expect("job_story answers");
    assert_eq!(story.expect("the job exists").job.spec, new.spec);
}

pub async fn names_of_targets_and_methods_come_back_exactly(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let (long_target, long_method) = ("t".repeat(TargetName::MAX_LEN), "m".repeat(MethodName::MAX_LEN));
    for (target, method) in [
        ("billing.PaymentService", "process"),
        ("billing.paymentservice", "Process"),
        ("quotes \"'`\\", "$where"),
        ("größe ✓ ", " run "),
        (&long_target, &long_method),
    ] {
        let payload = JobPayload::new(target, method, &json("[1]")).expect("the names are valid");
        let id = writer.insert(NewJob::new(payload.clone())).await;

        let stored = reader.job(id).await.spec.payload;

        assert_eq!(stored, payload);
        assert_eq!((stored.target().as_str(), stored.method().as_str()), (target, method));
    }
}

pub async fn principal_and_trace_context_come_back_exactly(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let long = "p".repeat(JobSpec::MAX_PRINCIPAL);
    for value in ["", " ", "ann", "Ann ", "\u{1}\u{7f}\r\n", "é", "e\u{301}", "%_'\"\\$ne", &long] {
        let new = job_with(|new| {
            new.spec.caller_principal = Some(value.to_owned());
            new.spec.trace_context = Some(value.repeat(2));
        });
        let id = writer.insert(new.clone()).await;
        assert_eq!(reader.job(id).await.spec, new.spec, "{value:?}");
    }
}

/// Makes a call whose text has exactly this many bytes.
fn call_of(bytes: usize) -> JobPayload {
    let bare = call(r#"[""]"#).text().as_str().len();
    call(&format!(r#"["{}"]"#, "x".repeat(bytes - bare)))
}

/// Makes a JSON text of exactly this many bytes.
fn json_of(bytes: usize) -> JsonText {
    json(&format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8)))
}

pub async fn a_text_at_its_limit_is_stored_and_one_byte_more_is_refused(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let limits = writer.store.limits();
    type Fill = fn(&mut JobSpec, usize);
    let fills: [(&'static str, usize, Fill); 6] = [
        ("payload", limits.payload_bytes, |spec, bytes| spec.payload = call_of(bytes)),
        ("params", limits.params_bytes, |spec, bytes| spec.params = Some(json_of(bytes))),
        ("success callback", limits.payload_bytes, |spec, bytes| spec.on_success = Some(call_of(bytes))),
        ("failure callback", limits.payload_bytes, |spec, bytes| spec.on_failure = Some(call_of(bytes))),
        ("caller principal", JobSpec::MAX_PRINCIPAL, |spec, bytes| {
            spec.caller_principal = Some("p".repeat(bytes));
        }),
        ("trace context", JobSpec::MAX_TRACE_CONTEXT, |spec, bytes| {
            spec.trace_context = Some("t".repeat(bytes));
        }),
    ];
    for (what, max, fill) in fills {
        let fits = job_with(|new| fill(&mut new.spec, max));
        let id = writer.insert(fits.clone()).await;
        assert!(reader.job(id).await.spec == fits.spec, "{what} of {max} bytes comes back");

        let over = job_with(|new| fill(&mut new.spec, max + 1));
        let id = over.spec.id;
        let problem = InvalidSubmission::TooLarge { what, len: max + 1, max };
        let inserted = writer.submit(Submission::single(over)).await;
        assert_eq!(inserted, Inserted::Refused(Refusal::Invalid(problem)));
        assert!(reader.find(id).await.is_none(), "{what} of one byte too many is stored nowhere");
    }
    let tagged = |count: usize| {
        job_with(|new| new.spec.tags = (0..count).map(|n| named(&format!("tag {n:04}"))).collect())
    };
    let id = writer.insert(tagged(limits.tags)).await;
    assert_eq!(reader.job(id).await.spec.tags.len(), limits.tags);
    let problem = InvalidSubmission::TooManyTags { count: limits.tags + 1, max: limits.tags };
    let inserted = writer.submit(Submission::single(tagged(limits.tags + 1))).await;
    assert_eq!(inserted, Inserted::Refused(Refusal::Invalid(problem)));
}

pub async fn what_an_outcome_submits_is_stored_whatever_its_size(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let most = writer.store.limits().params_bytes;
    for kib in [1, 20, 63, 65, 200] {
        let result = json_of(kib * 1024);
        let follower = |bytes| job_with(|new| new.spec.params = Some(json_of(bytes)));
        let (fits, over) = (follower(most.min(kib * 1024)), follower(most + 1));
        let claim = writer.running(job()).await;
        let mut outcome = ran(&claim, End::Succeeded { result: Some(result.clone()) });
        let submit = |new: &NewJob| Effect::Submit(Box::new(Submission::single(new.clone())));
        outcome.effects = vec![submit(&over), submit(&fits)];
        let led_to = recorded(writer.commit(outcome).await);
        let problem = InvalidSubmission::TooLarge { what: "params", len: most + 1, max: most };
        assert_eq!(
            led_to.submitted,
            [Inserted::Refused(Refusal::Invalid(problem)), Inserted::New],
            "{kib} KiB"
        );
        let ending = reader.job(claim.id).await.ending.expect("it has ended");
        assert!(ending.result == Some(result), "{kib} KiB come back");
        assert!(reader.job(fits.spec.id).await.spec == fits.spec, "{kib} KiB: the follower is there");
        assert!(reader.find(over.spec.id).await.is_none(), "{kib} KiB: the other is not");
        writer.end(&writer.take(fits.spec.id).await, End::Succeeded { result: None }).await;
    }
}

pub async fn a_text_nested_to_the_limit_is_stored_and_one_level_more_is_refused(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let objects = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    type Fill = fn(&mut JobSpec, &str);
    // The payload's own object is one level.
    let fills: [(&'static str, usize, Fill); 4] = [
        ("payload", 1, |spec, text| spec.payload = call(text)),
        ("params", 0, |spec, text| spec.params = Some(json(text))),
        ("success callback", 1, |spec, text| spec.on_success = Some(call(text))),
        ("failure callback", 1, |spec, text| spec.on_failure = Some(call(text))),
    ];
    for (what, own, fill) in fills {
        let max = writer.store.limits().json_depth;
        for text in [nested(max - own), objects(max - own)] {
            let fits = job_with(|new| fill(&mut new.spec, &text));
            let id = writer.insert(fits.clone()).await;
            assert_eq!(reader.job(id).await.spec, fits.spec, "{what}");
        }
        for levels in [max + 1, max + 36, 5_000] {
            let over = job_with(|new| fill(&mut new.spec, &nested(levels - own)));
            let id = over.spec.id;
            let problem = InvalidSubmission::TooDeep { what, depth: levels, max };
            let inserted = writer.submit(Submission::single(over)).await;
            assert_eq!(inserted, Inserted::Refused(Refusal::Invalid(problem)));
            assert_eq!(reader.find(id).await, None, "{what}");
        }
    }
}

pub async fn a_payload_that_is_too_large_hurts_no_neighbour(fx: Fixture) {
    let node = fx.node("a").await;
    let max = node.store.limits().payload_bytes;
    let (before, after) = (job(), job());
    let large = job_with(|new| new.spec.payload = call_of(2 * max));
    let large_id = large.spec.id;
    let call = [before.clone(), large, after.clone()].map(Submission::single);

    let inserted = node.store.insert(&call).await.expect("insert answers");

    let problem = InvalidSubmission::TooLarge { what: "payload", len: 2 * max, max };
    assert_eq!(inserted, [Inserted::New, Inserted::Refused(Refusal::Invalid(problem)), Inserted::New]);
    assert!(node.find(large_id).await.is_none());
    assert_eq!(node.job(before.spec.id).await.spec, before.spec);
    assert_eq!(node.job(after.spec.id).await.spec, after.spec);
}

pub async fn many_large_jobs_fit_one_call(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let large = || {
        job_with(|new| {
            new.spec.payload = call_of(Limits::default().payload_bytes);
            new.spec.on_failure = Some(call_of(Limits::default().payload_bytes));
        })
    };
    let jobs: Vec<_> = (0..24).map(|_| large()).collect();
    let call: Vec<_> = jobs.iter().cloned().map(Submission::single).collect();

    let inserted = writer.store.insert(&call).await.expect("insert answers");

    assert_eq!(inserted, vec![Inserted::New; jobs.len()]);
    let ids: Vec<_> = jobs.iter().map(|new| new.spec.id).collect();
    let found = reader.store.find(&ids).await.expect("find answers");
    for (new, found) in jobs.iter().zip(found) {
        assert!(found.is_some_and(|stored| stored.spec == new.spec), "{} comes back", new.spec.id);
    }
}

pub async fn a_result_comes_back_byte_for_byte(fx: Fixture) {
    let (worker, reader) = (fx.node("worker").await, fx.node("reader").await);
    let mut results: Vec<_> = awkward_texts().iter().map(|text| Some(json(text))).collect();
    results.push(Some(json_of(Limits::default().result_bytes)));
    results.push(None);
    for result in results {
        let claim = worker.running(job()).await;

        worker.end(&claim, End::Succeeded { result: result.clone() }).await;

        let ending = reader.job(claim.id).await.ending.expect("it has ended");
        assert_eq!(ending.result, result, "nothing, and the text `null`, are two things");
    }
}

/// Returns texts as a body may produce them; a sanitizer's bounds make them storable, and no store changes them again.
fn awkward_errors() -> Vec<Sanitized> {
    let long = "é".repeat(Sanitized::MAX_LEN);
    let texts = [
        "plain",
        "",
        " padded ",
        "a\0b\u{1}c\u{1b}[31m\u{7f}",
        "line\nbreak\ttab\r\n",
        "'; DROP TABLE scheduler_job; -- \"`\\",
        r#"{"$ne":1} %s ${x} \u0000 \ud800"#,
        "e\u{301} \u{e9} \u{1f600} \u{202e}",
        &long,
    ];
    let sanitized: Vec<_> = texts.map(text).to_vec();
    assert!(sanitized.iter().all(|text| !text.as_str().contains('\0')));
    sanitized
}

pub async fn an_error_comes_back_as_it_was_sanitized(fx: Fixture) {
    let (worker, reader) = (fx.node("worker").await, fx.node("reader").await);
    for message in awkward_errors() {
        let error = ErrorRecord::new("tck.Service", text("Io\0Error \u{e9}"), message.clone());
        let retried = worker.running(job()).await;
        let dead = worker.running(job()).await;

        let retry = End::Retry { delay: Duration::ZERO, error: error.clone() };
        worker.end(&retried, retry).await;
        worker.end(&dead, End::DeadLetter { error, reason: DeadReason::Exhausted }).await;

        for id in [retried.id, dead.id] {
            assert_eq!(reader.job(id).await.last_error.as_deref(), Some(message.as_str()));
            let executions = reader.store.executions(id).await.expect("executions answers");
            assert_eq!(executions.len(), 1);
            assert_eq!(executions[0].error.as_deref(), Some(message.as_str()));
            assert_eq!(executions[0].error_class.as_deref(), Some("IoError \u{e9}"));
        }
    }
}

pub async fn a_reason_comes_back_as_it_was_sanitized(fx: Fixture) {
    let (worker, reader) = (fx.node("worker").await, fx.node("reader").await);
    for reason in awkward_errors() {
        let called_off = worker.running(job()).await;
        let waiting = Life::Pending.reach(&worker, job()).await;
        let running = Life::Running.reach(&worker, job()).await;

        worker.end(&called_off, End::Canceled { reason: reason.clone() }).await;
        let targets = [waiting.into(), running.into()];
        worker.store.cancel(&targets, &reason).await.expect("cancel answers");

        for id in [called_off.id, waiting, running] {
            assert_eq!(reader.job(id).await.cancel_reason.as_deref(), Some(reason.as_str()));
        }
    }
}

pub async fn a_log_line_and_a_progress_message_come_back_as_they_were_sanitized(fx: Fixture) {
    let (worker, reader) = (fx.node("worker").await, fx.node("reader").await);
    for message in awkward_errors() {
        let claim = worker.running(job()).await;
        let (id, fence) = (claim.id, claim.fence);
        let line = NewLogLine { job: id, fence, level: LogLevel::Info, message: message.clone() };
        worker.store.append_logs(&[line]).await.expect("append_logs answers");
        let report = ProgressReport { id, fence, done: 1, total: None, message: Some(message.clone()) };
        worker.store.report_progress(from_ref(&report)).await.expect("report_progress answers");

        let lines = reader.store.logs(id, None, 10).await.expect("logs answers");
        assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), [message.as_str()]);
        assert_eq!(reader.job(id).await.progress, Some(report.progress()));
    }
}
