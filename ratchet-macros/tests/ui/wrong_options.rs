use ratchet_core::job;

#[job(target = "a", timeout = "5 minutes")]
async fn one() {}

#[job(target = "a", backoff = "sometimes 5s")]
async fn two() {}

#[job(target = "a", priority = "urgent")]
async fn three() {}

#[job(target = "a", retries = 3)]
async fn four() {}

#[job]
async fn five() {}

#[job(target = "a", breaker_profile = "fast")]
async fn six() {}

#[job(target = "a", breaker = "bank", breaker_profile = "quick")]
async fn seven() {}

fn main() {}
