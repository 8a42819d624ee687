//! Authentication, in both directions.
//!
//! [`SecuritySettings`] say what an operator wants, and refuse settings that cannot be kept.
//! [`Authenticator`] checks the token of a request, and gives the request the token's [`Grant`].
//! [`basic`](credentials) checks the credentials for the health check.

mod authenticator;
mod basic;
mod grant;
mod settings;
mod warnings;

pub use authenticator::Authenticator;
pub(crate) use basic::credentials;
pub use grant::{Grant, Reach};
pub use sampler_oauth::{Algorithm, BasicCheck};
pub use settings::SecuritySettings;
