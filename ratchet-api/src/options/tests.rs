use std::time::Duration;

use super::rules::{days, millis, mins, secs};
use super::*;
use crate::backoff::Backoff;

const KIB: usize = 1024;

// shows: S51 S52 S53
#[test]
fn polling_defaults() {
    let expected = PollingOptions {
        batch_size: 50,
        min_delay: secs(2),
        max_delay: secs(30),
        burst_delay: millis(500),
        idle_threshold: 5,
        deep_idle_delay: secs(60),
        deep_idle_after: mins(5),
        claim_headroom_factor: 0.0,
        error_delay: secs(5),
    };
    assert_eq!(RatchetOptions::default().polling, expected);
}

// shows: S137
#[test]
fn execution_and_node_defaults() {
    let options = RatchetOptions::default();
    let execution = ExecutionOptions {
        queues: [("default".to_owned(), QueueOptions { slots: 50, rate_limit_per_minute: None })].into(),
        drain_timeout: secs(30),
        unknown_target_min_delay: secs(1),
        unknown_target_max_delay: secs(60),
        unknown_target_limit: None,
    };
    assert_eq!(options.execution, execution);
    let node = NodeOptions {
        label: None,
        lease: secs(30),
        beat: secs(6),
        dynamic_beat: true,
        recovery_interval: secs(6),
        recovery_limit: 100,
        crash_limit: 3,
        skew_warning: secs(5),
    };
    assert_eq!(options.node, node);
}

// shows: S105 S179
#[test]
fn maintenance_defaults() {
    let purge = |cron: &str, retention| PurgeOptions {
        enabled: true,
        cron: cron.to_owned(),
        retention: days(retention),
    };
    let expected = MaintenanceOptions {
        dlq_purge: purge("0 0 2 * * *", 90),
        archive: ArchiveOptions {
            enabled: true,
            cron: "0 0 1 * * *".to_owned(),
            retention: days(90),
            batch_size: 1_000,
        },
        log_purge: purge("0 30 2 * * *", 30),
        archive_purge: PurgeOptions { enabled: false, ..purge("0 30 1 * * *", 365) },
        node_purge: purge("0 15 * * * *", 1),
        lock_ttl: mins(10),
    };
    assert_eq!(RatchetOptions::default().maintenance, expected);
}

#[test]
fn limit_defaults() {
    let expected = Limits {
        payload_bytes: 256 * KIB,
        params_bytes: 16 * KIB,
        tags: 20,
        tag_bytes: 64,
        key_bytes: 255,
        json_depth: 64,
        result_bytes: 64 * KIB,
        log_bytes: 64 * KIB,
    };
    assert_eq!(RatchetOptions::default().limits, expected);
    assert_eq!(Limits::HARD_CAP_BYTES, 4 * KIB * KIB);
}

// shows: S41 S78
#[test]
fn store_and_security_defaults() {
    let options = RatchetOptions::default();
    assert_eq!(options.store, StoreOptions { priority_boost_interval: mins(15) });
    let security = SecurityOptions { allow_empty_class_policy: false, redact_emails: true };
    assert_eq!(options.security, security);
}

// shows: S101
#[test]
fn recurring_timeout_and_retry_defaults() {
    let options = RatchetOptions::default();
    let recurring = RecurringOptions {
        batch_limit: 20,
        min_poll: secs(1),
        max_poll: secs(60),
        startup_grace: secs(60),
        convergence_window: Duration::ZERO,
        max_catch_up: 11,
        lock_ttl: mins(5),
    };
    assert_eq!(options.recurring, recurring);
    let timeout = TimeoutOptions {
        default_timeout: secs(1_800),
        soft_percent: 80,
        cancel_grace: secs(5),
        start_hook: mins(10),
    };
    assert_eq!(options.timeout, timeout);
    let retry = RetryOptions {
        max_retries: 0,
        backoff: Backoff::None,
        jitter: true,
        permit_delay: secs(5),
        drain_interval: secs(1),
        alert_window: secs(3_600),
    };
    assert_eq!(options.retry, retry);
}

#[test]
fn breaker_profile_defaults() {
    let breaker = RatchetOptions::default().breaker;
    assert!(breaker.enabled);
    let table = [
        // profile, rate, window, open for, half-open calls, minimum calls
        (BreakerProfile::Standard, 50, 100, 30, 3, 5),
        (BreakerProfile::Fast, 50, 20, 10, 2, 3),
        (BreakerProfile::Critical, 75, 200, 60, 5, 10),
        (BreakerProfile::ExternalApi, 60, 50, 60, 3, 5),
    ];
    for (profile, failure_rate, window, open_for, half_open_calls, min_calls) in table {
        let open_for = secs(open_for);
        let expected = BreakerSettings { failure_rate, window, open_for, half_open_calls, min_calls };
        assert_eq!(breaker.settings(profile), expected, "{profile:?}");
    }
}

#[test]
fn defaults_are_valid() {
    assert_eq!(RatchetOptions::default().validate(), Ok(()));
}

// shows: S137
#[test]
fn recovery_can_be_set_to_a_few_seconds() {
    let quick = RatchetOptions::default().node(|node| {
        node.lease = secs(3);
        node.beat = millis(500);
        node.recovery_interval = millis(500);
    });
    assert_eq!(quick.validate(), Ok(()));
}

/// One wrong value and the one problem it must cause.
type Bad = (fn(&mut RatchetOptions), &'static str);

fn assert_each_is_named(table: &[Bad]) {
    for (spoil, message) in table {
        let mut options = RatchetOptions::default();
        spoil(&mut options);
        let error = options.validate().expect_err(message);
        assert_eq!(error.to_string(), *message);
        assert_eq!(error.problems().len(), 1);
    }
}

#[test]
fn a_bad_polling_value_is_named() {
    assert_each_is_named(&[
        (|o| o.polling.batch_size = 0, "polling.batch_size is 0, allowed is 1 to 10000"),
        (|o| o.polling.burst_delay = secs(3), "polling.burst_delay is 3s, allowed is 50ms to 2s"),
        (|o| o.polling.burst_delay = millis(1), "polling.burst_delay is 1ms, allowed is 50ms to 2s"),
        (|o| o.polling.min_delay = secs(31), "polling.min_delay is 31s, allowed is 50ms to 30s"),
        (|o| o.polling.max_delay = secs(61), "polling.max_delay is 61s, allowed is 50ms to 60s"),
        (
            |o| o.polling.deep_idle_delay = mins(61),
            "polling.deep_idle_delay is 3660s, allowed is 50ms to 3600s",
        ),
        (
            |o| o.polling.deep_idle_after = millis(1),
            "polling.deep_idle_after is 1ms, allowed is 1s to 86400s",
        ),
        (|o| o.polling.idle_threshold = 0, "polling.idle_threshold is 0, allowed is 1 to 1000"),
        (
            |o| o.polling.claim_headroom_factor = f64::NAN,
            "polling.claim_headroom_factor is NaN, allowed is 0.0 to 1.0",
        ),
        (|o| o.polling.error_delay = Duration::ZERO, "polling.error_delay is 0ns, allowed is 50ms to 300s"),
    ]);
}

#[test]
fn delays_that_are_all_too_short_are_each_told_what_is_enough() {
    let ms = millis(10);
    let hasty =
        RatchetOptions::default().polling(|p| (p.burst_delay, p.min_delay, p.max_delay) = (ms, secs(3), ms));
    let told: Vec<String> =
        hasty.validate().unwrap_err().problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "polling.burst_delay is 10ms, allowed is 50ms to 3s",
            "polling.max_delay is 10ms, allowed is 50ms to 60s",
        ],
        "and nothing about the shortest delay, which is long enough"
    );
}

#[test]
fn a_bad_execution_or_timeout_value_is_named() {
    assert_each_is_named(&[
        (|o| o.execution.queues.clear(), "execution.queues is {}, allowed is at least one queue"),
        (|o| o.execution.queue("").slots = 1, "execution.queues is \"\", allowed is names of 1 to 64 bytes"),
        (
            |o| o.execution.queue("mail").slots = 0,
            "execution.queues[mail].slots is 0, allowed is 1 to 100000",
        ),
        (
            |o| o.execution.queue("mail").rate_limit_per_minute = Some(0),
            "execution.queues[mail].rate_limit_per_minute is 0, allowed is 1 to 4294967295",
        ),
        (
            |o| o.execution.drain_timeout = days(2),
            "execution.drain_timeout is 172800s, allowed is 0ns to 86400s",
        ),
        (
            |o| o.execution.unknown_target_min_delay = mins(2),
            "execution.unknown_target_min_delay is 120s, allowed is 100ms to 60s",
        ),
        (
            |o| o.execution.unknown_target_max_delay = days(2),
            "execution.unknown_target_max_delay is 172800s, allowed is 100ms to 86400s",
        ),
        (
            |o| o.execution.unknown_target_limit = Some(Duration::ZERO),
            "execution.unknown_target_limit is 0ns, allowed is 10ms to 31536000s",
        ),
        (
            |o| o.timeout.default_timeout = days(366),
            "timeout.default_timeout is 31622400s, allowed is 0ns to 31536000s",
        ),
        (|o| o.timeout.soft_percent = 101, "timeout.soft_percent is 101, allowed is 1 to 100"),
        (|o| o.timeout.cancel_grace = mins(11), "timeout.cancel_grace is 660s, allowed is 0ns to 600s"),
    ]);
}

#[test]
fn a_bad_node_value_is_named() {
    assert_each_is_named(&[
        (|o| o.node.label = Some(String::new()), "node.label is \"\", allowed is 1 to 255 bytes"),
        (|o| o.node.lease = mins(61), "node.lease is 3660s, allowed is 1s to 3600s"),
        (
            |o| (o.node.beat, o.node.recovery_interval) = (secs(7), secs(7)),
            "node.beat is 7s, allowed is 100ms to 6s (a fifth of node.lease)",
        ),
        (|o| o.node.beat = millis(99), "node.beat is 99ms, allowed is 100ms to 6s (a fifth of node.lease)"),
        (|o| o.node.recovery_interval = secs(1), "node.recovery_interval is 1s, allowed is 6s to 3600s"),
        (|o| o.node.recovery_limit = 0, "node.recovery_limit is 0, allowed is 2 to 10000"),
        (|o| o.node.crash_limit = 0, "node.crash_limit is 0, allowed is 1 to 1000"),
        (|o| o.node.skew_warning = Duration::ZERO, "node.skew_warning is 0ns, allowed is 1ms to 3600s"),
    ]);
}

#[test]
fn a_bad_limit_is_named() {
    assert_each_is_named(&[
        (|o| o.limits.payload_bytes = 0, "limits.payload_bytes is 0, allowed is 1 to 4194304"),
        (|o| o.limits.payload_bytes = 4_194_305, "limits.payload_bytes is 4194305, allowed is 1 to 4194304"),
        (|o| o.limits.params_bytes = 1, "limits.params_bytes is 1, allowed is 2 to 4194304"),
        (|o| o.limits.tags = 1_001, "limits.tags is 1001, allowed is 0 to 1000"),
        (|o| o.limits.tag_bytes = 65, "limits.tag_bytes is 65, allowed is 1 to 64"),
        (|o| o.limits.key_bytes = 256, "limits.key_bytes is 256, allowed is 1 to 255"),
        (|o| o.limits.json_depth = 128, "limits.json_depth is 128, allowed is 1 to 127"),
        (|o| o.limits.result_bytes = 0, "limits.result_bytes is 0, allowed is 1 to 4194304"),
        (|o| o.limits.log_bytes = 4_194_305, "limits.log_bytes is 4194305, allowed is 0 to 4194304"),
    ]);
}

#[test]
fn a_bad_store_value_is_named() {
    assert_each_is_named(&[(
        |o| o.store.priority_boost_interval = millis(999),
        "store.priority_boost_interval is 999ms, allowed is 0ns (no ageing) or 1s to 31536000s",
    )]);
    let unaged = RatchetOptions::default().store(|store| store.priority_boost_interval = Duration::ZERO);
    assert_eq!(unaged.validate(), Ok(()));
}

#[test]
fn a_bad_maintenance_or_recurring_value_is_named() {
    assert_each_is_named(&[
        (
            |o| o.maintenance.dlq_purge.cron = "daily".to_owned(),
            "maintenance.dlq_purge.cron is \"daily\", allowed is a cron expression of 5 to 7 fields",
        ),
        (
            |o| o.maintenance.log_purge.retention = Duration::ZERO,
            "maintenance.log_purge.retention is 0ns, allowed is 1s to 3153600000s",
        ),
        (
            |o| o.maintenance.archive.retention = days(89),
            "maintenance.archive.retention is 7689600s, allowed is at least 7776000s (maintenance.dlq_purge.retention)",
        ),
        (
            |o| o.maintenance.archive.batch_size = 0,
            "maintenance.archive.batch_size is 0, allowed is 1 to 100000",
        ),
        (|o| o.maintenance.lock_ttl = millis(1), "maintenance.lock_ttl is 1ms, allowed is 1s to 86400s"),
        (|o| o.recurring.batch_limit = 0, "recurring.batch_limit is 0, allowed is 1 to 10000"),
        (|o| o.recurring.min_poll = secs(61), "recurring.min_poll is 61s, allowed is 50ms to 60s"),
        (|o| o.recurring.max_poll = mins(61), "recurring.max_poll is 3660s, allowed is 50ms to 3600s"),
        (
            |o| o.recurring.startup_grace = days(2),
            "recurring.startup_grace is 172800s, allowed is 0ns to 86400s",
        ),
        (
            |o| o.recurring.convergence_window = days(31),
            "recurring.convergence_window is 2678400s, allowed is 0ns to 2592000s",
        ),
        (|o| o.recurring.max_catch_up = 0, "recurring.max_catch_up is 0, allowed is 1 to 10000"),
        (|o| o.recurring.lock_ttl = Duration::ZERO, "recurring.lock_ttl is 0ns, allowed is 1s to 86400s"),
    ]);
}

#[test]
fn a_bad_breaker_or_retry_value_is_named() {
    assert_each_is_named(&[
        (|o| o.breaker.fast.failure_rate = 0, "breaker.fast.failure_rate is 0, allowed is 1 to 100"),
        (
            |o| o.breaker.critical.window = 100_001,
            "breaker.critical.window is 100001, allowed is 1 to 100000",
        ),
        (
            |o| o.breaker.standard.open_for = days(2),
            "breaker.standard.open_for is 172800s, allowed is 1ms to 86400s",
        ),
        (
            |o| o.breaker.external_api.half_open_calls = 0,
            "breaker.external_api.half_open_calls is 0, allowed is 1 to 10000",
        ),
        (|o| o.breaker.fast.min_calls = 21, "breaker.fast.min_calls is 21, allowed is 1 to 20"),
        (|o| o.retry.max_retries = 1_000_001, "retry.max_retries is 1000001, allowed is 0 to 1000000"),
        (|o| o.retry.backoff = Backoff::Fixed(days(2)), "retry.backoff is 172800s, allowed is 0ns to 86400s"),
        (|o| o.retry.permit_delay = Duration::ZERO, "retry.permit_delay is 0ns, allowed is 10ms to 86400s"),
        (|o| o.retry.drain_interval = mins(2), "retry.drain_interval is 120s, allowed is 10ms to 60s"),
        (|o| o.retry.alert_window = days(31), "retry.alert_window is 2678400s, allowed is 0ns to 2592000s"),
    ]);
}

#[test]
fn all_problems_are_reported_together() {
    let wrong = RatchetOptions::default()
        .polling(|polling| polling.batch_size = 0)
        .node(|node| (node.crash_limit, node.recovery_limit) = (0, 0))
        .retry(|retry| retry.drain_interval = Duration::ZERO);

    let error = wrong.validate().unwrap_err();

    let named: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        named,
        [
            "polling.batch_size is 0, allowed is 1 to 10000",
            "node.recovery_limit is 0, allowed is 2 to 10000",
            "node.crash_limit is 0, allowed is 1 to 1000",
            "retry.drain_interval is 0ns, allowed is 10ms to 60s",
        ]
    );
    assert_eq!(error.to_string(), named.join("; "));
}

#[test]
fn a_single_problem_is_told_by_itself() {
    let problems = |values: &[u8]| {
        let mut rules = Rules::new("x");
        values.iter().for_each(|value| rules.within("field", *value, 5, 5));
        rules.verdict()
    };
    assert_eq!(problems(&[5]), Ok(()));
    let single = |value: &str| OptionsError::NotAllowed {
        option: "x.field".into(),
        value: value.into(),
        allowed: "5 to 5".into(),
    };
    assert_eq!(problems(&[6]), Err(single("6")));
    assert_eq!(problems(&[4, 6]), Err(OptionsError::Several(vec![single("4"), single("6")])));
}
