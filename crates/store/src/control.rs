//! The control of operators, and the state of the controller.

use async_trait::async_trait;
use sampler_domain::{Control, ControllerMemory, ControllerTerms, Percent};

use crate::{Published, StoreError};

/// The settings of operators, with their version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptControl {
    /// The settings.
    pub control: Control,
    /// How often it was changed. A change names the version that its author has seen.
    pub version: i64,
}

/// The state of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerState {
    /// How many of the new starts are admitted.
    pub rate: Percent,
    /// Why.
    pub terms: ControllerTerms,
    /// The state for the next step.
    pub memory: ControllerMemory,
    /// How many steps there were. Of two workers that make the same step, one is refused.
    pub version: i64,
}

/// Keeps how operators and the controller steer.
#[async_trait]
pub trait Controls: Send + Sync + 'static {
    /// The settings of operators; the default, at version 0, if there are none.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where somebody else has written it so that it cannot be read.
    async fn control(&self) -> Result<KeptControl, StoreError>;

    /// Replaces what is set, if its version is this one. Returns whether it did.
    async fn set_control(&self, control: &Control, version: i64) -> Result<bool, StoreError>;

    /// The last state of the controller; `None` if it never ran, or the document cannot be read.
    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError>;

    /// Replaces what the controller has decided, if its version is one less. Returns whether it did.
    async fn set_controller(&self, state: &ControllerState) -> Result<bool, StoreError>;
}
