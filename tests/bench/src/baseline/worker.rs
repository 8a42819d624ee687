//! The worker as it is, and without what it writes to the ledger: everything else is the same, so
//! that the difference is what the ledger costs.

use std::sync::Arc;

use anyhow::{Result, bail};
use async_trait::async_trait;
use sampler_domain::{Acceptance, Entry, EntryState, LastError, Resend, Timestamp};
use sampler_program::ProgramSettings;
use sampler_service::environment::{Random, SystemClock, SystemRandom};
use sampler_service::settings::{Variables, load};
use sampler_store::{
    Confirmation, EntryKey, Finished, Ledger, StoreError, Unconfirmed, UnconfirmedQuery,
};
use sampler_store_mongo::MongoStore;
use sampler_upstream::{Abacus, ClientOptions, HttpCollector, HttpConfirmer};
use sampler_worker::settings::{CheckedSettings, Destination, PROGRAM};
use sampler_worker::{IgnoreProgress, Options, Parts, Periods, Worker};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// As in the program.
const COLLECTOR_SCOPE: &str = "abacus.usage.sampler.write";

/// A ledger that forgets each entry at once.
struct Nowhere;

#[async_trait]
impl Ledger for Nowhere {
    async fn write_entry(&self, entry: Entry, _: i64) -> Result<EntryState, StoreError> {
        Ok(entry.state)
    }

    async fn expire(&self, _: &[Finished]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn mark_resend(&self, _: &EntryKey, _: &Resend) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn withheld_of(&self, _: &Entry) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    async fn takes_back_uncounted(&self, _: &Entry) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn due_resends(&self, _: Timestamp, _: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    async fn postpone_resend(&self, _: &EntryKey, _: Uuid, _: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn claim_resend(
        &self,
        _: &EntryKey,
        _: &Resend,
        _: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn accept_resent(&self, _: &Entry, _: &Acceptance) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn has_resend(&self, _: &EntryKey, _: Uuid) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn end_resend(
        &self,
        _: &EntryKey,
        _: Uuid,
        _: Option<&LastError>,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unconfirmed(&self, _: &UnconfirmedQuery) -> Result<Vec<Unconfirmed>, StoreError> {
        Ok(Vec::new())
    }

    async fn confirm(&self, _: &[(Unconfirmed, Confirmation)]) -> Result<u64, StoreError> {
        Ok(0)
    }
}

/// Works until it is killed, with the worker's own settings from the environment.
pub(crate) async fn work(has_ledger: bool) -> Result<()> {
    let variables = Variables::of_this_process();
    let checked = match load(&PROGRAM, [PROGRAM.name], &variables, CheckedSettings::read) {
        Ok(settings) => settings,
        Err(exit) => bail!("unusable settings: {exit:?}"),
    };
    let settings = checked.settings;
    let store = Arc::new(MongoStore::connect(settings.database.options(PROGRAM.name)).await?);
    let Destination::Abacus(url) = checked.destination else {
        bail!("it posts to Abacus alone");
    };
    let abacus = ClientOptions {
        url,
        http: settings.security.http_options(settings.delivery.timeout),
        tokens: settings.security.tokens(COLLECTOR_SCOPE)?,
    };
    let upstream = Abacus {
        collector: HttpCollector::new(&abacus)?,
        documents: HttpConfirmer::new(&abacus)?,
    };
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let options = Options {
        name: random.uuid_v4().to_string(),
        settings,
        periods: Periods::default(),
    };
    let ledger: Arc<dyn Ledger> = if has_ledger {
        store.clone()
    } else {
        Arc::new(Nowhere)
    };
    let parts = Parts {
        work: store.clone(),
        ledger,
        causes: store.clone(),
        operating: store.clone(),
        upstream: Arc::new(upstream),
        processing_progress: Arc::new(IgnoreProgress),
        cleanup_progress: Arc::new(IgnoreProgress),
        clock: Arc::new(SystemClock),
        random,
    };
    Worker::new(parts, options, CancellationToken::new())
        .run()
        .await;
    Ok(())
}
