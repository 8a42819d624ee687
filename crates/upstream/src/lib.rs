//! The systems around Abacus and in its place: the upstream, which takes usages from the worker, and the
//! provisioning service, which takes mappings from the receiver.
//!
//! An [`Upstream`] says what it promises, takes usages, looks them up and tells its time. Two types implement it:
//! [`Abacus`], and [`CloudEvents`] for whatever takes CloudEvents over HTTP. Functions without I/O decide what an answer
//! means ([`answer`], [`provisioning::part_outcome`]) and what time it is there ([`clock`]).

pub mod abacus;
pub mod answer;
pub mod clock;
pub mod cloudevents;
pub mod error_name;
mod http;
pub mod limiter;
mod port;
pub mod provisioning;

pub use abacus::document::HttpConfirmer;
pub use abacus::{Abacus, HttpCollector};
pub use answer::Answer;
pub use clock::{ClockEstimate, ClockReading, Noted, Pace};
pub use cloudevents::{CloudEvents, EventAttributes, FindUrl, FindUrlError};
pub use error_name::ErrorName;
pub use http::ClientOptions;
pub use limiter::{ConcurrencyLimit, Load};
pub use port::{
    AnswerDate, Details, LookupAnswer, LookupResult, Lookups, Posted, Promises, Sought, Upstream,
};
pub use provisioning::{Mapped, Mapping, Provisioning};
