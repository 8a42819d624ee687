//! Authentication, in both directions.
//!
//! [`SecuritySettings`] say what an operator wants, and refuse settings that cannot be kept.
//! [`Authenticator`] checks the token of a request, and gives the request the token's [`Grant`].
//! [`Monitors`] says who may read the health and the metrics.

mod authenticator;
mod grant;
mod monitors;
mod settings;
mod warnings;

pub use authenticator::Authenticator;
pub use grant::{Grant, Reach};
pub use monitors::{Access, Monitors};
pub use sampler_oauth::Algorithm;
pub use settings::SecuritySettings;
