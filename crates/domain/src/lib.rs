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
mod forecast;
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
pub mod resend;
pub mod span;
pub mod state;
pub mod step;
pub mod suspension;
pub mod target;
pub mod text;
mod throttle;
pub mod timestamp;
mod uncounted;
pub mod units;
pub mod usage;
mod window;

pub use amount::Amount;
pub use backoff::Backoff;
pub use change::{Change, Changed, Failure, LastError, Next};
pub use closing_month::ClosingMonth;
pub use contract::{Contract, Memory};
pub use control::{Control, ControllerSettings, SamplingControl, StartRates};
pub use controller::{ControllerMemory, ControllerStep, ControllerTerms, Load};
pub use cut::Cut;
pub use distress::Bounds;
pub use driver::{Action, Driver, READ_VALID_FOR};
pub use entry::{Acceptance, EARLIER_ROUNDS_MAX, Entry, EntryState, Question, Round};
pub use event::{Field, StartEvent, StopEvent, UpdateEvent};
pub use forecast::Forecast;
pub use granularity::{Granularities, Granularity, Policy};
pub use id::{ClientId, EventId, Id, IdError};
pub use intake::{
    IntakeRules, NotEnded, Refusal, Slack, StartDecision, StopDecision, decide_start, decide_stop,
};
pub use interval::Interval;
pub use key::Key;
pub use measure::{Measure, Measures, MeasuresError, Quantity, QuantityError};
pub use percent::{Percent, PercentError, plain};
pub use resend::{Correction, Resend, Resent};
pub use span::{Planned, Processing, SKIP_DELAY, Skip, Span, SpanId, Totals};
pub use state::SpanState;
pub use step::{Step, next_step};
pub use suspension::{Cause, CauseId, CauseIdError, SUSPENDED_DUE_AT, Suspension};
pub use target::Target;
pub use throttle::StartPlace;
pub use timestamp::{Timestamp, TimestampError};
pub use uncounted::{UNCOUNTED_MAX, Uncounted, UncountedReason};
pub use units::Units;
pub use usage::{Usage, usage_guid};
pub use window::{Window, WindowLength};
