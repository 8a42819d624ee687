//! The systems around Abacus and in its place: the upstream, which takes usages from the worker, and the
//! provisioning service, which takes mappings from the receiver.
//!
//! An [`Upstream`] says what it promises, takes usages, and looks them up. Two types implement it:
//! [`Abacus`], and [`CloudEvents`] for whatever takes CloudEvents over HTTP. Functions without I/O decide what an answer
//! means ([`answer`], [`provisioning::part_outcome`]).

pub mod abacus;
pub mod answer;
pub mod cloudevents;
pub mod error_name;
mod http;
mod port;
pub mod provisioning;

pub use abacus::document::HttpConfirmer;
pub use abacus::{Abacus, HttpCollector};
pub use answer::{Answer, Load};
pub use cloudevents::{CloudEvents, EventAttributes, FindUrl, FindUrlError};
pub use error_name::ErrorName;
pub use http::ClientOptions;
pub use port::{Details, LookupAnswer, LookupResult, Lookups, Posted, Promises, Sought, Upstream};
pub use provisioning::{Mapped, Mapping, Provisioning};
