//! The program `sampler-worker`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use sampler_domain::Policy;
use sampler_service::environment::{Clock, Random, SystemRandom};
use sampler_service::health::Health;
use sampler_service::lifecycle::Shutdown;
use sampler_service::problem;
use sampler_service::program::{self, Startup};
use sampler_settings::{Settings, UpstreamKind};
use sampler_store_mongo::MongoStore;
use sampler_upstream::{
    Abacus, ClientOptions, CloudEvents, EventAttributes, HttpCollector, HttpConfirmer, Upstream,
};
use sampler_worker::settings::PROGRAM;
use sampler_worker::{Options, Parts, Periods, Worker};
use url::Url;

/// The scope that the collector requires in a token for usages of any resource.
const COLLECTOR_SCOPE: &str = "abacus.usage.sampler.write";

/// To read collected usages takes `abacus.usage.read`, or `abacus.usage.<resource_id>.read` for each
/// resource. So a token with all scopes of the client is requested. It is not the token of posts: a
/// client without these scopes posts as before.
const CONFIRMATION_SCOPE: &str = "";

/// What a receiver of CloudEvents requires is not known, so a token with all scopes of the client is
/// requested.
const CLOUD_EVENTS_SCOPE: &str = "";

fn main() -> ExitCode {
    sampler_settings::start(&PROGRAM, run)
}

/// Sets everything up, then serves HTTP and works until the shutdown.
async fn run(settings: Settings, mut startup: Startup) -> anyhow::Result<()> {
    let (store, clock) = (Arc::clone(&startup.store), Arc::clone(&startup.clock));
    let shutdown = startup.shutdown.clone();
    let access = settings.security.access(None)?;
    let upstream = connect(&settings)?;
    let worker = worker(&settings, upstream, &mut startup);
    warn_of_clocks(&worker, &mut startup.health);
    let measured = Arc::clone(&worker);
    startup.metrics.read(move || measured.measure());
    check_database(&store, &mut startup.health);
    // Health is served from the beginning: indexing a large collection takes its time.
    let help = problem::routes();
    let serving = startup.listen(access, help).await?;
    let working = async {
        let policy = settings.sampling.policy();
        let ended = Box::pin(work(&worker, &policy, &*clock, &store, &shutdown)).await;
        shutdown.begin();
        ended
    };
    let running = async { tokio::join!(serving, working) };
    let (served, ended) = Box::pin(running).await;
    served.and(ended)
}

fn check_database(store: &Arc<MongoStore>, health: &mut Health) {
    let store = Arc::clone(store);
    health.check("database", move || {
        let store = Arc::clone(&store);
        async move { store.ping().await.is_ok() }
    });
}

/// Prepares the database, takes over what the original Sampler has left there, then samples.
async fn work(
    worker: &Arc<Worker>,
    policy: &Policy,
    clock: &dyn Clock,
    store: &MongoStore,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    if !program::migrate(store, shutdown).await? {
        return Ok(());
    }
    let take_over = || store.take_over(policy, clock.now());
    if program::until_done(shutdown, take_over).await {
        worker.run().await;
    }
    Ok(())
}

fn worker(settings: &Settings, upstream: Arc<dyn Upstream>, startup: &mut Startup) -> Arc<Worker> {
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let options = Options {
        name: random.uuid_v4().to_string(),
        settings: settings.clone(),
        periods: Periods::default(),
    };
    let (store, health) = (&startup.store, &mut startup.health);
    let parts = Parts {
        work: store.clone(),
        ledger: store.clone(),
        operating: store.clone(),
        upstream,
        processing_progress: Arc::new(health.progress("processing", settings.processing.threshold)),
        cleanup_progress: Arc::new(health.progress("cleanup", settings.cleanup.threshold)),
        clock: Arc::clone(&startup.clock),
        random,
    };
    Worker::new(parts, options, startup.shutdown.soft().clone())
}

/// What takes the usages.
fn connect(settings: &Settings) -> anyhow::Result<Arc<dyn Upstream>> {
    let (_, url) = settings.destination();
    let url = url.context("the address of the upstream was checked")?;
    let upstream = &settings.upstream;
    Ok(match upstream.kind {
        UpstreamKind::Abacus => {
            let posts = client_options(settings, url, COLLECTOR_SCOPE)?;
            let finds = client_options(settings, url, CONFIRMATION_SCOPE)?;
            Arc::new(Abacus {
                collector: HttpCollector::new(&posts)?,
                documents: HttpConfirmer::new(&finds)?,
            })
        }
        UpstreamKind::CloudEvents => {
            let mut options = client_options(settings, url, CLOUD_EVENTS_SCOPE)?;
            let token = upstream.token.as_ref();
            if token.is_some() {
                options.tokens = None;
            }
            let attributes = EventAttributes::new(&upstream.source, &upstream.event_type);
            let events = CloudEvents::new(&options, attributes, settings.contract())?
                .found_at(upstream.find_url.clone(), upstream.settles)
                .with_token(token);
            Arc::new(events)
        }
    })
}

/// An address and the terms of a call, with tokens of this scope.
fn client_options(
    settings: &Settings,
    url: &Url,
    scope: &'static str,
) -> anyhow::Result<ClientOptions> {
    Ok(ClientOptions {
        url: url.clone(),
        http: settings.security.http_options(settings.delivery.timeout),
        tokens: settings.security.tokens(scope)?,
    })
}

/// Warns where the clocks of the database and of the upstream differ. Nothing stops by it, but the upstream may
/// set aside what is after its today.
fn warn_of_clocks(worker: &Arc<Worker>, health: &mut Health) {
    let worker = Arc::clone(worker);
    health.warning("clock", move || worker.clocks_differ());
}
