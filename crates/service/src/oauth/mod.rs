//! OAuth 2.0: checks the tokens of clients ([`verify`], [`keyring`]), gets the program's own tokens ([`credentials`]),
//! and signs people in ([`code_flow`]). All find the token server ([`discovery`]) and talk to it over HTTP ([`http`]).
//!
//! [`verify::verify`] decides on a token; the rest fetches keys and tokens, at a bounded rate.

pub mod code_flow;
pub mod credentials;
pub mod discovery;
pub mod http;
pub mod keyring;
pub mod keys;
pub mod verify;

pub use code_flow::{Attempt, CodeFlow, Tokens};
pub use credentials::{AccessToken, Client, ClientCredentials, NoToken};
pub use discovery::{Discoverer, TokenServer};
pub use http::{CaBundle, FetchError, HttpOptions, TlsError};
pub use keyring::{Issuer, Keyring, NoIssuer, NotNow, Pace};
pub use keys::{ALGORITHMS, Algorithm, KeyError, Keys};
pub use verify::{Audiences, Claims, Policy, TokenError, verify};
