//! Abacus as the two programs see it: the collector, which takes usages from the worker, and the
//! provisioning service, which takes mappings from the receiver. What an answer means is decided
//! by pure tables ([`answer`], [`provisioning::verdict`]).

pub mod answer;
pub mod collector;
mod http;
pub mod limiter;
pub mod provisioning;

pub use answer::Answer;
pub use collector::{Collector, HttpCollector};
pub use http::{AbacusOptions, ClientError};
pub use limiter::{Limiter, Load};
pub use provisioning::{Mapped, Mapping, Provisioning};
