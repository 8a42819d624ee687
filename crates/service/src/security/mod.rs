//! Authentication of callers.
//!
//! [`Authenticator`] checks the token of a request, and gives the request the token's [`Grant`].
//! [`Monitors`] says who may read the health and the metrics. Both are set up as the settings want
//! ([`authenticator`], [`access`]).

mod authenticator;
mod grant;
mod monitors;
mod setup;

pub use authenticator::Authenticator;
pub use grant::{Grant, Reach};
pub use monitors::{Access, Monitors};
pub use setup::{access, authenticator};
