//! Abacus as the two programs see it: the collector, which takes usages from the worker, and the
//! provisioning service, which takes mappings from the receiver. What an answer means is decided
//! by pure tables ([`answer`], [`provisioning::verdict`]), and what time it is there by a pure estimate
//! ([`clock`]).

pub mod answer;
pub mod clock;
pub mod collector;
pub mod error_name;
mod http;
pub mod limiter;
pub mod provisioning;

pub use answer::Answer;
pub use clock::{ClockEstimate, Noted, Pace, Reading};
pub use collector::{Collector, Dated, HttpCollector, Posted};
pub use error_name::ErrorName;
pub use http::{AbacusOptions, ClientError};
pub use limiter::{Limiter, Load};
pub use provisioning::{Mapped, Mapping, Provisioning};
