//! OAuth 2.0, both sides of it: whether a token that somebody shows may be believed ([`verify`],
//! [`keys`], [`keyring`]), and tokens of our own for those we call ([`credentials`]). Both need to
//! know where the token server is ([`discovery`]) and how to talk to it ([`http`]).
//!
//! What decides is pure: [`verify::verify`] is a function of a token, keys, a moment and a policy,
//! and [`keys`] are made of what was configured or fetched. The rest fetches, at a bounded rate.

pub mod algorithm;
pub mod audience;
pub mod basic;
pub mod credentials;
pub mod discovery;
mod disguise;
pub mod http;
pub mod keyring;
pub mod keys;
pub mod verify;

pub use algorithm::Algorithm;
pub use audience::Audiences;
pub use basic::{BasicCheck, Verdict};
pub use credentials::{AccessToken, Client, ClientCredentials, NoToken};
pub use discovery::{Discoverer, TokenServer};
pub use http::{CaBundle, FetchError, HttpOptions, TlsError};
pub use keyring::{Issuer, Keyring, NoIssuer, Pace, Refreshed};
pub use keys::{KeyError, Keys};
pub use verify::{Claims, Policy, TokenError, verify};
