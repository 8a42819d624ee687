//! Encrypted cookies: without the key, they cannot be read or made.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use cookie::time::Duration;
use cookie::{Cookie, SameSite};
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::cookie_key::{CookieKey, KEY_LEN};

/// In bytes.
pub const KEY_LEN_MIN: usize = 32;

/// How many cookies of one name are looked at: a neighbour of the same domain can set some, which do not
/// decrypt.
const COOKIES_MAX: usize = 32;

/// Browsers take a cookie whose name begins so only over https, from the host itself and for all of its
/// paths: no neighbour can set one (RFC 6265bis, section 4.1.3.2).
const OF_THE_HOST: &str = "__Host-";

/// Keys of cookies. The first encrypts, all of them decrypt, so that keys can be replaced while
/// people are signed in.
#[derive(Clone)]
pub struct Keys(Arc<[CookieKey]>);

/// Which cookie, and to which addresses browsers send it over plain HTTP.
#[derive(Clone, Copy)]
pub(crate) struct CookieScope {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
}

impl CookieScope {
    fn name(self, is_secure: bool) -> String {
        let prefix = if is_secure { OF_THE_HOST } else { "" };
        format!("{prefix}{}", self.name)
    }
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
            (part.len() >= KEY_LEN_MIN).then(|| CookieKey::derived_from(material.as_bytes()))
        });
        keys.collect::<Option<_>>().map(Self)
    }

    /// A key that nobody else has: sessions end with this process.
    pub fn random(random: &dyn sampler_service::environment::Random) -> Self {
        let mut bytes = [0; KEY_LEN];
        random.fill(&mut bytes);
        Self(Arc::new([CookieKey::of_bytes(&bytes)]))
    }

    /// The header that sets a cookie for a number of seconds.
    pub(crate) fn seal(
        &self,
        place: CookieScope,
        content: &str,
        seconds: i64,
        is_secure: bool,
    ) -> String {
        let key = self.0.first();
        let sealed = key.and_then(|key| key.seal(&place.name(is_secure), content));
        let cookie =
            made(place, sealed.unwrap_or_default(), is_secure).max_age(Duration::seconds(seconds));
        cookie.build().to_string()
    }

    /// The content of a request's cookie, if one of the keys decrypts it. What does not decrypt is
    /// passed over. None where two cookies decrypt to different contents: which of them the person
    /// wants cannot be known.
    pub(crate) fn open(
        &self,
        place: CookieScope,
        headers: &HeaderMap,
        is_secure: bool,
    ) -> Option<String> {
        let name = place.name(is_secure);
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

    fn decrypt(&self, name: &str, value: &str) -> Option<String> {
        self.0.iter().find_map(|key| key.open(name, value))
    }
}

pub(crate) fn forget(place: CookieScope, is_secure: bool) -> HeaderValue {
    let cookie = made(place, String::new(), is_secure).max_age(Duration::ZERO);
    HeaderValue::try_from(cookie.build().to_string()).expect("a name and attributes")
}

fn made(place: CookieScope, content: String, is_secure: bool) -> cookie::CookieBuilder<'static> {
    let path = if is_secure { "/" } else { place.path };
    Cookie::build((place.name(is_secure), content))
        .path(path)
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

    const PLACE: CookieScope = CookieScope {
        name: "a",
        path: "/console",
    };

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
        let sealed = keys(&old).seal(PLACE, "content", 60, true);
        assert!(!sealed.contains("content"), "{sealed}");
        let both = keys(&format!("{new}, {old}"));
        assert_eq!(
            both.open(PLACE, &sent(&sealed), true).as_deref(),
            Some("content")
        );
        assert_eq!(keys(&new).open(PLACE, &sent(&sealed), true), None);
        let newly = both.seal(PLACE, "content", 60, true);
        assert!(keys(&new).open(PLACE, &sent(&newly), true).is_some());
        assert_eq!(keys(&old).open(PLACE, &sent(&newly), true), None);
    }

    #[test]
    fn a_cookie_of_one_installation_is_of_no_use_at_another_with_the_same_key() {
        let of = |installation: &[&str]| Keys::parse(&"k".repeat(32).into(), installation).unwrap();
        let sealed = of(&["a", "b"]).seal(PLACE, "content", 60, true);
        assert!(of(&["a", "b"]).open(PLACE, &sent(&sealed), true).is_some());
        for other in [["a", "c"], ["ab", ""], ["", "ab"], ["b", "a"]] {
            assert_eq!(of(&other).open(PLACE, &sent(&sealed), true), None);
        }
    }

    #[test]
    fn what_a_neighbour_sets_neither_signs_in_nor_signs_out() {
        let keys = keys(&"k".repeat(32));
        let pair = |content: &str, is_secure| {
            let sealed = keys.seal(PLACE, content, 60, is_secure);
            sealed.split(';').next().unwrap().to_owned()
        };
        let opened = |pairs: &[String], is_secure| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, HeaderValue::from_str(&pairs.join("; ")).unwrap());
            keys.open(PLACE, &headers, is_secure)
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
        let sealed = keys.seal(PLACE, "content", 60, false);
        let other = CookieScope { name: "b", ..PLACE };
        let renamed = sealed.replacen("a=", "b=", 1);
        assert_eq!(keys.open(other, &sent(&renamed), false), None);
        let (head, tail) = sealed.split_at(6);
        let flipped = if tail.starts_with('A') { 'B' } else { 'A' };
        let changed = format!("{head}{flipped}{}", &tail[1..]);
        assert_eq!(keys.open(PLACE, &sent(&changed), false), None);
        assert_eq!(keys.open(PLACE, &sent("a="), false), None);
    }

    #[test]
    fn attributes_keep_it_from_scripts_other_sites_and_plain_connections() {
        let keys = keys(&"k".repeat(32));
        let sealed = keys.seal(PLACE, "content", 60, true);
        for attribute in [
            "HttpOnly",
            "Secure",
            "SameSite=Lax",
            "Path=/;",
            "Max-Age=60",
        ] {
            assert!(sealed.contains(attribute), "{attribute}: {sealed}");
        }
        let plain = keys.seal(PLACE, "content", 60, false);
        assert!(!plain.contains("Secure") && plain.contains("Path=/console"));
    }

    #[test]
    fn short_keys_are_refused() {
        let long = "k".repeat(32);
        for text in ["", "short", &format!("{long},"), &format!("{long},short")] {
            assert!(Keys::parse(&text.into(), &[]).is_none(), "{text}");
        }
    }
}
