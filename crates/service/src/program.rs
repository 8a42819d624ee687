//! How both programs start: they log, connect to the database, and serve health, metrics and their own routes until
//! they are asked to stop.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use futures_util::future::{join, try_join_all};
use sampler_store::{Limiter, StoreError};
use sampler_store_mongo::{MongoOptions, MongoStore};
use serde_json::Value;
use tracing::{info, warn};
use url::Url;

use crate::environment::{Clock, SystemClock};
use crate::health::Health;
use crate::http::{Limits, bind, serve};
use crate::lifecycle::{Shutdown, run_until_stopped};
use crate::metrics::{self, Metrics};
use crate::security::{Access, Authenticator};
use crate::telemetry::{self, LogOptions, Traces};

/// The pause before a step of the preparation is repeated, and how often the log says that it waits.
const PREPARATION_PAUSE: Duration = Duration::from_secs(1);
const PREPARATION_REPORTS: Duration = Duration::from_mins(1);

/// What a program starts with.
pub struct Options {
    pub name: &'static str,
    pub version: &'static str,
    pub log: LogOptions,
    /// Where traces go, if anywhere.
    pub traces: Option<Url>,
    pub database: MongoOptions,
    pub ports: Ports,
}

/// Where a program listens.
pub struct Ports {
    pub port: u16,
    /// A second port, for metrics alone.
    pub metrics: Option<u16>,
    /// The interface, if one is named.
    pub host: Option<String>,
    /// Whether requests need no token.
    pub is_open: bool,
}

impl Ports {
    /// The interface to listen on. Without tokens nobody else should reach the program, unless a platform is in front
    /// of it.
    fn interface(&self, is_on_platform: bool) -> &str {
        let usual = if self.is_open && !is_on_platform {
            "127.0.0.1"
        } else {
            "0.0.0.0"
        };
        self.host.as_deref().unwrap_or(usual)
    }
}

/// A program that has started: the input of `body` of [`run`].
pub struct Startup {
    pub shutdown: Shutdown,
    pub clock: Arc<dyn Clock>,
    pub store: Arc<MongoStore>,
    pub health: Health,
    pub metrics: Metrics,
    ports: Ports,
    is_on_platform: bool,
}

/// Runs a program: sets up the log and what `options` say, then runs `body` until it is asked to stop.
pub fn run<B, F>(options: Options, body: B) -> ExitCode
where
    B: FnOnce(Startup) -> F + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let (name, version) = (options.name, options.version);
    let set_up = || -> anyhow::Result<_> {
        let metrics = Metrics::install(name, version)?;
        let traces = options.traces.as_ref();
        let traces = traces.map(|endpoint| Traces::new(endpoint, name, version));
        let traces = traces.transpose()?;
        telemetry::init(&options.log, traces.as_ref())?;
        Ok((metrics, traces))
    };
    let (metrics, traces) = match set_up() {
        Ok(begun) => begun,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let is_on_platform = announce(name, version, |name| std::env::var(name).ok());
    let end = run_until_stopped(|shutdown| async move {
        let store = MongoStore::connect(options.database).await?;
        body(Startup {
            clock: Arc::new(SystemClock),
            store: Arc::new(store),
            health: Health::new(shutdown.clone()),
            shutdown,
            metrics,
            ports: options.ports,
            is_on_platform,
        })
        .await
    });
    drop(traces);
    end.into()
}

/// Logs who this is, by the names of OpenTelemetry's conventions. Returns whether Cloud Foundry runs this program, and
/// leads requests to it. Nothing else depends on what the platform says, so what cannot be read is left out.
fn announce(program: &str, version: &str, variable: impl Fn(&str) -> Option<String>) -> bool {
    let app = variable("VCAP_APPLICATION").filter(|text| !text.is_empty());
    let described = app.as_deref().map(serde_json::from_str::<Value>);
    let described = described.and_then(Result::ok).unwrap_or_default();
    info!(
        service.name = program,
        service.version = version,
        cloudfoundry.app.name = described["application_name"].as_str(),
        cloudfoundry.app.id = described["application_id"].as_str(),
        cloudfoundry.app.instance.id = variable("CF_INSTANCE_INDEX"),
        "starting"
    );
    app.is_some()
}

impl Startup {
    /// Listens, to serve `routes`, the health checks and the metrics. What is returned serves them until the shutdown,
    /// and keeps the keys fresh that check tokens.
    pub async fn listen(
        self,
        access: Access,
        routes: Router,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
        let (metrics, shutdown) = (Arc::new(self.metrics), self.shutdown);
        let interface = self.ports.interface(self.is_on_platform);
        let routes = routes
            .merge(self.health.routes(access.health))
            .merge(metrics::routes(&metrics, access.metrics.clone()));
        let mut ports = vec![(bind(interface, self.ports.port).await?, routes)];
        if let Some(port) = self.ports.metrics {
            let apart = metrics::routes(&metrics, Authenticator::none());
            ports.push((bind(interface, port).await?, apart));
        }
        Ok(async move {
            let serve = |(listener, routes)| serve(listener, routes, &shutdown, Limits::default());
            let serving = try_join_all(ports.into_iter().map(serve));
            tokio::select! {
                ended = serving => ended.map(drop).context("serving HTTP"),
                _ = join(access.metrics.keep_fresh(), metrics.keep_up()) => Ok(()),
            }
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tokens_only_a_platform_makes_it_listen_to_others() {
        for (app, is_on_platform) in [
            (r#"{"application_id": 1}"#, true),
            ("no JSON", true),
            ("", false),
        ] {
            let app = |_: &str| Some(app.to_owned());
            assert_eq!(announce("sampler-worker", "1", app), is_on_platform);
        }
        for (is_open, is_on_platform, interface) in [
            (true, false, "127.0.0.1"),
            (true, true, "0.0.0.0"),
            (false, false, "0.0.0.0"),
        ] {
            let mut ports = Ports {
                port: 0,
                metrics: None,
                host: None,
                is_open,
            };
            assert_eq!(ports.interface(is_on_platform), interface);
            ports.host = Some("::1".to_owned());
            assert_eq!(ports.interface(is_on_platform), "::1");
        }
    }
}
