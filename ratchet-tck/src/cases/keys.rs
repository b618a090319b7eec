//! Keys: compared by their bytes, held as long as documented, given to exactly one job.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

pub(super) mod lives;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::Retention;
use ratchet_api::{
    BusinessKey, End, IdempotencyKey, Inserted, InvalidSubmission, JobId, NewJob, Refusal, Submission,
};

use crate::case::cases;
use crate::fixture::{call, job, job_with, payload, text};
use crate::{Fixture, Peer};
use lives::{Life, connections, holding, linked, named, once, pause, race_calls, race_inserts, schedule};

cases! { "keys";
    business_keys_that_look_alike_are_different_keys: ["insert.keys_exact", "insert.business_key", "find_holder.live"] [184];
    idempotency_keys_that_look_alike_are_different_keys: ["insert.keys_exact", "insert.idempotent", "find_key.for_ever"] [183];
    a_key_of_one_kind_does_not_touch_the_same_text_of_the_other: ["insert.idempotent", "insert.business_key"] [];
    a_used_idempotency_key_answers_the_first_job: ["insert.idempotent", "find_key.for_ever"] [12 17];
    an_idempotency_key_stays_used_at_every_stage_of_life: ["insert.idempotent", "find_key.for_ever"] [12 183];
    an_idempotency_key_outlives_its_job: ["insert.idempotent", "find_key.for_ever", "archive.moves"] [12 183];
    an_idempotency_key_counts_within_one_call: ["insert.idempotent"] [17];
    a_key_twice_in_one_submission_is_not_stored: ["insert.invalid", "insert.idempotent", "insert.business_key"] [183 184];
    a_duplicate_is_told_before_a_taken_key: ["insert.idempotent", "insert.business_key"] [12 13];
    a_refused_submission_uses_up_no_key: ["insert.atomic", "find_key.for_ever", "find_holder.live"] [];
    a_live_job_holds_its_business_key_wherever_it_is: ["insert.business_key", "find_holder.live"] [13 18 184];
    every_end_frees_the_business_key: ["insert.business_key", "find_holder.live", "commit.releases"] [18 156];
    a_schedule_holds_its_business_key_until_it_is_canceled: ["insert.business_key", "find_holder.live"] [144];
    a_business_key_counts_within_one_call: ["insert.business_key"] [184];
    a_race_for_an_idempotency_key_has_one_winner_that_all_others_name: ["insert.idempotent"] [17 183];
    a_race_for_a_business_key_has_one_winner_that_all_others_name: ["insert.business_key"] [13 184];
    a_race_for_a_key_that_is_being_freed_never_makes_two_holders: ["insert.business_key", "find_holder.live"] [18 184];
    calls_that_name_the_same_keys_in_other_orders_all_get_answers: ["insert.idempotent", "insert.business_key", "insert.isolated"] [183 184];
}

async fn holder_of(peer: &Peer, key: &str) -> Option<JobId> {
    let key: BusinessKey = named(key);
    peer.store.find_active_by_business_key(&key).await.expect("find_active_by_business_key answers")
}

async fn first_with(peer: &Peer, key: &str) -> Option<JobId> {
    let key: IdempotencyKey = named(key);
    peer.store.find_by_idempotency_key(&key).await.expect("find_by_idempotency_key answers")
}

/// Returns texts that some database, driver or collation confuses with one another.
fn look_alikes() -> Vec<String> {
    let mut texts: Vec<String> = [
        "key",
        "Key",
        "KEY",
        " key",
        "key ",
        "key  ",
        "key\t",
        "key\n",
        "key\r\n",
        "key\u{1}",
        "key\u{7f}",
        "key\u{85}",
        "key\u{a0}",
        "key\u{200b}",
        "key\u{ad}",
        "\u{feff}key",
        "k\u{e9}y",
        "ke\u{301}y",
        "k\u{e8}y",
        "K\u{c9}Y",
        "\u{ff4b}\u{ff45}\u{ff59}",
        "\u{212a}ey",
        "\u{3ba}ey",
        "k\u{435}y",
        "\u{c5}",
        "\u{212b}",
        "A\u{30a}",
        "stra\u{df}e",
        "strasse",
        "\u{fb01}",
        "fi",
        "i",
        "I",
        "\u{131}",
        "\u{130}",
        "\u{1f600}",
        "\u{1f601}",
        "\u{10ffff}",
        "\u{fffd}",
        "k",
        "0",
        "00",
        "0.0",
        "-0",
        "null",
        "NULL",
        "true",
        "%",
        "_",
        "k%",
        "k_y",
        "'",
        "''",
        "\"",
        "`",
        "\\",
        "\\\\",
        "' OR '1'='1",
        "'; DROP TABLE scheduler_job; --",
        "$ne",
        "{\"$gt\":\"\"}",
        "a.b",
        "a\u{2024}b",
    ]
    .map(str::to_owned)
    .to_vec();
    let longest = BusinessKey::MAX_LEN;
    texts.extend(["x".repeat(longest - 1), "x".repeat(longest), "x".repeat(longest - 1) + "y"]);
    texts.extend(["x".repeat(longest - 1) + " ", "\u{e9}".repeat(longest / 2) + "x"]);
    texts
}

/// Stores two jobs for each text in one call and then one more each, and reads them back on another connection.
async fn assert_exact(fx: &Fixture, with_key: fn(&str) -> NewJob, taken: fn(JobId) -> Inserted) {
    let (writer, other) = (fx.node("writer").await, fx.node("other").await);
    let texts = look_alikes();
    let first: Vec<_> = texts.iter().map(|text| with_key(text)).collect();
    let again: Vec<_> = texts.iter().map(|text| Submission::single(with_key(text))).collect();
    let call: Vec<_> = first.iter().cloned().map(Submission::single).collect();

    let inserted = writer.store.insert(&call).await.expect("insert answers");
    let repeated = other.store.insert(&again).await.expect("insert answers");

    for (at, text) in texts.iter().enumerate() {
        assert_eq!(inserted[at], Inserted::New, "{text:?} is a key of its own");
        assert_eq!(repeated[at], taken(first[at].spec.id), "{text:?} is known by its own job");
        let stored = other.job(first[at].spec.id).await;
        assert_eq!(stored.spec, first[at].spec, "{text:?} reads back");
    }
}

pub async fn business_keys_that_look_alike_are_different_keys(fx: Fixture) {
    assert_exact(&fx, holding, |holder| Inserted::KeyTaken { holder }).await;
    let reader = fx.node("reader").await;
    let mut holders = HashSet::new();
    for text in look_alikes() {
        let holder = holder_of(&reader, &text).await.expect("every key is held");
        assert_eq!(reader.job(holder).await.spec.business_key, Some(named(&text)));
        assert!(holders.insert(holder), "{text:?} has a holder of its own");
    }
    assert_eq!(holder_of(&reader, "kEy").await, None, "a key that nobody holds");
}

pub async fn idempotency_keys_that_look_alike_are_different_keys(fx: Fixture) {
    assert_exact(&fx, once, Inserted::Existing).await;
    let reader = fx.node("reader").await;
    let mut jobs = HashSet::new();
    for text in look_alikes() {
        let first = first_with(&reader, &text).await.expect("every key is used");
        assert_eq!(reader.job(first).await.spec.idempotency_key, Some(named(&text)));
        assert!(jobs.insert(first), "{text:?} has a job of its own");
    }
    assert_eq!(first_with(&reader, "kEy").await, None, "a key that nobody used");
}

pub async fn a_key_of_one_kind_does_not_touch_the_same_text_of_the_other(fx: Fixture) {
    let node = fx.node("a").await;

    let used = node.insert(once("order-1")).await;
    assert_eq!(holder_of(&node, "order-1").await, None);
    let held = node.insert(holding("order-1")).await;

    assert_eq!(first_with(&node, "order-1").await, Some(used));
    assert_eq!(holder_of(&node, "order-1").await, Some(held));
}

pub async fn a_used_idempotency_key_answers_the_first_job(fx: Fixture) {
    let (first, second) = (fx.node("first").await, fx.node("second").await);
    let id = first.insert(once("request-1")).await;
    let mut other = once("request-1");
    other.spec.payload = call("[1,2,3]");
    let other_id = other.spec.id;

    assert_eq!(second.submit(Submission::single(other)).await, Inserted::Existing(id));

    assert_eq!(first.find(other_id).await, None, "nothing new is stored");
    assert_eq!(first.job(id).await.spec.payload, payload(), "the first job stays as it was");
    assert_eq!(second.insert(once("request-2")).await, first_with(&first, "request-2").await.expect("used"));
}

pub async fn an_idempotency_key_stays_used_at_every_stage_of_life(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for life in Life::LIVE.into_iter().chain(Life::ENDED) {
        let key = format!("{life:?}");
        let id = life.reach(&node, once(&key)).await;

        assert_eq!(other.submit(Submission::single(once(&key))).await, Inserted::Existing(id), "{life:?}");
        assert_eq!(first_with(&other, &key).await, Some(id), "{life:?}");
    }
}

pub async fn an_idempotency_key_outlives_its_job(fx: Fixture) {
    let node = fx.node("a").await;
    let deleted = Life::Succeeded.reach(&node, once("deleted")).await;
    assert_eq!(node.store.delete(&[deleted]).await.expect("delete answers"), 1);
    let purged = Life::Failed.reach(&node, once("purged")).await;
    fx.advance(Duration::from_secs(2));
    let gone = node.store.purge_dead_letters(Duration::from_secs(1), 10).await.expect("purge answers");
    assert_eq!(gone, 1);
    let archived = Life::CanceledWaiting.reach(&node, once("archived")).await;
    fx.advance(Duration::from_secs(2));
    let second = Duration::from_secs(1);
    let moved = node.store.archive(&Retention { ended: second, failed: second }, 10).await;
    assert_eq!(moved.expect("archive answers"), 1);

    let used = [("deleted", deleted), ("purged", purged), ("archived", archived)];
    for (key, id) in used {
        assert_eq!(node.find(id).await, None, "{key}");
        assert_eq!(node.submit(Submission::single(once(key))).await, Inserted::Existing(id), "{key}");
        assert_eq!(first_with(&node, key).await, Some(id), "{key}");
    }
    fx.advance(Duration::from_secs(2));
    assert_eq!(node.store.purge_archive(second, 10).await.expect("purge_archive answers"), 1);
    assert_eq!(node.submit(Submission::single(once("archived"))).await, Inserted::Existing(archived));
}

pub async fn an_idempotency_key_counts_within_one_call(fx: Fixture) {
    let node = fx.node("a").await;
    let jobs = [once("k"), once("other"), once("k"), once("k")];
    let call: Vec<_> = jobs.iter().cloned().map(Submission::single).collect();

    let inserted = node.store.insert(&call).await.expect("insert answers");

    let first = Inserted::Existing(jobs[0].spec.id);
    assert_eq!(inserted, [Inserted::New, Inserted::New, first.clone(), first]);
    assert_eq!(node.find(jobs[2].spec.id).await, None);
    assert_eq!(node.find(jobs[3].spec.id).await, None);
}

pub async fn a_key_twice_in_one_submission_is_not_stored(fx: Fixture) {
    let node = fx.node("a").await;
    for with_key in [once as fn(&str) -> NewJob, holding] {
        let jobs = vec![job(), with_key("twice"), with_key("twice")];
        let ids: Vec<_> = jobs.iter().map(|new| new.spec.id).collect();

        let inserted = node.submit(linked(jobs, Vec::new())).await;

        let twice = InvalidSubmission::SameKeyTwice(ids[2]);
        assert_eq!(inserted, Inserted::Refused(Refusal::Invalid(twice)));
        assert_eq!(node.store.find(&ids).await.expect("find answers"), [None, None, None]);
    }
    assert_eq!(first_with(&node, "twice").await, None);
    assert_eq!(holder_of(&node, "twice").await, None);
}

pub async fn a_duplicate_is_told_before_a_taken_key(fx: Fixture) {
    let node = fx.node("a").await;
    let both = |key: &str, held: &str| {
        job_with(|new| {
            new.spec.idempotency_key = Some(named(key));
            new.spec.business_key = Some(named(held));
        })
    };
    let first = node.insert(both("request-1", "order-1")).await;
    let other = node.insert(holding("order-2")).await;

    for (duplicate, inserted) in [
        (both("request-1", "order-1"), Inserted::Existing(first)),
        (both("request-1", "order-2"), Inserted::Existing(first)),
        (both("request-1", "free"), Inserted::Existing(first)),
        (both("request-2", "order-2"), Inserted::KeyTaken { holder: other }),
    ] {
        assert_eq!(node.submit(Submission::single(duplicate)).await, inserted);
    }
    assert_eq!(holder_of(&node, "free").await, None);
}

pub async fn a_refused_submission_uses_up_no_key(fx: Fixture) {
    let node = fx.node("a").await;
    let holder = node.insert(holding("order-1")).await;
    let refused = |key: &str| {
        let first = job_with(|new| {
            new.spec.idempotency_key = Some(named("request-1"));
            new.spec.business_key = Some(named(key));
        });
        linked(vec![first, holding("order-1")], Vec::new())
    };
    assert_eq!(node.submit(refused("order-2")).await, Inserted::KeyTaken { holder });

    assert_eq!(first_with(&node, "request-1").await, None);
    assert_eq!(holder_of(&node, "order-2").await, None);
    node.insert(once("request-1")).await;
    node.insert(holding("order-2")).await;
}

pub async fn a_live_job_holds_its_business_key_wherever_it_is(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for life in Life::LIVE {
        let key = format!("{life:?}");
        let id = life.reach(&node, holding(&key)).await;

        assert_eq!(holder_of(&other, &key).await, Some(id), "{life:?}");
        let late = holding(&key);
        let late_id = late.spec.id;
        let inserted = other.submit(Submission::single(late)).await;
        assert_eq!(inserted, Inserted::KeyTaken { holder: id }, "{life:?}");
        assert_eq!(other.find(late_id).await, None, "{life:?}");
    }
}

pub async fn every_end_frees_the_business_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for life in Life::ENDED {
        let key = format!("{life:?}");
        let id = life.reach(&node, holding(&key)).await;

        assert_eq!(holder_of(&other, &key).await, None, "{life:?}");
        let next = other.insert(holding(&key)).await;
        assert_eq!(holder_of(&node, &key).await, Some(next), "{life:?}");
        let ended = node.job(id).await;
        assert_eq!(ended.status, life.status(), "{life:?} is not disturbed by the next holder");
        assert_eq!(ended.spec.business_key, Some(named(&key)), "{life:?} still tells its key");
    }
}

pub async fn a_schedule_holds_its_business_key_until_it_is_canceled(fx: Fixture) {
    let node = fx.node("a").await;
    let master = schedule(&fx, &node, "nightly").await;
    let taken = Inserted::KeyTaken { holder: master };

    assert_eq!(holder_of(&node, "nightly").await, Some(master));
    assert_eq!(node.submit(Submission::single(holding("nightly"))).await, taken);
    pause(&node, master).await;
    assert_eq!(holder_of(&node, "nightly").await, Some(master), "a paused one may be resumed");
    assert_eq!(node.submit(Submission::single(holding("nightly"))).await, taken);

    let reason = text("no longer needed");
    let ended = node.store.cancel_recurring_by_key(&named("nightly"), &reason).await;
    assert_eq!(ended.expect("cancel_recurring_by_key answers"), 1);
    assert_eq!(holder_of(&node, "nightly").await, None);
    let next = node.insert(holding("nightly")).await;
    assert_eq!(holder_of(&node, "nightly").await, Some(next));
}

pub async fn a_business_key_counts_within_one_call(fx: Fixture) {
    let node = fx.node("a").await;
    let jobs = [holding("k"), holding("other"), holding("k")];
    let call: Vec<_> = jobs.iter().cloned().map(Submission::single).collect();

    let inserted = node.store.insert(&call).await.expect("insert answers");

    let taken = Inserted::KeyTaken { holder: jobs[0].spec.id };
    assert_eq!(inserted, [Inserted::New, Inserted::New, taken]);
    assert_eq!(node.find(jobs[2].spec.id).await, None);
}

/// Lets 2 to 8 connections submit jobs with one key at once, for some rounds, each with a key of its own.
async fn assert_one_winner(fx: &Fixture, with_key: fn(&str) -> NewJob, lost_to: fn(JobId) -> Inserted) {
    let stores = connections(fx, 8).await;
    let reader = fx.node("reader").await;
    for contenders in 2..=8 {
        let key = format!("race of {contenders}");
        let jobs: Vec<_> = (0..contenders).map(|_| with_key(&key)).collect();
        let submissions: Vec<_> = jobs.iter().cloned().map(Submission::single).collect();

        let inserted = race_inserts(fx, &stores, &submissions).await;

        let ids: Vec<_> = jobs.iter().map(|new| new.spec.id).collect();
        let stored: Vec<_> =
            reader.store.find(&ids).await.expect("find answers").into_iter().flatten().collect();
        assert_eq!(stored.len(), 1, "{key}: one job is stored");
        let winner = stored[0].spec.id;
        for (id, inserted) in ids.iter().zip(inserted) {
            let told = if *id == winner { Inserted::New } else { lost_to(winner) };
            assert_eq!(inserted, told, "{key}");
        }
    }
}

pub async fn a_race_for_an_idempotency_key_has_one_winner_that_all_others_name(fx: Fixture) {
    assert_one_winner(&fx, once, Inserted::Existing).await;
}

pub async fn a_race_for_a_business_key_has_one_winner_that_all_others_name(fx: Fixture) {
    assert_one_winner(&fx, holding, |holder| Inserted::KeyTaken { holder }).await;
}

pub async fn a_race_for_a_key_that_is_being_freed_never_makes_two_holders(fx: Fixture) {
    let worker = fx.node("worker").await;
    let stores = connections(&fx, 3).await;
    for _ in 0..8 {
        let claim = worker.running(holding("order-1")).await;
        let jobs = [holding("order-1"), holding("order-1"), holding("order-1")];

        let answers = fx
            .race(4, |i| {
                let contender =
                    (i < 3).then(|| (Arc::clone(&stores[i]), Submission::single(jobs[i].clone())));
                let (worker, claim) = (worker.clone(), claim.clone());
                async move {
                    let Some((store, submission)) = contender else {
                        worker.end(&claim, End::Succeeded { result: None }).await;
                        return None;
                    };
                    store.insert(&[submission]).await.expect("insert answers under a race").pop()
                }
            })
            .await;

        let holder = holder_of(&worker, "order-1").await;
        let new: Vec<_> =
            (0..3).filter(|i| answers[*i] == Some(Inserted::New)).map(|i| jobs[i].spec.id).collect();
        assert!(new.len() <= 1, "two jobs got one key: {answers:?}");
        assert_eq!(holder, new.first().copied());
        for answer in answers.into_iter().flatten().filter(|answer| *answer != Inserted::New) {
            let Inserted::KeyTaken { holder } = answer else { panic!("{answer:?}") };
            assert!(holder == claim.id || new.contains(&holder), "the named holder held it");
        }
        if let Some(id) = holder {
            let next = worker.take(id).await;
            worker.end(&next, End::Succeeded { result: None }).await;
        }
    }
}

pub async fn calls_that_name_the_same_keys_in_other_orders_all_get_answers(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let reader = fx.node("reader").await;
    for round in 0..6 {
        let keys: Vec<_> = (0..6).map(|at| format!("{round}-{at}")).collect();
        let calls: Vec<Vec<_>> = (0..4)
            .map(|contender| {
                let mut keys = keys.clone();
                if contender % 2 == 1 {
                    keys.reverse();
                }
                keys.iter()
                    .map(|key| Submission::single(if contender < 2 { once(key) } else { holding(key) }))
                    .collect()
            })
            .collect();

        let answers = race_calls(&fx, &stores, &calls).await;

        for key in &keys {
            let (used, held) = (first_with(&reader, key).await, holder_of(&reader, key).await);
            let used = used.expect("someone used the key");
            let held = held.expect("someone holds the key");
            for (call, answers) in calls.iter().zip(&answers) {
                assert_eq!(answers.len(), call.len());
                for (submission, answer) in call.iter().zip(answers) {
                    let spec = &submission.jobs[0].spec;
                    if spec.idempotency_key == Some(named(key)) {
                        let told = if spec.id == used { Inserted::New } else { Inserted::Existing(used) };
                        assert_eq!(*answer, told);
                    }
                    if spec.business_key == Some(named(key)) {
                        let told =
                            if spec.id == held { Inserted::New } else { Inserted::KeyTaken { holder: held } };
                        assert_eq!(*answer, told);
                    }
                }
            }
        }
    }
}
