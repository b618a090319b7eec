//! Tests of the guide's programs that need MongoDB.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod service;

use std::process::{Command, Stdio};

use ratchet_servers::Server;
use ratchet_store_mongodb::mongodb::Client;
use service::Service;

#[tokio::test]
async fn the_programs_that_need_mongodb_do_what_their_pages_say() {
    let url = ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"));
    a_job_is_stored_with_the_order_or_not_at_all(&url);
    a_web_service_submits_and_runs_jobs(&url);
    let client = Client::with_uri_str(&url).await.unwrap();
    client.database("shop").drop().await.unwrap();
}

fn a_job_is_stored_with_the_order_or_not_at_all(url: &str) {
    let program = env!("CARGO_BIN_EXE_submit_in_mongodb");
    let out = Command::new(program).env("MONGODB_URL", url).stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        include_str!("../expected/submit_in_mongodb.txt"),
        "{errors}"
    );
}

fn a_web_service_submits_and_runs_jobs(url: &str) {
    let mut service = Service::start(env!("CARGO_BIN_EXE_mongodb"), ("MONGODB_URL", url));
    let (status, first) = service.ask("POST /sign-ups", "ada");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let (_, second) = service.ask("POST /sign-ups", "ada");
    assert_eq!(first, second, "one job");
    while service.ask(&format!("GET /jobs/{first}"), "").1 != "SUCCEEDED" {}
    assert_eq!(service.ask("GET /ready", "").0, "HTTP/1.1 200 OK");
    let unknown = "GET /jobs/00000000-0000-7000-8000-000000000000";
    assert_eq!(service.ask(unknown, "").0, "HTTP/1.1 404 Not Found");
    service.stop();
}
