//! The session of a person, kept in an encrypted cookie, so that any instance serves any request.
//!
//! The cookie holds a name, scopes and a secret for forms, and no token. Cookies cannot be read or made
//! without a key of `SAMPLER_CONSOLE_KEY`, nor at another installation.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use sampler_domain::{ClientId, Timestamp};
use sampler_service::environment::Random;
use sampler_service::oauth::Claims;
use sampler_service::security::Grant;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::Refusal;
use crate::visit::is_secure;
use crate::{Console, sign_in};

/// The name of its cookie.
pub(crate) const SESSION: &str = "sampler_console";

/// The longest session, in ms, where no token says it.
const OPEN_FOR: i64 = 7 * 24 * 60 * 60 * 1_000;

/// The least bytes of a key.
const KEY_LEN_MIN: usize = 32;

/// The most bytes of a cookie that browsers keep.
const COOKIE_MAX: usize = 4_000;

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The secret that each form must repeat.
    pub(crate) csrf: String,
    /// None if no sign-in is needed.
    pub(crate) person: Option<Person>,
}

/// Somebody who has signed in.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) name: String,
    /// The client that the token was for.
    pub(crate) client: Option<String>,
    pub(crate) scopes: Vec<String>,
}

impl Session {
    pub(crate) fn new(person: Option<Person>, random: &dyn Random) -> Self {
        let csrf = secret(random);
        Self { csrf, person }
    }

    /// What the session may do; none where its scopes allow nothing.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let Some(person) = &self.person else {
            return Some(Grant::without_token());
        };
        Grant::of_claims(&Claims {
            client: person.client.as_deref().and_then(ClientId::new),
            user: ClientId::new(&person.name),
            scopes: person.scopes.clone(),
            until: Timestamp::MAX,
        })
    }

    /// Whether a form that repeats this secret is from a page of this session.
    pub(crate) fn has_made(&self, csrf: &str) -> bool {
        verify_slices_are_equal(self.csrf.as_bytes(), csrf.as_bytes()).is_ok()
    }
}

impl Console {
    /// Whether nobody needs to sign in.
    pub(crate) fn is_open(&self) -> bool {
        self.parts.sign_in.is_none()
    }

    /// The header that has a browser keep a cookie until then; none where the cookie would be too long.
    pub(crate) fn cookie(
        &self,
        name: &str,
        content: &impl Serialize,
        until: Timestamp,
        headers: &HeaderMap,
    ) -> Option<HeaderValue> {
        let seconds = until.since(self.parts.clock.now()) / 1_000;
        let content = (until, content);
        self.parts.keys.seal(name, &content, seconds, headers)
    }

    /// The content of a request's cookie, if it has one that has not ended.
    pub(crate) fn content<T: DeserializeOwned>(
        &self,
        name: &str,
        headers: &HeaderMap,
    ) -> Option<T> {
        let (until, content): (Timestamp, T) = self.parts.keys.open(name, headers)?;
        (self.parts.clock.now() < until).then_some(content)
    }
}

/// Serves a request that has a session. Without a session, a request that reads is redirected to the
/// sign-in.
pub(crate) async fn require(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    let known = console.content::<Session>(SESSION, request.headers());
    // Where people sign in, nobody is admitted without a name.
    let known = known.filter(|session| session.person.is_some() != console.is_open());
    let mut cookie = None;
    let session = match known {
        Some(session) => session,
        None if !request.method().is_safe() => {
            let detail = "There is no session, or it has ended. Nothing was done.";
            return Refusal::new(StatusCode::FORBIDDEN, "Not signed in", detail).into_response();
        }
        None if !console.is_open() => {
            return Redirect::to(&sign_in::reference(request.uri())).into_response();
        }
        None => {
            let until = console.parts.clock.now().plus(OPEN_FOR);
            let session = Session::new(None, &*console.parts.random);
            cookie = console.cookie(SESSION, &session, until, request.headers());
            session
        }
    };
    request.extensions_mut().insert(session.clone());
    let mut response = next.run(request).await;
    response.extensions_mut().insert(session);
    let headers = response.headers_mut();
    headers.extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// A secret: 256 random bits as a text.
pub(crate) fn secret(random: &dyn Random) -> String {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Keys of cookies. The first encrypts, all of them decrypt, so that keys can be replaced while
/// people are signed in.
#[derive(Clone)]
pub struct Keys(Arc<[RandomizedNonceKey]>);

impl Keys {
    /// Keys with commas between them; none if one is shorter than 32 bytes. They are of use for one
    /// installation only: its distinctive values are a part of each key.
    pub fn parse(text: &SecretString, installation: &[&str]) -> Option<Self> {
        let parts = text.expose_secret().split(',').map(str::trim);
        let keys = parts.map(|part| {
            let material = json!([part, installation]).to_string();
            (part.len() >= KEY_LEN_MIN).then(|| key(digest(&SHA256, material.as_bytes()).as_ref()))
        });
        keys.collect::<Option<_>>().map(Self)
    }

    /// A key that nobody else has: sessions end with this process.
    pub fn random(random: &dyn Random) -> Self {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        Self(Arc::new([key(&bytes)]))
    }

    /// The header that has a browser keep a cookie for a number of seconds; none where the cookie would
    /// be too long.
    fn seal(
        &self,
        name: &str,
        content: &impl Serialize,
        seconds: i64,
        headers: &HeaderMap,
    ) -> Option<HeaderValue> {
        let mut sealed = serde_json::to_vec(content).ok()?;
        let aad = Aad::from(full_name(name, headers));
        let key = self.0.first()?;
        let nonce = key.seal_in_place_append_tag(aad, &mut sealed).ok()?;
        let sealed = URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &sealed].concat());
        let cookie = cookie(name, &sealed, seconds, headers);
        (cookie.len() <= COOKIE_MAX).then_some(cookie)
    }

    /// The content of a request's cookie, if one of the keys decrypts it. A neighbour of the same domain
    /// can set others of its name: what does not decrypt is passed over. None where two decrypt to
    /// different contents: which of them the person wants cannot be known.
    fn open<T: DeserializeOwned>(&self, name: &str, headers: &HeaderMap) -> Option<T> {
        let name = full_name(name, headers);
        let values = headers.get_all(COOKIE).iter();
        let cookies = values.filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
        let sealed = pairs.filter(|(given, _)| *given == name);
        let mut opened = sealed.filter_map(|(_, sealed)| self.decrypt(&name, sealed));
        let first = opened.next()?;
        let is_clear = opened.all(|other| other == first);
        serde_json::from_slice(&first).ok().filter(|_| is_clear)
    }

    fn decrypt(&self, name: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        self.0.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut sealed = sealed.to_vec();
            let opened = key.open_in_place(nonce, Aad::from(name), &mut sealed);
            opened.ok().map(|opened| opened.to_vec())
        })
    }
}

fn key(bytes: &[u8]) -> RandomizedNonceKey {
    RandomizedNonceKey::new(&AES_256_GCM, bytes).expect("a key has 32 bytes")
}

/// The header that has a browser forget a cookie.
pub(crate) fn forget(name: &str, headers: &HeaderMap) -> HeaderValue {
    cookie(name, "", 0, headers)
}

/// For all paths, because the prefix that a router takes away is not known here.
fn cookie(name: &str, content: &str, seconds: i64, headers: &HeaderMap) -> HeaderValue {
    let name = full_name(name, headers);
    let secure = if is_secure(headers) { "; Secure" } else { "" };
    let cookie =
        format!("{name}={content}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    HeaderValue::try_from(cookie).expect("the content is base64")
}

/// The name of a cookie. Over https browsers take a cookie whose name begins with `__Host-` only from
/// the host itself: no neighbour can set one (RFC 6265bis, section 4.1.3.2).
fn full_name(name: &str, headers: &HeaderMap) -> String {
    let prefix = if is_secure(headers) { "__Host-" } else { "" };
    format!("{prefix}{name}")
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    const NAME: &str = "a";

    fn keys(text: &str) -> Keys {
        Keys::parse(&text.into(), &["issuer"]).unwrap()
    }

    /// A request with these cookies, over TLS or not.
    fn request(is_secure: bool, pairs: &[String]) -> HeaderMap {
        let host = if is_secure { "a.example" } else { "localhost" };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static(host));
        headers.insert(COOKIE, HeaderValue::from_str(&pairs.join("; ")).unwrap());
        headers
    }

    /// The pair that a browser sends back.
    fn pair(keys: &Keys, content: &str, is_secure: bool) -> String {
        let set = keys.seal(NAME, &content, 60, &request(is_secure, &[]));
        let set = set.unwrap().to_str().unwrap().to_owned();
        set.split(';').next().unwrap().to_owned()
    }

    fn opened(keys: &Keys, pairs: &[String], is_secure: bool) -> Option<String> {
        keys.open(NAME, &request(is_secure, pairs))
    }

    #[test]
    fn the_first_key_encrypts_and_each_decrypts() {
        let (old, new) = ("o".repeat(32), "n".repeat(32));
        let both = keys(&format!("{new}, {old}"));
        let (old, new) = (keys(&old), keys(&new));
        for (sealing, by_both, by_new, by_old) in
            [(&old, true, false, true), (&both, true, true, false)]
        {
            let sealed = [pair(sealing, "content", true)];
            assert!(!sealed[0].contains("content"));
            let found = [&both, &new, &old].map(|keys| opened(keys, &sealed, true).is_some());
            assert_eq!(found, [by_both, by_new, by_old]);
        }
    }

    #[test]
    fn a_cookie_of_one_installation_is_of_no_use_at_another_with_the_same_key() {
        let of = |installation: &[&str]| Keys::parse(&"k".repeat(32).into(), installation).unwrap();
        let sealed = [pair(&of(&["a", "b"]), "content", true)];
        assert!(opened(&of(&["a", "b"]), &sealed, true).is_some());
        for other in [["a", "c"], ["ab", ""], ["", "ab"], ["b", "a"]] {
            assert_eq!(opened(&of(&other), &sealed, true), None);
        }
    }

    #[test]
    fn what_a_neighbour_sets_neither_signs_in_nor_signs_out() {
        let keys = keys(&"k".repeat(32));
        let own = pair(&keys, "own", true);
        assert!(own.starts_with("__Host-a="), "{own}");
        let mut pairs = vec!["__Host-a=junk".to_owned(); 9];
        pairs.extend([pair(&keys, "bob", false), own.clone(), own]);
        assert_eq!(opened(&keys, &pairs, true).as_deref(), Some("own"));
        // Without https a neighbour can: two that differ count for nothing, whatever their order.
        let (alice, bob) = (pair(&keys, "alice", false), pair(&keys, "bob", false));
        assert_eq!(opened(&keys, &[alice.clone(), bob.clone()], false), None);
        assert_eq!(opened(&keys, &[bob, alice.clone()], false), None);
        assert_eq!(opened(&keys, &[alice], false).as_deref(), Some("alice"));
    }

    #[test]
    fn a_cookie_is_of_no_use_under_another_name_or_changed() {
        let keys = keys(&"k".repeat(32));
        let sealed = pair(&keys, "content", false);
        let renamed = request(false, &[sealed.replacen("a=", "b=", 1)]);
        assert_eq!(keys.open::<String>("b", &renamed), None);
        let (head, tail) = sealed.split_at(6);
        let flipped = if tail.starts_with('A') { 'B' } else { 'A' };
        let changed = format!("{head}{flipped}{}", &tail[1..]);
        for other in [changed, "a=".to_owned()] {
            assert_eq!(opened(&keys, &[other], false), None);
        }
    }

    #[test]
    fn attributes_keep_it_from_scripts_other_sites_and_plain_connections() {
        let set = |is_secure, content: &str| {
            let headers = request(is_secure, &[]);
            let set = keys(&"k".repeat(32)).seal(NAME, &content, 60, &headers);
            set.map(|set| set.to_str().unwrap().to_owned())
        };
        for (is_secure, end) in [(true, "; Secure"), (false, "")] {
            let attributes = format!("; Path=/; HttpOnly; SameSite=Lax; Max-Age=60{end}");
            let set = set(is_secure, "content").unwrap();
            assert!(set.ends_with(&attributes), "{set}");
        }
        assert_eq!(set(true, &"x".repeat(COOKIE_MAX)), None);
    }

    #[test]
    fn short_keys_are_refused() {
        let long = "k".repeat(32);
        for text in ["", "short", &format!("{long},"), &format!("{long},short")] {
            assert!(Keys::parse(&text.into(), &[]).is_none(), "{text}");
        }
    }
}
