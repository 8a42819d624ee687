//! The program `sampler-receiver`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sampler_abacus::{AbacusOptions, Provisioning};
use sampler_domain::Timestamp;
use sampler_metrics::Registry;
use sampler_receiver::settings::{PROGRAM, Settings};
use sampler_receiver::{Options, Parts, Receiver, SnapshotLimits, console, reading};
use sampler_service::environment::{Clock, Random, SystemClock, SystemRandom};
use sampler_service::health::{Health, Progress};
use sampler_service::http::{HttpMetrics, Port, bind, bind_metrics, serve};
use sampler_service::lifecycle::{Shutdown, UnusableSettings, run_until_stopped};
use sampler_service::metrics;
use sampler_service::platform::Identity;
use sampler_service::security::Authenticator;
use sampler_service::settings::{Variables, load_from_process};
use sampler_service::telemetry::{self, LogCounts};
use sampler_steering::InstanceReports;
use sampler_store::{Instance, InstanceProgram};
use sampler_store_mongo::{MigrationError, MongoOptions, MongoReader, MongoStore};

/// The scope that the provisioning service requires in a token for mappings.
const PROVISIONING_SCOPE: &str = "abacus.usage.write";

fn main() -> ExitCode {
    let settings = match load_from_process(&PROGRAM, Settings::read) {
        Ok(settings) => settings,
        Err(exit) => return exit.report(),
    };
    let identity = Identity::of_this_process();
    let index = identity.index().map(str::to_owned);
    let traces = &settings.traces;
    let traces = traces.options(PROGRAM.name, PROGRAM.version, &settings.security);
    let telemetry = match telemetry::init(&settings.log, &identity, traces.as_ref()) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("sampler-receiver: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let counts = telemetry.counts();
    identity.announce(PROGRAM.name, PROGRAM.version);
    settings.database.announce();
    let provisioning = settings.provisioning.url.iter();
    let remote: Vec<_> = provisioning.map(|url| ("PROVISIONING_URL", url)).collect();
    let variables = Variables::of_this_process();
    settings.security.announce(&remote, &variables);
    let end = run_until_stopped(|shutdown| run(settings, counts, index, shutdown));
    drop(telemetry);
    end.into()
}

/// Sets everything up, then serves HTTP and watches the database until the shutdown.
async fn run(
    settings: Settings,
    counts: LogCounts,
    index: Option<String>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started_at = clock.now();
    let database = settings.database.options(PROGRAM.name);
    let options = options(&settings, database.unknown_for());
    let (store, queries) = connect(database).await?;
    let parts = parts(&settings, &store, queries, &clock)?;
    let receiver = Receiver::new(parts, options);
    let authenticator = settings.security.authenticator(Arc::clone(&clock))?;
    let (health, reachable) = health(&settings, &receiver, &authenticator, &shutdown)?;
    let of_http = HttpMetrics::default();
    let registry = Arc::new(registry(&receiver, &store, &of_http, &counts));
    let api = Arc::clone(&receiver).routes(authenticator.clone());
    let random = Arc::new(SystemRandom);
    let reports = InstanceReports {
        store: store.clone(),
        health: health.clone(),
        shutdown: shutdown.clone(),
        instance: instance(&settings, index, random.uuid_v4().to_string(), started_at),
        describe: Box::new(|_| {}),
    };
    let steering = Arc::clone(&receiver.steering);
    let past = Box::new(move || steering.trend());
    let users = authenticator.clone();
    let console = console::routes(&settings, api.clone(), users, past, clock, random)?;
    let readers = settings.security.metrics(Some(authenticator.clone()))?;
    let router = api
        .merge(console)
        .merge(health.routes())
        .merge(metrics::routes(&registry, readers));
    let apart = bind_metrics(&settings.http).await?;
    // Health is served from the beginning: indexing a large collection takes its time.
    let port = Port {
        listener: bind(&settings.http).await?,
        tls: settings.tls,
        metrics: of_http,
    };
    let serving = async {
        let apart = metrics::serve_apart(apart, &registry, &shutdown);
        let (served, apart) = tokio::join!(serve(port, router, &shutdown), apart);
        served.and(apart)
    };
    let threshold = settings.health.threshold;
    let watching = prepare_and_watch(&receiver, &store, &reachable, threshold, &shutdown);
    let refreshing = keep_keys_fresh(&authenticator, &shutdown);
    let running = async { tokio::join!(serving, watching, refreshing) };
    let (served, watched, refreshed) = Box::pin(reports.during(running)).await;
    refreshed?;
    served.context("serving HTTP").and(watched)
}

/// The store, and a reader with connections of its own, so that what reads delays no event.
async fn connect(options: MongoOptions) -> anyhow::Result<(Arc<MongoStore>, Arc<MongoReader>)> {
    let of_readers = MongoOptions {
        pool_size: reading::AT_ONCE,
        operation_timeout: options.operation_timeout.min(reading::TIME_LIMIT),
        ..options.clone()
    };
    let store = MongoStore::connect(options).await?;
    let reader = store.reader(of_readers).await?;
    Ok((Arc::new(store), Arc::new(reader)))
}

fn parts(
    settings: &Settings,
    store: &Arc<MongoStore>,
    queries: Arc<MongoReader>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Parts> {
    Ok(Parts {
        events: store.clone(),
        queries: queries.clone(),
        audit: store.clone(),
        acts: store.clone(),
        backlogs: queries.clone(),
        instances: queries,
        controls: store.clone(),
        replication: store.clone(),
        provisioning: provisioning(settings)?,
        clock: Arc::clone(clock),
        random: Arc::new(SystemRandom),
    })
}

/// The report of this instance about itself.
fn instance(
    settings: &Settings,
    index: Option<String>,
    id: String,
    started_at: Timestamp,
) -> Instance {
    Instance {
        index,
        version: Some(PROGRAM.version.to_owned()),
        started_at: Some(started_at),
        slack: Some(settings.slack.past),
        ..Instance::new(id, InstanceProgram::Receiver)
    }
}

fn options(settings: &Settings, unknown_for: Duration) -> Options {
    Options {
        limits: settings.limits.clone(),
        snapshots: SnapshotLimits::default(),
        events: settings.events.clone(),
        slack: settings.slack,
        policy: settings.policy.clone(),
        month_slack: settings.month.month_slack,
        distress: settings.distress.clone(),
        unknown_for,
        knows_granularity: settings.knows_granularity,
        mappings_full_scope: settings.provisioning.full_scope,
    }
}

/// The checks of `/healthcheck`, and the progress that the watch of the database reports.
fn health(
    settings: &Settings,
    receiver: &Arc<Receiver>,
    authenticator: &Authenticator,
    shutdown: &Shutdown,
) -> anyhow::Result<(Health, Progress)> {
    let mut health = Health::new(shutdown.clone());
    if let Some(check) = settings.security.health_check()? {
        health.require_credentials(check);
    }
    let reachable = health.progress("database", settings.health.threshold);
    health.check("indexes", {
        let receiver = Arc::clone(receiver);
        move || std::future::ready(receiver.is_prepared())
    });
    health.check("token keys", {
        let authenticator = authenticator.clone();
        move || std::future::ready(authenticator.is_ready())
    });
    Ok((health, reachable))
}

/// The metrics of all parts.
fn registry(
    receiver: &Arc<Receiver>,
    store: &MongoStore,
    of_http: &HttpMetrics,
    counts: &LogCounts,
) -> Registry {
    let mut registry = Registry::new(PROGRAM.name, PROGRAM.version);
    of_http.register(&mut registry);
    counts.register(&mut registry);
    store.register_metrics(&mut registry);
    receiver.register_metrics(&mut registry);
    let clock = &receiver.parts.clock;
    let steering = &receiver.steering;
    steering.register_metrics(&mut registry, clock, receiver.month());
    registry
}

/// Prepares the database, then the receiver. After that, announces the receiver's slack, watches the
/// database and reads the control until the shutdown.
async fn prepare_and_watch(
    receiver: &Receiver,
    store: &MongoStore,
    reachable: &Progress,
    threshold: Duration,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let migrating = store.migrate_when_possible(shutdown.soft().cancelled());
    let migrated = migrating.await.map_err(|error| {
        shutdown.begin();
        unprepared(error)
    });
    if migrated? && receiver.prepare(shutdown.soft().cancelled()).await {
        let steering = receiver.stay_steered(shutdown.soft());
        let announcing = shutdown
            .soft()
            .run_until_cancelled(receiver.stay_announced());
        let watching = watch(store, reachable, threshold, shutdown);
        tokio::join!(announcing, watching, steering);
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

/// Renews the keys that sign tokens. If they can never be had, the receiver ends.
async fn keep_keys_fresh(
    authenticator: &Authenticator,
    shutdown: &Shutdown,
) -> Result<(), UnusableSettings> {
    let refreshing = authenticator.keep_fresh();
    let refreshed = shutdown.soft().run_until_cancelled(refreshing).await;
    let refreshed = refreshed.unwrap_or(Ok(()));
    if refreshed.is_err() {
        shutdown.begin();
    }
    refreshed
}

/// Pings the database every few seconds. A request that meets a short outage is answered 503. Only
/// an outage as long as the threshold makes the instance unhealthy, so that an election does not
/// take all instances away at once.
async fn watch(store: &MongoStore, reachable: &Progress, threshold: Duration, shutdown: &Shutdown) {
    while !shutdown.is_stopping() {
        match store.ping().await {
            Ok(()) => {
                reachable.beat();
                observe_original(store).await;
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(
                    code = "database.unavailable",
                    error = format!("{error:#}"),
                    "the database is unavailable"
                );
            }
        }
        let pause = tokio::time::sleep((threshold / 10).min(Duration::from_secs(5)));
        shutdown.soft().run_until_cancelled(pause).await;
    }
}

/// Finds out whether an original writes beside this receiver. A failure is only logged: the next
/// ping comes with another attempt.
async fn observe_original(store: &MongoStore) {
    if let Err(error) = store.observe_original().await {
        let error = anyhow::Error::from(error);
        tracing::warn!(
            code = "original.not_observed",
            error = format!("{error:#}"),
            "looking for an original failed"
        );
    }
}

fn provisioning(settings: &Settings) -> anyhow::Result<Option<Provisioning>> {
    let Some(url) = &settings.provisioning.url else {
        return Ok(None);
    };
    let options = AbacusOptions {
        url: url.clone(),
        timeout: settings.provisioning.timeout,
        skip_ssl_validation: settings.security.skip_ssl_validation,
        authorities: settings.security.authorities(),
        tokens: settings.security.tokens(PROVISIONING_SCOPE)?,
    };
    Ok(Some(Provisioning::new(&options)?))
}
