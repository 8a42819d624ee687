//! The program `sampler-worker`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sampler_abacus::{AbacusOptions, HttpCollector, HttpConfirmer};
use sampler_domain::Timestamp;
use sampler_metrics::Registry;
use sampler_metrics::catalogue::CLOCK_OFFSET_SECONDS;
use sampler_service::environment::{Clock, Random, SystemClock, SystemRandom};
use sampler_service::health::Health;
use sampler_service::http::{HttpMetrics, Port, bind, bind_metrics, serve};
use sampler_service::lifecycle::{Shutdown, UnusableSettings, run_until_stopped};
use sampler_service::metrics;
use sampler_service::platform::Identity;
use sampler_service::problem;
use sampler_service::settings::{Variables, load_from_process};
use sampler_service::telemetry::{self, LogCounts};
use sampler_steering::InstanceReports;
use sampler_store::{Instance, InstanceProgram};
use sampler_store_mongo::{MigrationError, MongoStore, Retired};
use sampler_worker::settings::{PROGRAM, Settings};
use sampler_worker::shadow::Shadow;
use sampler_worker::{AbacusTime, Confirming, Intervals, Options, Parts, Worker};

/// The scope that the collector requires in a token for usages of any resource.
const COLLECTOR_SCOPE: &str = "abacus.usage.sampler.write";

/// To read collected usages takes `abacus.usage.read`, or `abacus.usage.<resource_id>.read` for each
/// resource. So a token with all scopes of the client is requested. It is not the token of posts: a
/// client without these scopes posts as before.
const CONFIRMATION_SCOPE: &str = "";

/// The pause before the indexes of an original are tried to be removed again.
const RETIRE_PAUSE: Duration = Duration::from_secs(30);

/// Spans on a page in shadow mode, at least. It only reads them.
const SHADOW_BATCH: usize = 1_000;

fn main() -> ExitCode {
    let settings = match load_from_process(&PROGRAM, Settings::read) {
        Ok(settings) => settings,
        Err(exit) => return exit.report(),
    };
    let identity = Identity::of_this_process();
    let traces = &settings.traces;
    let traces = traces.options(PROGRAM.name, PROGRAM.version, &settings.security);
    let telemetry = match telemetry::init(&settings.log, &identity, traces.as_ref()) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("sampler-worker: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let counts = telemetry.counts();
    identity.announce(PROGRAM.name, PROGRAM.version);
    settings.database.announce();
    let remote = [("COLLECTOR_URL", &settings.abacus.collector_url)];
    let variables = Variables::of_this_process();
    settings.security.announce(&remote, &variables);
    let index = identity.index().map(str::to_owned);
    let end = run_until_stopped(|shutdown| run(settings, counts, index, shutdown));
    drop(telemetry);
    end.into()
}

/// The mode of this worker.
enum Mode {
    /// It samples.
    Sample(Arc<Worker>),
    /// It compares what an original does.
    Shadow(Shadow),
}

/// Sets everything up, then serves HTTP and works until the shutdown.
async fn run(
    settings: Settings,
    counts: LogCounts,
    index: Option<String>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started_at = clock.now();
    let store = Arc::new(MongoStore::connect(settings.database.options(PROGRAM.name)).await?);
    let original_gone = settings.processing.original_gone;
    let mut health = Health::new(shutdown.clone());
    if let Some(check) = settings.security.health_check()? {
        health.require_credentials(check);
    }
    let of_http = HttpMetrics::default();
    let mut registry = Registry::new(PROGRAM.name, PROGRAM.version);
    of_http.register(&mut registry);
    counts.register(&mut registry);
    store.register_metrics(&mut registry);
    let tokens = settings.security.reader_tokens(Arc::clone(&clock));
    let readers = settings.security.metrics(tokens)?;
    let mode = if settings.shadow.enabled {
        Mode::Shadow(shadow(&settings, &store, clock, &mut health))
    } else {
        let worker = worker(&settings, &store, &clock, &mut health, &shutdown)?;
        report_clocks(&worker.time(), &mut health, &mut registry);
        register_metrics(&worker, &clock, &mut registry);
        Mode::Sample(worker)
    };
    check_database(&store, &mut health);
    let reports = match &mode {
        Mode::Sample(worker) => {
            let instance = instance(worker, index, started_at);
            Some(reports(worker, instance, &store, &health, &shutdown))
        }
        // It writes nothing.
        Mode::Shadow(_) => None,
    };
    // Health is served from the beginning: indexing a large collection takes its time.
    let port = Port {
        listener: bind(&settings.http).await?,
        tls: None,
        metrics: of_http,
    };
    let apart = bind_metrics(&settings.http).await?;
    let registry = Arc::new(registry);
    let router = health
        .routes()
        .merge(metrics::routes(&registry, readers))
        .merge(problem::help::routes(
            problem::kinds::ALL.iter().collect(),
            None,
        ));
    let serving = async {
        let apart = metrics::serve_apart(apart, &registry, &shutdown);
        let (served, apart) = tokio::join!(serve(port, router, &shutdown), apart);
        served.and(apart)
    };
    let working = async {
        let ended = Box::pin(work(mode, original_gone, &store, &shutdown)).await;
        shutdown.begin();
        ended
    };
    let running = async { tokio::join!(serving, working) };
    let (served, worked) = match reports {
        Some(reports) => Box::pin(reports.during(running)).await,
        None => running.await,
    };
    served.context("serving HTTP").and(worked)
}

/// Adds the check of the database to those of `/healthcheck`.
fn check_database(store: &Arc<MongoStore>, health: &mut Health) {
    let store = Arc::clone(store);
    health.check("database", move || {
        let store = Arc::clone(&store);
        async move { store.ping().await.is_ok() }
    });
}

/// The metrics of a worker that samples.
fn register_metrics(worker: &Arc<Worker>, clock: &Arc<dyn Clock>, registry: &mut Registry) {
    worker.register_metrics(registry);
    let steering = worker.steering();
    steering.register_metrics(registry, clock, worker.month());
}

/// The report of this worker about itself.
fn instance(worker: &Worker, index: Option<String>, started_at: Timestamp) -> Instance {
    Instance {
        index,
        version: Some(PROGRAM.version.to_owned()),
        started_at: Some(started_at),
        ..Instance::new(worker.name().to_owned(), InstanceProgram::Worker)
    }
}

/// The publication of this worker's reports to all instances.
fn reports(
    worker: &Arc<Worker>,
    instance: Instance,
    store: &Arc<MongoStore>,
    health: &Health,
    shutdown: &Shutdown,
) -> InstanceReports {
    let worker = Arc::clone(worker);
    InstanceReports {
        store: store.clone(),
        health: health.clone(),
        shutdown: shutdown.clone(),
        instance,
        describe: Box::new(move |instance| worker.describe(instance)),
    }
}

async fn work(
    mode: Mode,
    original_gone: bool,
    store: &MongoStore,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    match mode {
        // Not even the indexes are made: the database stays as the original has it.
        Mode::Shadow(shadow) => shadow.run(shutdown.soft()).await,
        Mode::Sample(worker) => {
            let prepared = store
                .migrate_when_possible(shutdown.soft().cancelled())
                .await;
            if prepared.map_err(unprepared)? {
                let retiring = retire_original(original_gone, store, shutdown);
                tokio::join!(worker.run(), retiring);
            }
        }
    }
    Ok(())
}

/// Why the database could not be prepared.
fn unprepared(error: MigrationError) -> anyhow::Error {
    let is_misconfiguration = error.is_misconfiguration();
    let error = anyhow::Error::from(error).context("preparing the database");
    if is_misconfiguration {
        anyhow::Error::from(UnusableSettings::new(&format!("{error:#}")))
    } else {
        error
    }
}

/// Removes the indexes that only an original needs, once an operator has set that no original is
/// left. If something still needs them, logs that and tries again.
async fn retire_original(is_gone: bool, store: &MongoStore, shutdown: &Shutdown) {
    while is_gone && !shutdown.is_stopping() {
        match store.retire_original_indexes().await {
            Ok(Retired::Done) => return,
            Ok(Retired::SpansWithoutPartition) => {
                tracing::warn!(
                    code = "retire.spans_left",
                    "spans of an original are not adopted yet: its indexes stay"
                );
            }
            Ok(Retired::BinaryIds) => {
                tracing::warn!(
                    code = "retire.binary_ids",
                    "ids of events are still UUID binaries: the indexes of an original stay"
                );
            }
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::warn!(
                    code = "retire.failed",
                    error,
                    "removing the indexes of an original failed"
                );
            }
        }
        let pause = tokio::time::sleep(RETIRE_PAUSE);
        shutdown.soft().run_until_cancelled(pause).await;
    }
}

fn worker(
    settings: &Settings,
    store: &Arc<MongoStore>,
    clock: &Arc<dyn Clock>,
    health: &mut Health,
    shutdown: &Shutdown,
) -> anyhow::Result<Arc<Worker>> {
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let options = Options {
        name: random.uuid_v4().to_string(),
        policy: settings.policy.clone(),
        abacus: settings.abacus.clone(),
        month: settings.month.clone(),
        processing: settings.processing.clone(),
        cleanup: settings.cleanup.clone(),
        ledger: settings.ledger.clone(),
        suspension: settings.suspension.clone(),
        confirm: settings.confirm.clone(),
        audit: settings.audit.clone(),
        distress: settings.distress.clone(),
        intervals: Intervals::default(),
    };
    let collector = HttpCollector::new(&abacus_options(settings, COLLECTOR_SCOPE)?)?
        .accept_conflict(settings.abacus.accept_conflict);
    let confirmer = HttpConfirmer::new(&abacus_options(settings, CONFIRMATION_SCOPE)?)?;
    let parts = Parts {
        work: store.clone(),
        ledger: store.clone(),
        resends: store.clone(),
        causes: store.clone(),
        span_scan: store.clone(),
        upkeep: store.clone(),
        membership: store.clone(),
        backlogs: store.clone(),
        controls: store.clone(),
        replication: store.clone(),
        confirming: Confirming {
            store: store.clone(),
            confirmer: Arc::new(confirmer),
        },
        collector: Arc::new(collector),
        processing_progress: Arc::new(health.progress("processing", settings.processing.threshold)),
        cleanup_progress: Arc::new(health.progress("cleanup", settings.cleanup.threshold)),
        clock: Arc::clone(clock),
        random,
    };
    Ok(Worker::new(parts, options, shutdown.soft().clone()))
}

/// The address of the collector and the terms of a call, with tokens of this scope.
fn abacus_options(settings: &Settings, scope: &'static str) -> anyhow::Result<AbacusOptions> {
    Ok(AbacusOptions {
        url: settings.abacus.collector_url.clone(),
        timeout: settings.abacus.timeout,
        skip_ssl_validation: settings.security.skip_ssl_validation,
        authorities: settings.security.authorities(),
        tokens: settings.security.tokens(scope)?,
    })
}

/// Reports how the clock of this machine differs from Abacus's. The worker corrects the difference,
/// so it is only a warning: an operator should still set the clock right.
fn report_clocks(time: &Arc<AbacusTime>, health: &mut Health, registry: &mut Registry) {
    health.warning("clock", {
        let time = Arc::clone(time);
        move || time.disagrees()
    });
    health.warning("own clock", {
        let time = Arc::clone(time);
        move || time.uses_own_clock()
    });
    let time = Arc::clone(time);
    registry.gauge(&CLOCK_OFFSET_SECONDS, move || {
        time.ahead().map(|ahead| ahead as f64 / 1_000.0)
    });
}

fn shadow(
    settings: &Settings,
    store: &Arc<MongoStore>,
    clock: Arc<dyn Clock>,
    health: &mut Health,
) -> Shadow {
    Shadow {
        pages: store.clone(),
        clock,
        progress: Arc::new(health.progress("processing", settings.processing.threshold)),
        policy: settings.policy.clone(),
        batch: settings.processing.batch_size.max(SHADOW_BATCH),
        interval: settings.shadow.interval,
    }
}
