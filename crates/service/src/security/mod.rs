//! Authentication of callers.
//!
//! [`Authenticator`] checks the token of a request, and gives the request the token's [`Grant`].
//! [`Access`] says who may read the health and the metrics.

mod authenticator;
mod grant;

pub use authenticator::{Access, Authenticator};
pub use grant::{Grant, Reach};
