//! Pauses of sampling, and the controller of starts.

use sampler_domain::{ControllerMemory, ControllerSettings, Load};
use sampler_store::{Backlog, ControllerState, Published, StoreError};
use tracing::{error, info, warn};

use crate::{Worker, error_chain};

/// The shortest time between two steps, ms. A worker checks every few seconds
/// ([`Periods::controller`](crate::Periods)), so a step follows after about a minute.
const STEP: i64 = 57_000;

/// The greatest age of a backlog from which a step is made, ms.
const BACKLOG_AGE_MAX: i64 = 120_000;

/// After this time without a step the memory of the last one is dropped, ms.
const MEMORY_AGE_MAX: i64 = 300_000;

impl Worker {
    /// Whether nothing new may be planned or posted: operators have paused sampling, the database
    /// cannot keep up, or the control document was not read yet.
    pub(crate) fn is_paused(&self) -> bool {
        !self.steering.is_known() || self.steering.is_sampling_paused() || self.distress.pauses()
    }

    /// Makes a step of the controller each minute. Only the owner of the first partition does it.
    /// If two workers believe that they own it, the version allows only one of their steps.
    pub(crate) async fn keep_controller(&self) {
        // The last version of the settings that was logged as wrong.
        let mut reported = None;
        while self.wait_until_ready().await {
            if self.ownership.owns_first()
                && let Err(error) = self.control(&mut reported).await
                && self.steering.may_report("controller.failed")
            {
                warn!(
                    code = "controller.failed",
                    error = error_chain(&error),
                    "a step of the controller failed"
                );
            }
            self.sleep(self.periods.controller).await;
        }
    }

    async fn control(&self, reported: &mut Option<i64>) -> Result<(), StoreError> {
        let version = self.steering.control_version();
        let settings = self.steering.control().controller;
        if !settings.enabled {
            return Ok(());
        }
        let wrong = settings.errors();
        if !wrong.is_empty() {
            if *reported != Some(version) {
                *reported = Some(version);
                let wrong: Vec<String> = wrong
                    .iter()
                    .map(|(name, detail)| format!("{name} {detail}"))
                    .collect();
                error!(
                    code = "controller.wrong_parameters",
                    wrong = wrong.join("; "),
                    "the controller of starts is off, because its parameters are wrong"
                );
            }
            return Ok(());
        }
        let backlog = self.steering.backlog();
        let Some(backlog) = backlog.filter(|backlog| backlog.age <= BACKLOG_AGE_MAX) else {
            return Ok(());
        };
        let last = self.parts.operating.controller().await?;
        if last
            .as_ref()
            .is_some_and(|last| (0..STEP).contains(&last.age))
        {
            return Ok(());
        }
        let next = step(&settings, last.as_ref(), &backlog.value);
        if self.parts.operating.set_controller(&next).await? {
            info!(
                rate = next.rate.get(),
                needed_seconds = next.terms.needed_seconds,
                "the controller has set the rate of starts"
            );
            self.steering.poll().await;
        }
        Ok(())
    }
}

/// The step after the last one.
fn step(
    settings: &ControllerSettings,
    last: Option<&Published<ControllerState>>,
    backlog: &Backlog,
) -> ControllerState {
    let recent = last.filter(|last| last.age <= MEMORY_AGE_MAX);
    let memory = recent.map_or_else(ControllerMemory::default, |last| last.value.memory);
    let seconds = last.map_or(0.0, |last| last.age as f64 / 1_000.0);
    let load = Load {
        due: backlog.due as f64,
        at_least: backlog.at_least,
        rate: backlog.rate,
    };
    let step = settings.step(memory, load, seconds);
    ControllerState {
        rate: step.rate,
        terms: step.terms,
        memory: step.memory,
        version: last.map_or(0, |last| last.value.version).saturating_add(1),
    }
}
