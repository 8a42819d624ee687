//! The rules of Sampler as pure functions: continuous usages, their division into intervals, and
//! the usages that follow.
//!
//! Nothing in here does I/O, reads a clock or draws a random number: state and `now` go in, the
//! next step comes out. The names are those of the paper "Sampler" (its sections are cited where
//! code follows them, see `docs/migration.md`): a *span* is one continuous usage of one *target*, it is
//! *sampled* interval by interval, each interval is first *planned* and then *executed*.
//!
//! All times are milliseconds since the Unix epoch, UTC ([`Timestamp`]); all durations are
//! signed milliseconds (`i64`).

mod amount;
mod backoff;
pub mod change;
mod closing_month;
pub mod contract;
mod control;
mod controller;
mod cut;
mod distress;
pub mod driver;
pub mod entry;
pub mod event;
pub mod excluded;
pub mod granularity;
pub mod id;
pub mod intake;
pub mod interval;
mod key;
pub mod measure;
mod named;
pub mod number;
pub mod partition;
mod percent;
mod proof;
mod run;
mod skip;
pub mod span;
pub mod state;
pub mod step;
pub mod suspension;
pub mod target;
pub mod text;
mod throttle;
pub mod timestamp;
pub mod units;
pub mod usage;
mod window;

pub use amount::Amount;
pub use backoff::Backoff;
pub use change::{Change, ChangeKind, Changed, Failure};
pub use closing_month::ClosingMonth;
pub use contract::{Contract, Memory, READ_VALID_FOR};
pub use control::{Control, ControllerSettings, SamplingControl, StartRates};
pub use controller::{ControllerMemory, ControllerStep, ControllerTerms, Load};
pub use cut::Cut;
pub use distress::Bounds;
pub use driver::{Action, Driver, Remembered, Terms};
pub use entry::{Acceptance, Entry};
pub use event::{Field, StartEvent, StopEvent, UpdateEvent};
pub use excluded::{Again, Delivery, EXCLUDED_MAX, Excluded};
pub use granularity::{Granularities, Granularity, Policy};
pub use id::{ClientId, EventId, Id, IdError};
pub use intake::{
    IntakeRules, NotEnded, Refusal, Slack, StartDecision, StopDecision, decide_start, decide_stop,
};
pub use interval::Interval;
pub use key::Key;
pub use measure::{Measure, Measures, MeasuresError, Quantity, QuantityError};
pub use percent::{Percent, PercentError, plain};
pub use proof::Proof;
pub use run::RunId;
pub use skip::SkipRefusal;
pub use span::{FailureState, Planned, Processing, Span, SpanId};
pub use state::SpanState;
pub use step::{Step, next_step};
pub use suspension::{Cause, CauseId, CauseIdError, SUSPENDED_DUE_AT, Suspension};
pub use target::Target;
pub use throttle::StartPlace;
pub use timestamp::{Timestamp, TimestampError};
pub use units::Units;
pub use usage::{Usage, usage_guid};
pub use window::{Window, WindowLength};
