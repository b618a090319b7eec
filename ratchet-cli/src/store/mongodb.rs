//! Stores in MongoDB.

use std::sync::Arc;

use anyhow::{Result, bail};
use ratchet_api::StoreErrorKind;
use ratchet_api::store::JobStore;
use ratchet_store_mongodb::{MongoOptions, MongoStore};

use super::StoreArgs;
use crate::output::migration::Applied;

pub(super) async fn open(url: &str, place: &StoreArgs) -> Result<Arc<dyn JobStore>> {
    Ok(Arc::new(connect(url, place, false).await?))
}

/// Creates missing collections and indexes, which connecting does.
pub(super) async fn migrate(url: &str, place: &StoreArgs) -> Result<Applied> {
    connect(url, place, true).await?;
    Ok(Applied::default())
}

async fn connect(url: &str, place: &StoreArgs, migrate: bool) -> Result<MongoStore> {
    let mut options = MongoOptions::default().migrate(migrate);
    if let Some(database) = &place.schema {
        options.database.clone_from(database);
    }
    if let Some(prefix) = &place.prefix {
        options.prefix.clone_from(prefix);
    }
    match MongoStore::connect(url, options).await {
        // The driver's message about a URL that it cannot parse may repeat parts of it.
        Err(error) if error.kind() == StoreErrorKind::Invalid => bail!(
            "the URL is not one of MongoDB, or --schema or --prefix is no usable name; special characters in user and \
             password are written as %XX"
        ),
        connected => Ok(connected?),
    }
}
