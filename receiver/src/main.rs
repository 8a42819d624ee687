//! The program `sampler-receiver`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sampler_receiver::{Options, PROGRAM, Parts, Receiver, console, reading};
use sampler_service::environment::SystemRandom;
use sampler_service::health::{Health, Progress};
use sampler_service::lifecycle::Shutdown;
use sampler_service::program::{self, Startup};
use sampler_service::security::Authenticator;
use sampler_service::telemetry::error_chain;
use sampler_settings::Settings;
use sampler_steering::{DatabaseClock, FOLLOW_INTERVAL};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_upstream::{ClientOptions, Provisioning};

/// The scope that the provisioning service requires in a token for mappings.
const PROVISIONING_SCOPE: &str = "abacus.usage.write";

/// How long one of the three calls for a mapping may take.
const PROVISIONING_TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    sampler_settings::start(&PROGRAM, run)
}

/// Sets everything up, then serves HTTP and watches the database until the shutdown.
async fn run(settings: Settings, mut startup: Startup) -> anyhow::Result<()> {
    let database = settings.database.options(PROGRAM.name);
    let options = Options {
        settings: settings.clone(),
        unknown_for: database.unknown_for(),
    };
    let (store, clock) = (Arc::clone(&startup.store), Arc::clone(&startup.clock));
    let shutdown = startup.shutdown.clone();
    let database_clock = DatabaseClock::new(Arc::clone(&clock));
    let parts = Parts {
        events: store.clone(),
        reading: reading_store(&store, database).await?,
        operating: store.clone(),
        provisioning: provisioning(&settings)?,
        clock: database_clock.clone(),
        random: Arc::new(SystemRandom),
    };
    let receiver = Receiver::new(parts, options);
    let authenticator = settings.security.authenticator()?;
    let threshold = settings.health.threshold;
    let reachable = check_health(&mut startup.health, threshold, &receiver, &authenticator);
    let measured = Arc::clone(&receiver);
    startup.metrics.read(move || measured.measure());
    let api = Arc::clone(&receiver).routes(authenticator.clone());
    let random = Arc::new(SystemRandom);
    let steering = &receiver.steering;
    let users = authenticator.clone();
    let tokens = Some(&authenticator);
    let access = settings.security.access(tokens)?;
    let console = console::routes(&settings, api.clone(), users, steering, clock, random)?;
    // Health is served from the beginning: indexing a large collection takes its time.
    let serving = startup.listen(access, api.merge(console)).await?;
    let watched = Watched {
        store,
        clock: database_clock,
        reachable,
        threshold,
    };
    let watching = prepare_and_watch(&receiver, &watched, &shutdown);
    let running = async { tokio::join!(serving, watching) };
    let (served, watched) = Box::pin(running).await;
    served.and(watched)
}

/// The store over connections of its own for reading, so that reading delays no event.
async fn reading_store(
    store: &MongoStore,
    options: MongoOptions,
) -> anyhow::Result<Arc<MongoStore>> {
    let of_readers = MongoOptions {
        // One more, for an index that is made for readers.
        pool_size: reading::AT_ONCE + 1,
        operation_timeout: options.operation_timeout.min(reading::TIME_LIMIT),
        ..options
    };
    Ok(Arc::new(store.reader(of_readers).await?))
}

/// Adds the checks of `/healthcheck`. Returns the progress that the watch of the database reports.
fn check_health(
    health: &mut Health,
    threshold: Duration,
    receiver: &Arc<Receiver>,
    authenticator: &Authenticator,
) -> Progress {
    let reachable = health.progress("database", threshold);
    health.check("indexes", {
        let receiver = Arc::clone(receiver);
        move || std::future::ready(receiver.is_prepared())
    });
    health.check("token keys", {
        let authenticator = authenticator.clone();
        move || std::future::ready(authenticator.is_ready())
    });
    reachable
}

/// The database, its time, and the progress that tells whether it is there.
struct Watched {
    store: Arc<MongoStore>,
    clock: Arc<DatabaseClock>,
    reachable: Progress,
    threshold: Duration,
}

/// Prepares the database, then the receiver. After that, watches the database and reads the control until
/// the shutdown.
async fn prepare_and_watch(
    receiver: &Receiver,
    watched: &Watched,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let Watched { store, clock, .. } = watched;
    let migrated = program::migrate(store, shutdown)
        .await
        .inspect_err(|_| shutdown.begin());
    if migrated?
        && program::until_done(shutdown, || store.has_format()).await
        && program::until_done(shutdown, async || clock.read(&**store).await.map(|()| true)).await
        && receiver.prepare(shutdown.soft().cancelled()).await
    {
        let steering = receiver.steering.follow(FOLLOW_INTERVAL, shutdown.soft());
        let watching = watch(watched, shutdown);
        tokio::join!(watching, steering);
    }
    Ok(())
}

/// Asks the database for its time every few seconds. A request that meets a short outage is answered 503. Only
/// an outage as long as the threshold makes the instance unhealthy, so that an election does not
/// take all instances away at once.
async fn watch(watched: &Watched, shutdown: &Shutdown) {
    while !shutdown.is_stopping() {
        match watched.clock.read(&*watched.store).await {
            Ok(()) => watched.reachable.beat(),
            Err(error) => {
                tracing::warn!(
                    code = "database.unavailable",
                    error = error_chain(&error),
                    "the database is unavailable"
                );
            }
        }
        let pause = tokio::time::sleep((watched.threshold / 10).min(Duration::from_secs(5)));
        shutdown.soft().run_until_cancelled(pause).await;
    }
}

fn provisioning(settings: &Settings) -> anyhow::Result<Option<Provisioning>> {
    let Some(url) = &settings.provisioning.url else {
        return Ok(None);
    };
    let options = ClientOptions {
        url: url.clone(),
        http: settings.security.http_options(PROVISIONING_TIMEOUT),
        tokens: settings.security.tokens(PROVISIONING_SCOPE)?,
    };
    Ok(Some(Provisioning::new(&options)?))
}
