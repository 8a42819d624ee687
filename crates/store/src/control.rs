//! How operators and the controller steer.

use async_trait::async_trait;
use sampler_domain::{Control, ControllerMemory, ControllerTerms, Percent};

use crate::{Published, StoreError};

/// What operators have set, as it is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptControl {
    /// What is set.
    pub control: Control,
    /// How often it was changed. A change names the version that its author has seen.
    pub version: i64,
}

/// What the controller has decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerState {
    /// How many of the new starts are admitted.
    pub rate: Percent,
    /// Why.
    pub terms: ControllerTerms,
    /// What the next step needs to know.
    pub memory: ControllerMemory,
    /// How many steps there were. Of two workers that make the same step, one is refused.
    pub version: i64,
}

/// Keeps how operators and the controller steer.
#[async_trait]
pub trait Controls: Send + Sync + 'static {
    /// What operators have set; the default, at version 0, where nobody has.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where somebody else has written it so that it cannot be read.
    async fn control(&self) -> Result<KeptControl, StoreError>;

    /// Replaces what is set, if its version is this one; says whether it did.
    async fn set_control(&self, control: &Control, version: i64) -> Result<bool, StoreError>;

    /// What the controller decided last; `None` if it never did, or the document cannot be read.
    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError>;

    /// Replaces what the controller has decided, if its version is one less; says whether it did.
    async fn set_controller(&self, state: &ControllerState) -> Result<bool, StoreError>;
}
