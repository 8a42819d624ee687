//! The program `sampler-worker`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sampler_abacus::{AbacusOptions, HttpCollector};
use sampler_service::environment::{Clock, Random, SystemClock, SystemRandom};
use sampler_service::health::Health;
use sampler_service::http::{bind, serve};
use sampler_service::lifecycle::{Stop, run_until_stopped};
use sampler_service::metrics::Metrics;
use sampler_service::platform::Identity;
use sampler_service::settings::load_from_process;
use sampler_service::telemetry;
use sampler_store::SpanStore;
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_worker::settings::{PROGRAM, Settings, millis};
use sampler_worker::shadow::Shadow;
use sampler_worker::{Options, Parts, Time, Worker};
use secrecy::ExposeSecret;

/// What the collector wants to see in a token that comes with usages of any resource.
const COLLECTOR_SCOPE: &str = "abacus.usage.sampler.write";

/// How often clocks are compared with Abacus while nothing is posted.
const CLOCK_INTERVAL: Duration = Duration::from_secs(20);

/// Spans that a look in the shadow reads at once, at least: it does nothing else with them.
const SHADOW_BATCH: usize = 1_000;

fn main() -> ExitCode {
    let settings = match load_from_process(&PROGRAM, Settings::read) {
        Ok(settings) => settings,
        Err(plan) => return plan.carry_out(),
    };
    let identity = Identity::of_this_process();
    if let Err(error) = telemetry::init(&settings.log, &identity) {
        eprintln!("sampler-worker: {error:#}");
        return ExitCode::FAILURE;
    }
    identity.announce(PROGRAM.name, PROGRAM.version);
    settings.database.announce();
    run_until_stopped(|stop| run(settings, stop)).into()
}

/// What this worker does.
enum Work {
    /// It samples.
    Sample(Arc<Worker>),
    /// It looks at what an original does.
    Look(Shadow),
}

/// Sets everything up, then serves and works side by side until told to stop.
async fn run(settings: Settings, stop: Stop) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Arc::new(connect(&settings).await?);
    let mut health = Health::new(stop.clone());
    if let Some(check) = settings.security.health_check()? {
        health.require_credentials(check);
    }
    let mut metrics = Metrics::new(PROGRAM.name, PROGRAM.version, settings.security.metrics()?);
    let work = if let Some(interval) = settings.shadow {
        Work::Look(shadow(&settings, interval, &store, clock, &mut health))
    } else {
        let worker = sampling(&settings, &store, clock, &mut health, &stop)?;
        tell_of_clocks(&worker.time(), &mut health, &mut metrics);
        Work::Sample(worker)
    };
    let asked = Arc::clone(&store);
    health.check("database", move || {
        let store = Arc::clone(&asked);
        async move { store.ping().await.is_ok() }
    });
    // Health is told from the beginning; a large collection takes its time to be indexed.
    let listener = bind(&settings.http).await?;
    let serving = serve(listener, health.routes().merge(metrics.routes()), &stop);
    let working = async {
        let ended = carry_out(work, &store, &stop).await;
        stop.begin();
        ended
    };
    let (served, worked) = tokio::join!(serving, working);
    served.context("serving HTTP").and(worked)
}

async fn carry_out(work: Work, store: &MongoStore, stop: &Stop) -> anyhow::Result<()> {
    match work {
        // Not even the indexes are made: the database stays as the original has it.
        Work::Look(shadow) => shadow.run(stop.soft()).await,
        Work::Sample(worker) => {
            let prepared = store.migrate_when_possible(stop.soft().cancelled()).await;
            if prepared.context("preparing the database")? {
                worker.run().await;
            }
        }
    }
    Ok(())
}

fn sampling(
    settings: &Settings,
    store: &Arc<MongoStore>,
    clock: Arc<dyn Clock>,
    health: &mut Health,
    stop: &Stop,
) -> anyhow::Result<Arc<Worker>> {
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let options = options(settings, &*random);
    let collector = HttpCollector::new(&AbacusOptions {
        url: settings.collector_url.clone(),
        timeout: settings.post_timeout,
        skip_ssl_validation: settings.security.skip_ssl_validation,
        authorities: settings.security.authorities.clone(),
        tokens: settings.security.tokens(COLLECTOR_SCOPE)?,
    })?
    .accept_conflict(settings.accept_conflict);
    let parts = Parts {
        store: store.clone(),
        collector: Arc::new(collector),
        processing: Arc::new(health.progress("processing", settings.process_threshold)),
        cleanup: Arc::new(health.progress("cleanup", settings.cleanup_threshold)),
        clock,
        random,
    };
    Ok(Worker::new(parts, options, stop.soft().clone()))
}

/// Says how the clock of this machine stands to Abacus's. A worker that corrects its clock samples
/// as it should, so it is well; somebody should look after the clock all the same.
fn tell_of_clocks(time: &Arc<Time>, health: &mut Health, metrics: &mut Metrics) {
    let asked = Arc::clone(time);
    health.warning("clock", move || asked.disagrees());
    let asked = Arc::clone(time);
    health.warning("own clock", move || asked.is_own());
    let asked = Arc::clone(time);
    metrics.gauge(
        "sampler_clock_offset_seconds",
        "How far the clock of this machine is ahead of Abacus's; negative where it is behind",
        move || asked.ahead().map(|ahead| ahead as f64 / 1_000.0),
    );
}

fn shadow(
    settings: &Settings,
    interval: Duration,
    store: &Arc<MongoStore>,
    clock: Arc<dyn Clock>,
    health: &mut Health,
) -> Shadow {
    Shadow {
        pages: store.clone(),
        clock,
        beat: Arc::new(health.progress("processing", settings.process_threshold)),
        policy: settings.policy.clone(),
        batch: settings.process_batch.max(SHADOW_BATCH),
        interval,
    }
}

async fn connect(settings: &Settings) -> anyhow::Result<MongoStore> {
    let database = &settings.database;
    let options = MongoOptions {
        uri: database.uri.expose_secret().to_owned(),
        database: database.database.clone(),
        collection: database.collection.clone(),
        pool_size: database.pool_size,
        server_selection_timeout: database.server_selection_timeout,
        operation_timeout: database.operation_timeout,
        app_name: PROGRAM.name.to_owned(),
    };
    Ok(MongoStore::connect(options).await?)
}

fn options(settings: &Settings, random: &dyn Random) -> Options {
    Options {
        name: random.uuid_v4().to_string(),
        policy: settings.policy.clone(),
        backoff: settings.backoff,
        month_slack: settings.month_slack,
        posts: settings.posts,
        spans: settings.spans,
        process_batch: settings.process_batch,
        process_interval: settings.process_interval,
        cleanup_batch: settings.cleanup_batch,
        cleanup_interval: settings.cleanup_interval,
        retention: millis(settings.retention),
        adopt_interval: settings.adopt_interval,
        heartbeat_interval: settings.heartbeat_interval,
        clock_interval: CLOCK_INTERVAL,
    }
}
