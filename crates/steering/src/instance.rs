//! Reports to the other instances that this one runs, and its state.

use std::sync::Arc;
use std::time::Duration;

use sampler_metrics::Limiter;
use sampler_service::health::Health;
use sampler_service::lifecycle::Shutdown;
use sampler_service::program::Startup;
use sampler_store::{Instance, InstanceProgram, Operating};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{LOG_INTERVAL, error_chain};

const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// How long the end of a program waits for the removal of its report.
const WITHDRAWAL_LIMIT: Duration = Duration::from_secs(2);

/// Adds to a report what only the program knows.
pub type Describe = Box<dyn Fn(&mut Instance) + Send + Sync>;

/// Reports again and again how this instance is.
pub struct InstanceReports {
    pub store: Arc<dyn Operating>,
    pub health: Health,
    pub shutdown: Shutdown,
    /// The constant part of the report.
    pub instance: Instance,
    /// Adds the other parts.
    pub describe: Describe,
}

impl InstanceReports {
    /// The reports of an instance of this name. `describe` adds what only the program knows.
    pub fn of(
        startup: &Startup,
        name: String,
        program: InstanceProgram,
        describe: Describe,
    ) -> Self {
        let instance = Instance {
            index: startup.index.clone(),
            version: Some(startup.program.version.to_owned()),
            started_at: Some(startup.started_at),
            ..Instance::new(name, program)
        };
        Self {
            store: startup.store.clone(),
            health: startup.health.clone(),
            shutdown: startup.shutdown.clone(),
            instance,
            describe,
        }
    }

    /// Reports while `work` runs. Then removes the report, so that an instance that has ended does not
    /// look like one that hangs.
    pub async fn during<T>(self, work: impl Future<Output = T>) -> T {
        let ended = CancellationToken::new();
        let working = async {
            let end = work.await;
            ended.cancel();
            end
        };
        let reporting = async {
            let too_late = async {
                ended.cancelled().await;
                tokio::time::sleep(WITHDRAWAL_LIMIT).await;
            };
            tokio::select! {
                () = self.report_until(&ended) => {}
                () = too_late => {}
            }
        };
        let (end, ()) = tokio::join!(working, reporting);
        end
    }

    /// The removal follows the last report, so no report comes after it.
    async fn report_until(&self, ended: &CancellationToken) {
        let failures = Limiter::new(1, LOG_INTERVAL);
        while !ended.is_cancelled() {
            self.report(&failures).await;
            let stopping = self.shutdown.soft().cancelled();
            let pause = async {
                // That the program was asked to stop is reported at once.
                if self.shutdown.is_stopping() {
                    tokio::time::sleep(REPORT_INTERVAL).await;
                } else {
                    let _ = tokio::time::timeout(REPORT_INTERVAL, stopping).await;
                }
            };
            ended.run_until_cancelled(pause).await;
        }
        if let Err(error) = self.store.withdraw_instance(&self.instance.name).await {
            warn!(
                code = "instance.not_withdrawn",
                error = error_chain(&error),
                "this instance could not say that it has ended; it is shown as not seen for an hour"
            );
        }
    }

    async fn report(&self, failures: &Limiter<()>) {
        let mut instance = self.instance.clone();
        instance.is_stopping = self.shutdown.is_stopping();
        instance.failing = owned(self.health.failing().await);
        instance.warnings = owned(self.health.standing());
        (self.describe)(&mut instance);
        if let Err(error) = self.store.report_instance(&instance).await
            && failures.admit(()).is_some()
        {
            warn!(
                code = "instance.not_reported",
                error = error_chain(&error),
                "this instance could not report how it is"
            );
        }
    }
}

fn owned(names: Vec<&'static str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}
