//! HTTP Basic credentials (RFC 7617), which only the health check takes.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderValue};
use sampler_oauth::{BasicCheck, Verdict};
use secrecy::{ExposeSecret, SecretString};

use crate::problem::{Problem, kinds};

/// Asks a client for credentials.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"cf\"");

/// Seconds after which the token server may be asked again.
const RETRY_AFTER: u64 = 2;

/// Whether a request shows credentials that will do.
///
/// # Errors
/// 401 where it does not, 503 where that cannot be said.
pub(crate) async fn credentials(headers: &HeaderMap, check: &BasicCheck) -> Result<(), Problem> {
    let Some((id, secret)) = shown(headers) else {
        return Err(refused("Credentials are needed here, as HTTP Basic."));
    };
    match check.check(&id, secret).await {
        Verdict::Yes => Ok(()),
        Verdict::No => Err(refused(
            "The token server does not take these credentials for it.",
        )),
        Verdict::Unknown => {
            let detail = "The token server could not be asked about the credentials.";
            let problem = Problem::new(&kinds::TOKEN_SERVER_UNAVAILABLE, detail);
            Err(problem.retry_after(RETRY_AFTER))
        }
    }
}

fn refused(detail: &str) -> Problem {
    Problem::new(&kinds::UNAUTHORIZED, detail).header(header::WWW_AUTHENTICATE, CHALLENGE)
}

/// The id and the secret of the one `Authorization` header.
fn shown(headers: &HeaderMap) -> Option<(String, SecretString)> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = STANDARD.decode(encoded.trim()).ok()?;
    let text = SecretString::from(String::from_utf8(bytes).ok()?);
    let (id, secret) = text.expose_secret().split_once(':')?;
    (!id.is_empty() && !id.contains('\0')).then(|| (id.to_owned(), secret.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Option<(String, String)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        shown(&headers).map(|(id, secret)| (id, secret.expose_secret().to_owned()))
    }

    #[test]
    fn reads_an_id_and_a_secret_with_colons_in_it() {
        let encoded = STANDARD.encode("id:a:b");
        let expected = Some(("id".to_owned(), "a:b".to_owned()));
        assert_eq!(read(&[&format!("Basic {encoded}")]), expected);
        assert_eq!(read(&[&format!("bAsIc  {encoded}")]), expected);
    }

    #[test]
    fn anything_else_is_none() {
        let encoded = STANDARD.encode("id:secret");
        let none = STANDARD.encode("nothing");
        let empty = STANDARD.encode(":secret");
        let zero = STANDARD.encode("i\0d:secret");
        for value in [
            "Basic",
            "Basic %%%",
            &format!("Bearer {encoded}"),
            &format!("Basic {none}"),
            &format!("Basic {empty}"),
            &format!("Basic {zero}"),
        ] {
            assert_eq!(read(&[value]), None, "{value}");
        }
        let basic = format!("Basic {encoded}");
        assert_eq!(read(&[&basic, &basic]), None, "two headers");
        assert_eq!(read(&[]), None);
    }
}
