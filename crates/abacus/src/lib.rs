//! Abacus for the two programs: the collector, which takes usages from the worker, and the
//! provisioning service, which takes mappings from the receiver. Functions without I/O decide what an
//! answer means ([`answer`], [`provisioning::part_outcome`]) and what time it is there ([`clock`]).

pub mod answer;
pub mod clock;
pub mod collector;
pub mod confirm;
pub mod error_name;
mod http;
pub mod limiter;
pub mod provisioning;

pub use answer::Answer;
pub use clock::{ClockEstimate, Noted, Pace, Reading};
pub use collector::{AnswerDate, Collector, Details, HttpCollector, Posted};
pub use confirm::{Asked, Confirmer, HttpConfirmer};
pub use error_name::ErrorName;
pub use http::{AbacusOptions, ClientError};
pub use limiter::{Limiter, Load};
pub use provisioning::{Mapped, Mapping, Provisioning};
