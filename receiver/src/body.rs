//! From a request to its body: media type, coding, size, time.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sampler_service::problem::Problem;

use crate::Options;
use crate::problems;

/// Reads the body of a request, and unpacks it.
///
/// # Errors
/// 415 for another media type or coding, 413 for too much, 408 for too slow, 400 for what cannot be
/// unpacked.
pub(crate) async fn read(request: Request<Body>, options: &Options) -> Result<Bytes, Problem> {
    check_media_type(request.headers())?;
    let packed = is_gzip(request.headers())?;
    check_length(request.headers(), options.limits.payload)?;
    let bytes = collect(
        request.into_body(),
        options.limits.payload,
        options.limits.body_timeout,
    )
    .await?;
    if packed {
        Ok(unpack(&bytes, options.limits.payload)?.into())
    } else {
        Ok(bytes)
    }
}

/// Only `application/json` is taken; its one parameter that means anything is a charset.
fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = || {
        let detail = "The body must be application/json, in UTF-8, and say so in Content-Type.";
        Problem::new(&problems::UNSUPPORTED_MEDIA_TYPE, detail)
            .header(header::ACCEPT, HeaderValue::from_static("application/json"))
    };
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(refused());
    };
    if value == mime::APPLICATION_JSON.as_ref() {
        return Ok(());
    }
    let media_type = media_type_of(value).ok_or_else(refused)?;
    let is_utf8 = |charset: mime::Name<'_>| charset == mime::UTF_8;
    if media_type
        .essence_str()
        .eq_ignore_ascii_case("application/json")
        && media_type.get_param(mime::CHARSET).is_none_or(is_utf8)
    {
        Ok(())
    } else {
        Err(refused())
    }
}

/// Spaces may stand before the semicolon (RFC 9110, section 5.6.6), which the parser does not know.
fn media_type_of(value: &HeaderValue) -> Option<mime::Mime> {
    let text = value.to_str().ok()?;
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    format!("{};{parameters}", essence.trim_end()).parse().ok()
}

/// Whether the body is packed; any coding but gzip is refused.
fn is_gzip(headers: &HeaderMap) -> Result<bool, Problem> {
    let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
    let Some(value) = values.next() else {
        return Ok(false);
    };
    let coding = value.to_str().map(|text| text.trim().to_ascii_lowercase());
    match (coding.as_deref(), values.next()) {
        (Ok("gzip" | "x-gzip"), None) => Ok(true),
        (Ok("identity" | ""), None) => Ok(false),
        _ => {
            let detail = "The body's Content-Encoding must be gzip, or there must be none.";
            Err(Problem::new(&problems::UNSUPPORTED_MEDIA_TYPE, detail)
                .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip")))
        }
    }
}

/// Turns away what says itself that it is too large, without reading it.
fn check_length(headers: &HeaderMap, max: usize) -> Result<(), Problem> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    match length.and_then(|text| text.parse::<u64>().ok()) {
        Some(length) if length > max as u64 => Err(too_large(max)),
        _ => Ok(()),
    }
}

async fn collect(body: Body, max: usize, limit: Duration) -> Result<Bytes, Problem> {
    let reading = Limited::new(body, max).collect();
    match tokio::time::timeout(limit, reading).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(max)),
        Ok(Err(_)) => {
            let detail = "The body broke off before its end.";
            Err(Problem::new(&problems::MALFORMED_JSON, detail))
        }
        Err(_) => {
            let detail = "The body did not arrive within the time allowed for it.";
            Err(Problem::new(&problems::REQUEST_TIMEOUT, detail))
        }
    }
}

fn unpack(packed: &[u8], max: usize) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells that there is more.
    let mut reader = MultiGzDecoder::new(packed).take(max as u64 + 1);
    if reader.read_to_end(&mut bytes).is_err() {
        let detail = "The body is not what its Content-Encoding says: it cannot be unpacked.";
        return Err(Problem::new(&problems::MALFORMED_JSON, detail));
    }
    if bytes.len() > max {
        Err(too_large(max))
    } else {
        Ok(bytes)
    }
}

fn too_large(max: usize) -> Problem {
    let detail = format!("The body is larger than {max} bytes, packed or unpacked.");
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
}
