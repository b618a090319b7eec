//! The views for people who look at a MySQL database by hand.

use crate::harness::list;
use crate::install::install;
use crate::place::{Product, TestDatabase};
use crate::text;

const MYSQL: &[Product] = &[Product::MySql, Product::MariaDb];

list! {
    MYSQL =>
        ids_are_shown_as_people_write_them,
        a_job_is_found_by_its_index_through_the_views;
}

/// Creates the view of jobs, and one waiting job with two tags.
async fn one_job(place: &TestDatabase) {
    install(place).await;
    let mut client = place.connect().await;
    let views = text::of(place.product).read("views/vw_jobs.sql");
    client.run(views).await;
    // Again, as after a migration.
    client.run(views).await;
    for statement in [
        "INSERT INTO ratchet.scheduler_job (job_id, job_type, queue, payload, target, method, created_at, batch_id) \
         VALUES (UNHEX('0190163d8694739baea5966c26f8ad91'), 'SINGLE', 'default', '{}', 't', 'm', UTC_TIMESTAMP(3), \
         UNHEX('0190163D8694739BAEA5966C26F8AD92'))",
        "INSERT INTO ratchet.scheduler_job_queue (job_id, status, job_type, queue, priority, scheduled_time, \
         max_retries, updated_at) SELECT job_id, 'PENDING', job_type, queue, priority, created_at, 0, created_at \
         FROM ratchet.scheduler_job",
        "INSERT INTO ratchet.scheduler_job_tag (job_id, tag, place) SELECT job_id, 'z\"\\\\', 1 FROM ratchet.scheduler_job",
        "INSERT INTO ratchet.scheduler_job_tag (job_id, tag, place) SELECT job_id, 'a', 2 FROM ratchet.scheduler_job",
    ] {
        client.run(statement).await;
    }
}

// shows: S166 S167 S188
async fn ids_are_shown_as_people_write_them(place: TestDatabase) {
    one_job(&place).await;
    let mut client = place.connect().await;
    let shown = "SELECT concat_ws('|', job_id, status, batch_id, coalesce(depends_on, 'none'), tags) \
                 FROM ratchet.vw_readable_jobs WHERE job_id = :id";
    let id = "0190163d-8694-739b-aea5-966c26f8ad91";
    let line = r#"0190163d-8694-739b-aea5-966c26f8ad91|PENDING|0190163d-8694-739b-aea5-966c26f8ad92|none|["z\"\\","a"]"#;
    assert_eq!(client.texts(shown, &[id]).await, [line]);
    let by_raw =
        "SELECT job_id FROM ratchet.vw_readable_jobs WHERE raw_job_id = UNHEX(REPLACE(:id, '-', ''))";
    assert_eq!(client.texts(by_raw, &[id]).await, [id]);
}

async fn a_job_is_found_by_its_index_through_the_views(place: TestDatabase) {
    one_job(&place).await;
    let mut client = place.connect().await;
    let views = "SELECT table_name FROM information_schema.views WHERE table_schema = :schema";
    assert_eq!(client.texts(views, &[&place.name]).await.len(), 11);
    for question in [
        "EXPLAIN FORMAT = JSON SELECT v.* FROM ratchet.scheduler_job_queue q \
         STRAIGHT_JOIN ratchet.vw_jobs v ON v.job_id = q.job_id",
        "EXPLAIN FORMAT = JSON SELECT v.* FROM ratchet.scheduler_job_queue q \
         STRAIGHT_JOIN ratchet.vw_readable_jobs v ON v.raw_job_id = q.job_id",
    ] {
        let plan = client.texts(question, &[]).await.concat();
        assert!(!plan.to_lowercase().contains("materialized"), "the view is copied: {plan}");
    }
}
