//! The worker as it is, and without what it writes to the ledger: everything else is the same, so
//! that the difference is what the ledger costs.

use std::sync::Arc;

use anyhow::{Result, bail};
use async_trait::async_trait;
use sampler_abacus::{AbacusOptions, HttpCollector, HttpConfirmer};
use sampler_domain::{Entry, EntryState, SpanId, Target};
use sampler_service::environment::{Random, SystemClock, SystemRandom};
use sampler_service::settings::{Variables, load};
use sampler_store::{Entries, Finished, Ledger, StoreError};
use sampler_store_mongo::MongoStore;
use sampler_worker::settings::{PROGRAM, Settings};
use sampler_worker::{Confirming, IgnoreProgress, Intervals, Options, Parts, Worker};
use tokio_util::sync::CancellationToken;

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

    async fn entries(
        &self,
        _: &SpanId,
        _: &Target,
        _: Option<i64>,
        _: usize,
    ) -> Result<Entries, StoreError> {
        Ok(Entries {
            entries: Vec::new(),
            unreadable: 0,
            next: None,
        })
    }
}

/// Works until it is killed, with the worker's own settings from the environment.
pub(crate) async fn work(has_ledger: bool) -> Result<()> {
    let variables = Variables::of_this_process();
    let settings = match load(&PROGRAM, [PROGRAM.name], &variables, Settings::read) {
        Ok(settings) => settings,
        Err(exit) => bail!("unusable settings: {exit:?}"),
    };
    let store = Arc::new(MongoStore::connect(settings.database.options(PROGRAM.name)).await?);
    let abacus = AbacusOptions {
        url: settings.abacus.collector_url.clone(),
        timeout: settings.abacus.timeout,
        skip_ssl_validation: settings.security.skip_ssl_validation,
        authorities: settings.security.authorities(),
        tokens: settings.security.tokens(COLLECTOR_SCOPE)?,
    };
    let collector = HttpCollector::new(&abacus)?;
    let confirming = Confirming {
        store: store.clone(),
        confirmer: Arc::new(HttpConfirmer::new(&abacus)?),
    };
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let options = Options {
        name: random.uuid_v4().to_string(),
        policy: settings.policy,
        month: settings.month,
        abacus: settings.abacus,
        processing: settings.processing,
        cleanup: settings.cleanup,
        ledger: settings.ledger,
        suspension: settings.suspension,
        distress: settings.distress,
        confirm: settings.confirm,
        audit: settings.audit,
        intervals: Intervals::default(),
    };
    let ledger: Arc<dyn Ledger> = if has_ledger {
        store.clone()
    } else {
        Arc::new(Nowhere)
    };
    let parts = Parts {
        work: store.clone(),
        ledger,
        resends: store.clone(),
        causes: store.clone(),
        confirming,
        span_scan: store.clone(),
        upkeep: store.clone(),
        membership: store.clone(),
        backlogs: store.clone(),
        controls: store.clone(),
        replication: store,
        collector: Arc::new(collector),
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
