//! From a request to its body: media type, coding, size, memory, time.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sampler_service::problem::Problem;

use crate::Receiver;
use crate::admission::{Charge, Client, SMALL_BODY, TurnedAway};
use crate::problems;

/// Bytes that are decompressed at a time.
const DECOMPRESSED_AT_A_TIME: usize = 8 << 10;

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body in memory. Its bytes are charged to its client.
pub(crate) struct Received {
    bytes: Vec<u8>,
    charge: Charge,
}

/// The media type of one event, one mapping or an operator's action.
pub(crate) const JSON: &str = "application/json";

/// The media type of JSON, one value a line.
pub(crate) const NDJSON: &str = "application/x-ndjson";

/// Reads the body of a request that is one event, one mapping or an action in JSON.
///
/// # Errors
/// 415 for another media type, and those of [`read_up_to`].
pub(crate) async fn read(
    request: Request<Body>,
    receiver: &Receiver,
    client: Client,
) -> Result<Received, Problem> {
    media_type(request.headers(), &[JSON])?;
    read_up_to(request, receiver, client, receiver.settings.limits.payload).await
}

/// Reads the body of a request, up to `max` bytes, and unpacks it.
///
/// # Errors
/// 415 for another coding than gzip, 413 for too much, 408 for too slow, 400 for what cannot be
/// decompressed, 429 where the client's bodies take all the memory that it may have.
pub(crate) async fn read_up_to(
    request: Request<Body>,
    receiver: &Receiver,
    client: Client,
    max: usize,
) -> Result<Received, Problem> {
    let compressed = is_gzip(request.headers())?;
    check_length(request.headers(), max)?;
    let arrived = collect(request.into_body(), receiver, client, max).await?;
    if compressed {
        decompress(&arrived.bytes, receiver, client, max)
    } else {
        Ok(arrived)
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Received {
    fn new(receiver: &Receiver, client: Client) -> Self {
        Self {
            bytes: Vec::new(),
            charge: receiver.admission.bodies.charge(client),
        }
    }

    /// Adds what has arrived. It is copied: the buffer of the connection is free for what follows.
    fn extend(&mut self, bytes: &[u8], max: usize) -> Result<(), TurnedAway> {
        let (length, capacity) = (self.bytes.len() + bytes.len(), self.bytes.capacity());
        if length > capacity {
            let wanted = (2 * capacity).min(max).max(length);
            if wanted > SMALL_BODY {
                let charged = if capacity > SMALL_BODY { capacity } else { 0 };
                self.charge.grow(wanted - charged)?;
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Which of the media types that are accepted the body has. The one parameter of theirs that means
/// anything is a charset.
///
/// # Errors
/// 415 for any other, with a list of the accepted ones.
pub(crate) fn media_type(
    headers: &HeaderMap,
    accepted: &[&'static str],
) -> Result<&'static str, Problem> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(other_type(accepted));
    };
    if let Some(exact) = accepted.iter().find(|accepted| value == **accepted) {
        return Ok(exact);
    }
    let given = media_type_of(value).ok_or_else(|| other_type(accepted))?;
    let charset = given.get_param(mime::CHARSET);
    let found = accepted
        .iter()
        .find(|accepted| given.essence_str().eq_ignore_ascii_case(accepted))
        .filter(|_| charset.is_none_or(|charset| charset == mime::UTF_8));
    found.copied().ok_or_else(|| other_type(accepted))
}

fn other_type(accepted: &[&'static str]) -> Problem {
    let list = accepted.join(", ");
    let (any, list_of) = match accepted {
        [only] => ("", *only),
        _ => ("one of ", list.as_str()),
    };
    let detail = format!("The body must be {any}{list_of}, in UTF-8, and say so in Content-Type.");
    let accept = HeaderValue::from_str(&list).expect("media types are plain words");
    Problem::new(&problems::UNSUPPORTED_MEDIA_TYPE, detail).header(header::ACCEPT, accept)
}

/// Spaces may precede the semicolon (RFC 9110, section 5.6.6), which the parser does not know.
fn media_type_of(value: &HeaderValue) -> Option<mime::Mime> {
    let text = value.to_str().ok()?;
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    format!("{};{parameters}", essence.trim_end()).parse().ok()
}

/// Whether the body is compressed; any coding but gzip is refused.
pub(crate) fn is_gzip(headers: &HeaderMap) -> Result<bool, Problem> {
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

/// Refuses a body whose `Content-Length` is too large, without reading it.
fn check_length(headers: &HeaderMap, max: usize) -> Result<(), Problem> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    match length.and_then(|text| text.parse::<u64>().ok()) {
        Some(length) if length > max as u64 => Err(too_large(max)),
        _ => Ok(()),
    }
}

async fn collect(
    body: Body,
    receiver: &Receiver,
    client: Client,
    max: usize,
) -> Result<Received, Problem> {
    let reading = async {
        let mut arrived = Received::new(receiver, client);
        let mut body = Limited::new(body, max);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return too_large(max);
                }
                // The connection broke off, or its chunks are not valid. JSON that ends early would
                // be answered in the same way.
                cut_short()
            })?;
            // Trailers say nothing that counts.
            if let Ok(data) = frame.into_data() {
                let extended = arrived.extend(&data, max);
                extended.map_err(|reason| receiver.turned_away(reason))?;
            }
        }
        Ok(arrived)
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    read.unwrap_or_else(|_| Err(too_slow()))
}

pub(crate) fn too_slow() -> Problem {
    let detail = "The body did not arrive within the time allowed for it.";
    Problem::new(&problems::REQUEST_TIMEOUT, detail)
}

pub(crate) fn cut_short() -> Problem {
    Problem::new(&problems::MALFORMED_JSON, "The body was cut short.")
}

pub(crate) fn not_unpacked() -> Problem {
    let detail = "The body is not what its Content-Encoding says: it cannot be decompressed.";
    Problem::new(&problems::MALFORMED_JSON, detail)
}

fn decompress(
    compressed: &[u8],
    receiver: &Receiver,
    client: Client,
    max: usize,
) -> Result<Received, Problem> {
    let mut decompressed = Received::new(receiver, client);
    let mut reader = MultiGzDecoder::new(compressed);
    let mut buffer = [0; DECOMPRESSED_AT_A_TIME];
    loop {
        // Bytes that are not gzip are for the provider to correct, as bytes that are not JSON are.
        let Ok(read) = reader.read(&mut buffer) else {
            return Err(not_unpacked());
        };
        let bytes = &buffer[..read];
        if bytes.is_empty() {
            return Ok(decompressed);
        }
        if decompressed.bytes.len() + bytes.len() > max {
            return Err(too_large(max));
        }
        let extended = decompressed.extend(bytes, max);
        extended.map_err(|reason| receiver.turned_away(reason))?;
    }
}

pub(crate) fn too_large(max: usize) -> Problem {
    let detail = format!("The body is larger than {max} bytes, compressed or decompressed.");
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
}
