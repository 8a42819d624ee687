//! Encrypted cookies: without the key, they cannot be read or made.

use std::fmt;

use cookie::time::Duration;
use cookie::{Cookie, CookieJar, Key, SameSite};
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

/// The shortest key, in bytes.
pub const KEY_LEN_MIN: usize = 32;

/// Keys of cookies. The first encrypts, all of them decrypt, so that keys can be replaced while
/// people are signed in.
#[derive(Clone)]
pub struct Keys(Vec<Key>);

/// Which cookie, and to which addresses browsers send it.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
}

impl Keys {
    /// Keys with commas between them; none where one is shorter than [`KEY_LEN_MIN`].
    pub fn parse(text: &SecretString) -> Option<Self> {
        let parts = text.expose_secret().split(',').map(str::trim);
        let key =
            |part: &str| (part.len() >= KEY_LEN_MIN).then(|| Key::derive_from(part.as_bytes()));
        parts.map(key).collect::<Option<_>>().map(Self)
    }

    /// A key that nobody else has: sessions end with this process.
    pub fn random(random: &dyn sampler_service::environment::Random) -> Self {
        let mut bytes = [0; 64];
        random.fill(&mut bytes);
        Self(vec![Key::from(&bytes)])
    }

    /// The header that sets a cookie for so many seconds.
    pub(crate) fn seal(
        &self,
        place: Place,
        content: &str,
        seconds: i64,
        is_secure: bool,
    ) -> String {
        let cookie = made(place, content.to_owned(), is_secure);
        let cookie = cookie.max_age(Duration::seconds(seconds)).build();
        let mut jar = CookieJar::new();
        if let Some(key) = self.0.first() {
            jar.private_mut(key).add(cookie);
        }
        jar.get(place.name)
            .map(ToString::to_string)
            .unwrap_or_default()
    }

    /// The content of a request's cookie, if one of the keys decrypts it.
    pub(crate) fn open(&self, place: Place, headers: &HeaderMap) -> Option<String> {
        let values = headers.get_all(COOKIE).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        let cookies = texts.flat_map(Cookie::split_parse).flatten();
        let sealed = cookies.filter(|cookie| cookie.name() == place.name);
        // Somebody may have set one of the same name for another path: one that opens is ours.
        sealed.take(4).find_map(|cookie| {
            let mut jar = CookieJar::new();
            jar.add_original(cookie.into_owned());
            let opened = self
                .0
                .iter()
                .find_map(|key| jar.private(key).get(place.name));
            opened.map(|cookie| cookie.value().to_owned())
        })
    }
}

/// The header that has a browser forget a cookie.
pub(crate) fn forget(place: Place, is_secure: bool) -> HeaderValue {
    let cookie = made(place, String::new(), is_secure).max_age(Duration::ZERO);
    HeaderValue::try_from(cookie.build().to_string()).expect("a name and attributes")
}

fn made(place: Place, content: String, is_secure: bool) -> cookie::CookieBuilder<'static> {
    Cookie::build((place.name, content))
        .path(place.path)
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

    const PLACE: Place = Place {
        name: "a",
        path: "/console",
    };

    fn keys(text: &str) -> Keys {
        Keys::parse(&text.into()).unwrap()
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
        assert_eq!(both.open(PLACE, &sent(&sealed)).as_deref(), Some("content"));
        assert_eq!(keys(&new).open(PLACE, &sent(&sealed)), None);
        let newly = both.seal(PLACE, "content", 60, true);
        assert!(keys(&new).open(PLACE, &sent(&newly)).is_some());
        assert_eq!(keys(&old).open(PLACE, &sent(&newly)), None);
    }

    #[test]
    fn a_cookie_is_of_no_use_under_another_name_or_changed() {
        let keys = keys(&"k".repeat(32));
        let sealed = keys.seal(PLACE, "content", 60, false);
        let other = Place { name: "b", ..PLACE };
        let renamed = sealed.replacen("a=", "b=", 1);
        assert_eq!(keys.open(other, &sent(&renamed)), None);
        let (head, tail) = sealed.split_at(6);
        let flipped = if tail.starts_with('A') { 'B' } else { 'A' };
        let changed = format!("{head}{flipped}{}", &tail[1..]);
        assert_eq!(keys.open(PLACE, &sent(&changed)), None);
        assert_eq!(keys.open(PLACE, &sent("a=")), None);
    }

    #[test]
    fn attributes_keep_it_from_scripts_other_sites_and_plain_connections() {
        let keys = keys(&"k".repeat(32));
        let sealed = keys.seal(PLACE, "content", 60, true);
        for attribute in [
            "HttpOnly",
            "Secure",
            "SameSite=Lax",
            "Path=/console",
            "Max-Age=60",
        ] {
            assert!(sealed.contains(attribute), "{attribute}: {sealed}");
        }
        assert!(!keys.seal(PLACE, "content", 60, false).contains("Secure"));
    }

    #[test]
    fn short_keys_are_refused() {
        let long = "k".repeat(32);
        for text in ["", "short", &format!("{long},"), &format!("{long},short")] {
            assert!(Keys::parse(&text.into()).is_none(), "{text}");
        }
    }
}
