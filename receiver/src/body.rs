//! From a request to its body: media type, coding, size, memory, time.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sampler_service::problem::Problem;

use crate::Caller;
use crate::admission::Turn;
use crate::problems::{MALFORMED_JSON, PAYLOAD_TOO_LARGE, REQUEST_TIMEOUT, UNSUPPORTED_MEDIA_TYPE};

/// Bytes that are decompressed at a time.
const DECOMPRESSED_AT_A_TIME: usize = 8 << 10;

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body up to this size takes no permits: what connections take bounds those.
const SMALL_BODY: usize = 2 << 10;

/// The media type of one event, one mapping or an operator's action.
pub(crate) const JSON: &str = "application/json";

/// Reads the body of a request that is one event, one mapping or an action in JSON, up to `max` bytes: 415 for another
/// media type.
pub(crate) async fn read(
    request: Request<Body>,
    caller: &Caller,
    max: usize,
) -> Result<Received, Problem> {
    media_type(request.headers(), &[JSON])?;
    read_up_to(request, caller, max).await
}

/// Reads the body of a request, up to `max` bytes, and unpacks it.
///
/// # Errors
/// 415 for another coding than gzip, 413 for too much, 408 for too slow, 400 for what cannot be
/// decompressed, 429 where the client's bodies take all the memory that it may have.
pub(crate) async fn read_up_to(
    request: Request<Body>,
    caller: &Caller,
    max: usize,
) -> Result<Received, Problem> {
    let packed = is_gzip(request.headers())?;
    let length = only(request.headers(), header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.parse().ok());
    if length.is_some_and(|length: u64| length > max as u64) {
        return Err(too_large(max));
    }
    let receiving = Receiving { caller, max };
    let arriving = receiving.collect(request.into_body());
    let arrived = tokio::time::timeout(BODY_TIMEOUT, arriving).await;
    let arrived = arrived.unwrap_or_else(|_| {
        let detail = "The body did not arrive within the time allowed for it.";
        Err(Problem::new(&REQUEST_TIMEOUT, detail))
    })?;
    if packed {
        return receiving.unpack(&arrived.bytes);
    }
    Ok(arrived)
}

/// Which of the media types that are accepted the body has: 415 for any other, with a list of these. The one
/// parameter of theirs that means anything is a charset.
pub(crate) fn media_type(
    headers: &HeaderMap,
    accepted: &[&'static str],
) -> Result<&'static str, Problem> {
    let given = only(headers, header::CONTENT_TYPE).and_then(|given| {
        let (essence, parameters) = given.split_once(';').unwrap_or((given, ""));
        let is_utf_8 = parameters.split(';').all(is_no_other_charset);
        let mut accepted = accepted.iter().copied();
        accepted.find(|it| is_utf_8 && it.eq_ignore_ascii_case(essence.trim()))
    });
    given.ok_or_else(|| {
        let list = accepted.join(", ");
        let any = if accepted.len() > 1 { "one of " } else { "" };
        let detail = format!("The body must be {any}{list}, in UTF-8, and say so in Content-Type.");
        let accept = HeaderValue::from_str(&list).expect("media types are plain words");
        Problem::new(&UNSUPPORTED_MEDIA_TYPE, detail).header(header::ACCEPT, accept)
    })
}

fn is_no_other_charset(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return true;
    };
    let value = value.trim().trim_matches('"');
    !name.trim().eq_ignore_ascii_case("charset") || value.eq_ignore_ascii_case("utf-8")
}

/// The text of a header that is there once.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none());
    value.and_then(|value| value.to_str().ok())
}

/// Whether the body is compressed; any coding but gzip is refused.
fn is_gzip(headers: &HeaderMap) -> Result<bool, Problem> {
    if !headers.contains_key(header::CONTENT_ENCODING) {
        return Ok(false);
    }
    let coding = only(headers, header::CONTENT_ENCODING);
    match coding
        .map(|coding| coding.trim().to_ascii_lowercase())
        .as_deref()
    {
        Some("gzip" | "x-gzip") => Ok(true),
        Some("identity" | "") => Ok(false),
        _ => {
            let detail = "The body's Content-Encoding must be gzip, or there must be none.";
            Err(Problem::new(&UNSUPPORTED_MEDIA_TYPE, detail)
                .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip")))
        }
    }
}

/// A body in memory, and the permits for that.
#[derive(Default)]
pub(crate) struct Received {
    bytes: Vec<u8>,
    held: Vec<Turn>,
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Where a body is received, for whom, and how many bytes it may have.
struct Receiving<'r> {
    caller: &'r Caller,
    max: usize,
}

impl Receiving<'_> {
    async fn collect(&self, body: Body) -> Result<Received, Problem> {
        let mut arrived = Received::default();
        let mut body = Limited::new(body, self.max);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return too_large(self.max);
                }
                // JSON that ends early would be answered in the same way.
                Problem::new(&MALFORMED_JSON, "The body was cut short.")
            })?;
            // Trailers say nothing that counts.
            if let Ok(data) = frame.into_data() {
                self.extend(&mut arrived, &data)?;
            }
        }
        Ok(arrived)
    }

    fn unpack(&self, packed: &[u8]) -> Result<Received, Problem> {
        let mut unpacked = Received::default();
        let mut reader = MultiGzDecoder::new(packed);
        let mut buffer = [0; DECOMPRESSED_AT_A_TIME];
        loop {
            // Bytes that are not gzip are for the provider to correct, as bytes that are not JSON are.
            let read = reader.read(&mut buffer).map_err(|_| {
                let detail =
                    "The body is not what its Content-Encoding says: it cannot be decompressed.";
                Problem::new(&MALFORMED_JSON, detail)
            })?;
            if read == 0 {
                return Ok(unpacked);
            }
            if unpacked.bytes.len() + read > self.max {
                return Err(too_large(self.max));
            }
            self.extend(&mut unpacked, &buffer[..read])?;
        }
    }

    /// Adds what has arrived. It is copied: the buffer of the connection is free for what follows.
    fn extend(&self, body: &mut Received, bytes: &[u8]) -> Result<(), Problem> {
        let (length, capacity) = (body.bytes.len() + bytes.len(), body.bytes.capacity());
        if length > capacity {
            let wanted = (2 * capacity).min(self.max).max(length);
            if wanted > SMALL_BODY {
                let free = if capacity > SMALL_BODY { capacity } else { 0 };
                let Caller { receiver, .. } = self.caller;
                let more = receiver.admission.hold(self.caller.client(), wanted - free);
                let more = more.map_err(|reason| receiver.turned_away(reason));
                body.held.push(more?);
            }
            body.bytes.reserve_exact(wanted - body.bytes.len());
        }
        body.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

pub(crate) fn too_large(max: usize) -> Problem {
    let detail = format!("The body is larger than {max} bytes, compressed or decompressed.");
    Problem::new(&PAYLOAD_TOO_LARGE, detail)
}
