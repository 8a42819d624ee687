//! The control of operators, and the state of the controller.

use sampler_domain::{Control, ControllerMemory, ControllerTerms, Percent};
use serde::{Deserialize, Serialize};

/// The settings of operators, with their version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptControl {
    #[serde(flatten)]
    pub control: Control,
    /// How often it was changed. A change names the version that its author has seen.
    pub version: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerState {
    /// How many of the new starts are admitted.
    pub rate: Percent,
    pub terms: ControllerTerms,
    pub memory: ControllerMemory,
    /// How many steps there were. Of two workers that make the same step, one is refused.
    pub version: i64,
}
