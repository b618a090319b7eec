//! Empty stores in MongoDB.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use ratchet_api::StoreClock;
use ratchet_api::store::JobStore;
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};

use super::TestStore;

/// Makes an empty database on the test server.
pub fn mongodb() -> BoxFuture<'static, Box<dyn TestStore>> {
    Box::pin(async { Box::new(Reused::new()) as Box<dyn TestStore> })
}

/// Drops every database that [`mongodb()`] made. No case may use one any more.
pub fn drop_mongodb() {
    let made = std::mem::take(&mut REUSED.lock().unwrap_or_else(PoisonError::into_inner).made);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        for name in made {
            Collections(name).remove().await;
        }
    });
}

/// A database on the test server with a name of its own.
pub struct Collections(String);

impl Default for Collections {
    fn default() -> Self {
        Self(format!("suite_{:032x}", rand::random::<u128>()))
    }
}

impl Collections {
    /// Returns the database, over a connection of its own.
    pub async fn database(&self) -> Database {
        Client::with_uri_str(mongodb_url()).await.expect("the server answers").database(&self.0)
    }

    /// Returns the options that open a store in this database.
    pub fn options(&self) -> MongoOptions {
        MongoOptions::default().database(self.0.clone())
    }
}

/// Returns the URL of the test server.
pub fn mongodb_url() -> String {
    ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"))
}

#[async_trait]
impl TestStore for Collections {
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        let options = self.options().clock(clock);
        Arc::new(MongoStore::connect(&mongodb_url(), options).await.expect("the store opens"))
    }

    async fn remove(&self) {
        self.database().await.drop().await.expect("the database goes");
    }
}

/// A database that is emptied and reused: making its collections and indexes takes longer than most cases.
struct Reused(Collections);

/// The names of reused databases: all, and those that no case uses now.
struct Names {
    made: Vec<String>,
    idle: Vec<String>,
}

static REUSED: Mutex<Names> = Mutex::new(Names { made: Vec::new(), idle: Vec::new() });

impl Reused {
    fn new() -> Self {
        let mut names = REUSED.lock().expect("no holder panics");
        let idle = names.idle.pop();
        Self(idle.map_or_else(
            || {
                let fresh = Collections::default();
                names.made.push(fresh.0.clone());
                fresh
            },
            Collections,
        ))
    }
}

#[async_trait]
impl TestStore for Reused {
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        self.0.connect_at(clock).await
    }

    async fn remove(&self) {
        let database = self.0.database().await;
        for name in database.list_collection_names().await.expect("the catalogue") {
            // This collection holds the version of the others.
            if name != "scheduler_schema" {
                let collection = database.collection::<Document>(&name);
                collection.delete_many(doc! {}).await.expect("the collection is emptied");
            }
        }
        REUSED.lock().expect("no holder panics").idle.push(self.0.0.clone());
    }
}
