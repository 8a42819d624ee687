//! The address at which a usage is found.

use percent_encoding::utf8_percent_encode;
use url::Url;

use crate::http::PATH_SEGMENT;

const ID: &str = "{id}";
const SOURCE: &str = "{source}";

/// The address at which a usage is found, with `{id}` in it, and `{source}` where that is of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindUrl(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindUrlError {
    #[error("must have {{id}} in it, where the id of the usage belongs")]
    Id,
    #[error("must be an address that begins with http:// or https://")]
    Address,
}

impl FindUrl {
    /// Takes an operator's text.
    pub fn new(text: &str) -> Result<Self, FindUrlError> {
        if !text.contains(ID) {
            return Err(FindUrlError::Id);
        }
        let url = Self(text.to_owned());
        // Neither may be a part of the host.
        let hosts = ["a", "b"].map(|id| url.of(id, id).filter(is_http));
        match hosts {
            [Some(a), Some(b)] if a.origin() == b.origin() => Ok(url),
            _ => Err(FindUrlError::Address),
        }
    }

    /// The address for the event of this id and source.
    pub(super) fn of(&self, id: &str, source: &str) -> Option<Url> {
        let text = self.0.replace(ID, &encoded(id));
        Url::parse(&text.replace(SOURCE, &encoded(source))).ok()
    }

    /// The address with its host alone, to name it.
    pub fn host(&self) -> Option<Url> {
        self.of("id", "source")
    }
}

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PATH_SEGMENT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_source_are_encoded() {
        let open_meter = "https://meter.example.com/api/v2/events?\
                          filter=%7B%22id%22%3A%7B%22%24eq%22%3A%22{id}%22%7D%7D";
        for (text, address) in [
            (
                open_meter,
                "https://meter.example.com/api/v2/events?\
                 filter=%7B%22id%22%3A%7B%22%24eq%22%3A%22a-1%22%7D%7D",
            ),
            (
                "http://h:1/{source}/e/{id}?x={id}",
                "http://h:1/a%2F%C3%A9%3F/e/a-1?x=a-1",
            ),
        ] {
            let url = FindUrl::new(text).unwrap().of("a-1", "a/é?").unwrap();
            assert_eq!(url.as_str(), address);
        }
    }

    #[test]
    fn what_cannot_find_a_usage_is_refused() {
        for text in ["", "http://h/events", "http://h/{ID}", "http://h/{source}"] {
            assert_eq!(FindUrl::new(text), Err(FindUrlError::Id), "{text}");
        }
        for text in [
            "{id}",
            "ftp://h/{id}",
            "/events/{id}",
            "http://{id}/",
            "http:///{id}",
        ] {
            assert_eq!(FindUrl::new(text), Err(FindUrlError::Address), "{text}");
        }
    }
}
