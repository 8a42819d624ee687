//! Encrypted cookies: without the key, they cannot be read or made.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cookie::time::Duration;
use cookie::{Cookie, CookieBuilder, SameSite};
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use sampler_service::environment::Random;
use secrecy::{ExposeSecret, SecretString};

/// In bytes.
const KEY_LEN_MIN: usize = 32;

/// How many cookies of one name are looked at: a neighbour of the same domain can set some, which do not
/// decrypt.
const COOKIES_MAX: usize = 32;

/// Keys of cookies. The first encrypts, all of them decrypt, so that keys can be replaced while
/// people are signed in.
#[derive(Clone)]
pub struct Keys(Arc<[RandomizedNonceKey]>);

/// The name of a cookie. Over https browsers take a cookie whose name begins with `__Host-` only from
/// the host itself: no neighbour can set one (RFC 6265bis, section 4.1.3.2).
fn full_name(name: &str, is_secure: bool) -> String {
    let prefix = if is_secure { "__Host-" } else { "" };
    format!("{prefix}{name}")
}

impl Keys {
    /// Keys with commas between them; none if one is shorter than [`KEY_LEN_MIN`]. They are of use
    /// for one installation only: its distinctive values are a part of each key.
    pub fn parse(text: &SecretString, installation: &[&str]) -> Option<Self> {
        let parts = text.expose_secret().split(',').map(str::trim);
        let keys = parts.map(|part| {
            let mut material = String::new();
            for text in std::iter::once(&part).chain(installation) {
                // With its length before each text, so that no two lists are alike.
                let _ = write!(material, "{}:{text}", text.len());
            }
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

    /// The header that sets a cookie for a number of seconds.
    pub(crate) fn seal(&self, name: &str, content: &str, seconds: i64, is_secure: bool) -> String {
        let name = full_name(name, is_secure);
        let sealed = self.0.first().and_then(|key| encrypt(key, &name, content));
        let cookie = made(name, sealed.unwrap_or_default(), is_secure);
        let cookie = cookie.max_age(Duration::seconds(seconds));
        cookie.build().to_string()
    }

    /// The content of a request's cookie, if one of the keys decrypts it. What does not decrypt is
    /// passed over. None where two cookies decrypt to different contents: which of them the person
    /// wants cannot be known.
    pub(crate) fn open(&self, name: &str, headers: &HeaderMap, is_secure: bool) -> Option<String> {
        let name = full_name(name, is_secure);
        let values = headers.get_all(COOKIE).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        let cookies = texts.flat_map(Cookie::split_parse).flatten();
        let sealed = cookies.filter(|cookie| cookie.name() == name);
        let mut opened = sealed
            .take(COOKIES_MAX)
            .filter_map(|cookie| self.decrypt(&name, cookie.value()));
        let first = opened.next()?;
        opened.all(|other| other == first).then_some(first)
    }

    fn decrypt(&self, name: &str, sealed: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        self.0.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut sealed = sealed.to_vec();
            let opened = key
                .open_in_place(nonce, Aad::from(name), &mut sealed)
                .ok()?;
            String::from_utf8(opened.to_vec()).ok()
        })
    }
}

fn key(bytes: &[u8]) -> RandomizedNonceKey {
    RandomizedNonceKey::new(&AES_256_GCM, bytes).expect("a key has 32 bytes")
}

/// The content, readable and changeable with the key alone, and under this name alone.
fn encrypt(key: &RandomizedNonceKey, name: &str, content: &str) -> Option<String> {
    let mut sealed = content.as_bytes().to_vec();
    let nonce = key
        .seal_in_place_append_tag(Aad::from(name), &mut sealed)
        .ok()?;
    Some(URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &sealed].concat()))
}

/// The header that has a browser forget a cookie.
pub(crate) fn forget(name: &str, is_secure: bool) -> HeaderValue {
    let cookie = made(full_name(name, is_secure), String::new(), is_secure);
    let cookie = cookie.max_age(Duration::ZERO).build().to_string();
    HeaderValue::try_from(cookie).expect("a name and attributes")
}

/// For all paths, because the prefix that a router takes away is not known here.
fn made(name: String, content: String, is_secure: bool) -> CookieBuilder<'static> {
    Cookie::build((name, content))
        .path("/")
        .http_only(true)
        .secure(is_secure)
        .same_site(SameSite::Lax)
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("count", &self.0.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "a";

    fn keys(text: &str) -> Keys {
        Keys::parse(&text.into(), &["issuer"]).unwrap()
    }

    fn sent(header: &str) -> HeaderMap {
        let pair = header.split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(pair).unwrap());
        headers
    }

    #[test]
    fn the_first_key_encrypts_and_each_decrypts() {
        let (old, new) = ("o".repeat(32), "n".repeat(32));
        let sealed = keys(&old).seal(NAME, "content", 60, true);
        assert!(!sealed.contains("content"), "{sealed}");
        let both = keys(&format!("{new}, {old}"));
        assert_eq!(
            both.open(NAME, &sent(&sealed), true).as_deref(),
            Some("content")
        );
        assert_eq!(keys(&new).open(NAME, &sent(&sealed), true), None);
        let newly = both.seal(NAME, "content", 60, true);
        assert!(keys(&new).open(NAME, &sent(&newly), true).is_some());
        assert_eq!(keys(&old).open(NAME, &sent(&newly), true), None);
    }

    #[test]
    fn a_cookie_of_one_installation_is_of_no_use_at_another_with_the_same_key() {
        let of = |installation: &[&str]| Keys::parse(&"k".repeat(32).into(), installation).unwrap();
        let sealed = of(&["a", "b"]).seal(NAME, "content", 60, true);
        assert!(of(&["a", "b"]).open(NAME, &sent(&sealed), true).is_some());
        for other in [["a", "c"], ["ab", ""], ["", "ab"], ["b", "a"]] {
            assert_eq!(of(&other).open(NAME, &sent(&sealed), true), None);
        }
    }

    #[test]
    fn what_a_neighbour_sets_neither_signs_in_nor_signs_out() {
        let keys = keys(&"k".repeat(32));
        let pair = |content: &str, is_secure| {
            let sealed = keys.seal(NAME, content, 60, is_secure);
            sealed.split(';').next().unwrap().to_owned()
        };
        let opened = |pairs: &[String], is_secure| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, HeaderValue::from_str(&pairs.join("; ")).unwrap());
            keys.open(NAME, &headers, is_secure)
        };
        let own = pair("own", true);
        assert!(own.starts_with("__Host-a="), "{own}");
        let mut pairs = vec!["__Host-a=junk".to_owned(); COOKIES_MAX - 1];
        pairs.extend([pair("bob", false), own.clone(), own]);
        assert_eq!(opened(&pairs, true).as_deref(), Some("own"));
        // Without https a neighbour can: two that differ count for nothing, whatever their order.
        let (alice, bob) = (pair("alice", false), pair("bob", false));
        assert_eq!(opened(&[alice.clone(), bob.clone()], false), None);
        assert_eq!(opened(&[bob, alice.clone()], false), None);
        assert_eq!(opened(&[alice], false).as_deref(), Some("alice"));
    }

    #[test]
    fn a_cookie_is_of_no_use_under_another_name_or_changed() {
        let keys = keys(&"k".repeat(32));
        let sealed = keys.seal(NAME, "content", 60, false);
        let renamed = sealed.replacen("a=", "b=", 1);
        assert_eq!(keys.open("b", &sent(&renamed), false), None);
        let (head, tail) = sealed.split_at(6);
        let flipped = if tail.starts_with('A') { 'B' } else { 'A' };
        let changed = format!("{head}{flipped}{}", &tail[1..]);
        assert_eq!(keys.open(NAME, &sent(&changed), false), None);
        assert_eq!(keys.open(NAME, &sent("a="), false), None);
    }

    #[test]
    fn attributes_keep_it_from_scripts_other_sites_and_plain_connections() {
        let keys = keys(&"k".repeat(32));
        let sealed = keys.seal(NAME, "content", 60, true);
        for attribute in [
            "HttpOnly",
            "Secure",
            "SameSite=Lax",
            "Path=/;",
            "Max-Age=60",
        ] {
            assert!(sealed.contains(attribute), "{attribute}: {sealed}");
        }
        let plain = keys.seal(NAME, "content", 60, false);
        assert!(!plain.contains("Secure") && plain.contains("Path=/;"));
    }

    #[test]
    fn short_keys_are_refused() {
        let long = "k".repeat(32);
        for text in ["", "short", &format!("{long},"), &format!("{long},short")] {
            assert!(Keys::parse(&text.into(), &[]).is_none(), "{text}");
        }
    }
}
