//! How both programs start: they read the settings, log, connect to the database, and serve health,
//! metrics and their own routes until they are asked to stop.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use sampler_domain::Timestamp;
use sampler_metrics::{Metric, Registry};
use sampler_service::environment::{Clock, SystemClock};
use sampler_service::health::Health;
use sampler_service::http::{self, HttpMetrics, Port, bind, serve};
use sampler_service::lifecycle::{Shutdown, run_until_stopped};
use sampler_service::metrics;
use sampler_service::platform::Identity;
use sampler_service::process;
use sampler_service::security::Access;
use sampler_service::settings::{Program, Reader, Variables, load};
use sampler_service::telemetry;
use sampler_settings::CommonSettings;
use sampler_steering::{Describe, InstanceReports};
use sampler_store::{Instance, InstanceProgram};
use sampler_store_mongo::MongoStore;
use url::Url;

pub trait ProgramSettings: Sized + Send + 'static {
    /// Reads and checks them. `None` if that is not possible; the reader knows why.
    fn read(reader: &mut Reader) -> Option<Self>;

    /// Those that both programs have.
    fn common(&self) -> CommonSettings;

    /// The addresses to which tokens are sent, with the names of their settings.
    fn token_destinations(&self) -> Vec<(&'static str, &Url)>;
}

/// A program that has started: the input of `body` of [`run`].
pub struct Startup {
    pub program: &'static Program,
    pub shutdown: Shutdown,
    pub clock: Arc<dyn Clock>,
    pub store: Arc<MongoStore>,
    pub health: Health,
    /// The metrics of HTTP, of the log and of the store are registered.
    pub registry: Registry,
    http: HttpMetrics,
    settings: CommonSettings,
    started_at: Timestamp,
    index: Option<String>,
    is_on_platform: bool,
}

/// Runs a program: reads its settings, sets up the log, then runs `body` until it is asked to stop.
pub fn run<S, B, F>(program: &'static Program, body: B) -> ExitCode
where
    S: ProgramSettings,
    B: FnOnce(S, Startup) -> F + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let variables = Variables::of_this_process();
    let settings = match load(program, std::env::args_os(), &variables, S::read) {
        Ok(settings) => settings,
        Err(exit) => return exit.report(),
    };
    let common = settings.common();
    let identity = Identity::of_this_process();
    let (name, version) = (program.name, program.version);
    let traces = common.traces.options(name, version, &common.security);
    let telemetry = match telemetry::init(&common.log, &identity, traces.as_ref()) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    identity.announce(name, version);
    common.database.announce();
    common
        .security
        .announce(&settings.token_destinations(), &variables);
    let counts = telemetry.counts();
    let end = run_until_stopped(|shutdown| async move {
        let mut startup = Startup::new(program, common, &identity, shutdown).await?;
        counts.register(&mut startup.registry);
        body(settings, startup).await
    });
    drop(telemetry);
    end.into()
}

/// The metrics that both programs have.
pub fn metrics() -> Vec<&'static Metric> {
    let all = [
        http::METRICS,
        sampler_store::group::METRICS,
        sampler_steering::METRICS,
        telemetry::METRICS,
        sampler_metrics::METRICS,
        process::METRICS,
    ];
    all.concat()
}

impl Startup {
    async fn new(
        program: &'static Program,
        settings: CommonSettings,
        identity: &Identity,
        shutdown: Shutdown,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let started_at = clock.now();
        let store = MongoStore::connect(settings.database.options(program.name)).await?;
        let health = Health::new(shutdown.clone());
        let (http, mut registry) = (
            HttpMetrics::default(),
            Registry::new(program.name, program.version),
        );
        http.register(&mut registry);
        process::register(&mut registry);
        store.register_metrics(&mut registry);
        Ok(Self {
            program,
            shutdown,
            clock,
            store: Arc::new(store),
            health,
            registry,
            http,
            settings,
            started_at,
            index: identity.index().map(str::to_owned),
            is_on_platform: identity.is_on_platform(),
        })
    }

    /// The reports of this instance to all others. `describe` adds what only the program knows.
    pub fn reports(
        &self,
        name: String,
        program: InstanceProgram,
        describe: Describe,
    ) -> InstanceReports {
        let instance = Instance {
            index: self.index.clone(),
            version: Some(self.program.version.to_owned()),
            started_at: Some(self.started_at),
            ..Instance::new(name, program)
        };
        InstanceReports {
            store: self.store.clone(),
            health: self.health.clone(),
            shutdown: self.shutdown.clone(),
            instance,
            describe,
        }
    }

    /// Listens, to serve `routes`, the health checks and the metrics.
    pub async fn listen(self, access: Access, routes: Router) -> anyhow::Result<Listening> {
        let registry = Arc::new(self.registry);
        let http = &self.settings.http;
        let is_open = !self.settings.security.secured;
        let interface = http.interface(is_open, self.is_on_platform);
        let apart = match http.metrics_port {
            Some(port) => Some(Port {
                is_open,
                ..bind(interface, port).await?.into()
            }),
            None => None,
        };
        let port = Port {
            listener: bind(interface, http.port).await?,
            metrics: self.http,
            is_open,
        };
        let routes = routes
            .merge(self.health.routes(access.health))
            .merge(metrics::routes(&registry, access.metrics));
        Ok(Listening {
            port,
            apart,
            routes,
            registry,
            shutdown: self.shutdown,
        })
    }
}

pub struct Listening {
    port: Port,
    apart: Option<Port>,
    routes: Router,
    registry: Arc<Registry>,
    shutdown: Shutdown,
}

impl Listening {
    /// Serves until the shutdown.
    pub async fn serve(self) -> anyhow::Result<()> {
        let (served, apart) = tokio::join!(
            serve(self.port, self.routes, &self.shutdown),
            metrics::serve_apart(self.apart, &self.registry, &self.shutdown),
        );
        served.and(apart).context("serving HTTP")
    }
}

/// Prepares the database, as soon as that is possible. Returns false if the program was asked to stop
/// before.
///
/// # Errors
/// Why it cannot be prepared.
pub async fn migrate(store: &MongoStore, shutdown: &Shutdown) -> anyhow::Result<bool> {
    let migrated = store.migrate_when_possible(shutdown.soft().cancelled());
    migrated.await.context("preparing the database")
}
