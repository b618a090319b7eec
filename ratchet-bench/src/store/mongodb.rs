//! The MongoDB store: a database for each place.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use mongodb::Client;
use ratchet_api::StoreClock;
use ratchet_api::store::JobStore;
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};

use super::{Bench, Place};

pub(super) struct Mongo {
    url: String,
}

impl Mongo {
    pub(super) fn open() -> Result<Self> {
        Ok(Self { url: ratchet_servers::url(Server::Mongodb)? })
    }
}

#[async_trait]
impl Bench for Mongo {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let database = format!("ratchet_bench_{:016x}", rand::random::<u64>());
        Ok(Box::new(MongoPlace { url: self.url.clone(), database }))
    }
}

struct MongoPlace {
    url: String,
    database: String,
}

#[async_trait]
impl Place for MongoPlace {
    async fn connect(&self, clock: StoreClock, _connections: usize) -> Result<Arc<dyn JobStore>> {
        let options = MongoOptions { database: self.database.clone(), clock, ..MongoOptions::default() };
        Ok(Arc::new(MongoStore::connect(&self.url, options).await?))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(Client::with_uri_str(&self.url).await?.database(&self.database).drop().await?)
    }
}
