//! How both programs start: they read the settings, log, connect to the database, and serve health,
//! metrics and their own routes until they are asked to stop.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use futures_util::future::try_join_all;
use sampler_settings::{CommonSettings, Program, Settings, Variables, load};
use sampler_store::{Limiter, StoreError};
use sampler_store_mongo::MongoStore;
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::environment::{Clock, SystemClock};
use crate::health::Health;
use crate::http::{bind, serve};
use crate::lifecycle::{Shutdown, run_until_stopped};
use crate::metrics::{self, Metrics};
use crate::platform::Identity;
use crate::security::{Access, Monitors};
use crate::telemetry::{self, TraceOptions};

/// The pause before a step of the preparation is repeated, and how often the log says that it waits.
const PREPARATION_PAUSE: Duration = Duration::from_secs(1);
const PREPARATION_REPORTS: Duration = Duration::from_mins(1);

/// A program that has started: the input of `body` of [`run`].
pub struct Startup {
    pub shutdown: Shutdown,
    pub clock: Arc<dyn Clock>,
    pub store: Arc<MongoStore>,
    pub health: Health,
    pub metrics: Metrics,
    settings: CommonSettings,
    is_on_platform: bool,
}

/// Runs a program: reads its settings, sets up the log, then runs `body` until it is asked to stop.
pub fn run<S, B, F>(program: &'static Program, body: B) -> ExitCode
where
    S: Settings,
    B: FnOnce(S, Startup) -> F + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let variables = Variables::of_this_process();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let settings = match load::<S>(program, &arguments, &variables) {
        Ok(settings) => settings,
        Err(exit) => return exit.report(),
    };
    let common = settings.common();
    let identity = Identity::of(&variables);
    let (name, version) = (program.name, program.version);
    let traces = common.traces.endpoint.clone().map(|endpoint| TraceOptions {
        endpoint,
        service: name,
        version,
    });
    let begun = Metrics::install(name, version)
        .and_then(|metrics| Ok((metrics, telemetry::init(&common.log, traces.as_ref())?)));
    let (metrics, traces) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    identity.announce(name, version);
    common.database.announce();
    common
        .security
        .announce(settings.token_destination().as_ref(), &variables);
    let end = run_until_stopped(|shutdown| async move {
        let startup = Startup::new(program, common, &identity, shutdown, metrics);
        body(settings, startup.await?).await
    });
    drop(traces);
    end.into()
}

impl Startup {
    async fn new(
        program: &'static Program,
        settings: CommonSettings,
        identity: &Identity,
        shutdown: Shutdown,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = MongoStore::connect(settings.database.options(program.name)).await?;
        let health = Health::new(shutdown.clone());
        Ok(Self {
            shutdown,
            clock,
            store: Arc::new(store),
            health,
            metrics,
            settings,
            is_on_platform: identity.is_on_platform(),
        })
    }

    /// Listens, to serve `routes`, the health checks and the metrics.
    pub async fn listen(self, access: Access, routes: Router) -> anyhow::Result<Listening> {
        let metrics = Arc::new(self.metrics);
        let http = &self.settings.http;
        let interface = http.interface(!self.settings.security.secured, self.is_on_platform);
        let routes = routes
            .merge(self.health.routes(access.health))
            .merge(metrics::routes(&metrics, access.metrics));
        let mut ports = vec![(bind(interface, http.port).await?, routes)];
        if let Some(port) = http.metrics_port {
            let apart = metrics::routes(&metrics, Monitors::Anybody);
            ports.push((bind(interface, port).await?, apart));
        }
        Ok(Listening {
            ports,
            metrics,
            shutdown: self.shutdown,
        })
    }
}

/// The ports of a program, and what is served on each.
pub struct Listening {
    ports: Vec<(TcpListener, Router)>,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
}

impl Listening {
    /// Serves until the shutdown.
    pub async fn serve(self) -> anyhow::Result<()> {
        let ports = self.ports.into_iter();
        let serving = ports.map(|(listener, routes)| serve(listener, routes, &self.shutdown));
        tokio::select! {
            served = try_join_all(serving) => served.map(drop).context("serving HTTP"),
            () = self.metrics.keep_up() => Ok(()),
        }
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

/// Repeats a step of the preparation until it is done. Returns false if the program was asked to stop before.
pub async fn until_done<F>(shutdown: &Shutdown, mut step: impl FnMut() -> F) -> bool
where
    F: Future<Output = Result<bool, StoreError>>,
{
    let reports = Limiter::new(1, PREPARATION_REPORTS);
    while !shutdown.is_stopping() {
        match step().await {
            Ok(true) => return true,
            Ok(false) => {
                if reports.admit(()).is_some() {
                    info!(
                        "waiting until a worker has taken over the collection of the original Sampler"
                    );
                }
            }
            Err(error) => warn!(
                code = "database.not_prepared",
                error = telemetry::error_chain(&error),
                "the database cannot be prepared yet"
            ),
        }
        let pause = tokio::time::sleep(PREPARATION_PAUSE);
        shutdown.soft().run_until_cancelled(pause).await;
    }
    false
}
