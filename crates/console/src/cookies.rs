//! Encrypted cookies: without the key, they cannot be read or made.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use sampler_service::environment::Random;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::visit::is_secure;

/// In bytes.
const KEY_LEN_MIN: usize = 32;

/// The most bytes of a cookie that browsers keep.
const COOKIE_MAX: usize = 4_000;

/// How many cookies of one name are looked at: a neighbour of the same domain can set some, which do not
/// decrypt.
const COOKIES_MAX: usize = 32;

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
    pub(crate) fn seal(
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

    /// The content of a request's cookie, if one of the keys decrypts it. What does not decrypt is
    /// passed over. None where two cookies decrypt to different contents: which of them the person
    /// wants cannot be known.
    pub(crate) fn open<T: DeserializeOwned>(&self, name: &str, headers: &HeaderMap) -> Option<T> {
        let name = full_name(name, headers);
        let values = headers.get_all(COOKIE).iter();
        let cookies = values.filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
        let sealed = pairs.filter(|(given, _)| *given == name).take(COOKIES_MAX);
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
        let mut pairs = vec!["__Host-a=junk".to_owned(); COOKIES_MAX - 1];
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
