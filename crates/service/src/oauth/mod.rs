//! OAuth 2.0: checks the tokens of clients ([`verify`], with the keys of [`keyring`]), gets the program's own tokens and
//! signs people in ([`credentials`]). All find the token server ([`discovery`]) and talk to it over HTTP ([`http`]).

pub mod credentials;
pub mod discovery;
pub mod http;
pub mod keyring;
pub mod verify;

pub use credentials::{AccessToken, Attempt, Client, ClientCredentials, NoToken, Tokens};
pub use discovery::{Discoverer, FetchError, TokenServer};
pub use http::{CaBundle, HttpOptions, TlsError};
pub use keyring::Keyring;
pub use verify::{ALGORITHMS, Algorithm, Audiences, Claims, KeyError, Keys, Policy, TokenError};
