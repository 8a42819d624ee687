//! What the programs do to be sure whom they talk to.
//!
//! [`settings`](SecuritySettings) say what is wanted, and refuse what could not be honoured;
//! [`Authenticator`] lets those in who show a token that may be believed, each for what it allows
//! ([`Grant`]); [`basic`](credentials) does the same for the health check.

mod authenticator;
mod basic;
mod grant;
mod settings;
mod throttle;
mod warnings;

pub use authenticator::Authenticator;
pub(crate) use basic::credentials;
pub use grant::{Grant, Reach};
pub use sampler_oauth::{Algorithm, BasicCheck};
pub use settings::SecuritySettings;
pub use throttle::Throttle;
