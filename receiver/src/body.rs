//! From a request to its body: media type, coding, size, memory, time.

use std::io::Read;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sampler_service::problem::Problem;

use crate::Receiver;
use crate::admission::fair_queue::Client;
use crate::admission::{Charge, OverBudget, SMALL_BODY, TurnedAway};
use crate::problems;

/// Bytes that are decompressed at a time.
const DECOMPRESSED_AT_A_TIME: usize = 8 << 10;

/// A body in memory. What it takes is charged to its client.
pub(crate) struct Received {
    bytes: Vec<u8>,
    charge: Charge,
}

/// Reads the body of a request, and unpacks it.
///
/// # Errors
/// 415 for another media type or coding, 413 for too much, 408 for too slow, 400 for what cannot be
/// decompressed, 503 where the client's bodies take all the memory that it may have.
pub(crate) async fn read(
    request: Request<Body>,
    receiver: &Receiver,
    client: Client,
) -> Result<Received, Problem> {
    let max = receiver.options.limits.payload;
    check_media_type(request.headers())?;
    let compressed = is_gzip(request.headers())?;
    check_length(request.headers(), max)?;
    let arrived = collect(request.into_body(), receiver, client).await?;
    if compressed {
        decompress(&arrived.bytes, receiver, client)
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
            charge: receiver.admission.charge_body(client),
        }
    }

    /// Adds what has arrived. It is copied: the buffer of the connection is free for what follows.
    fn extend(&mut self, bytes: &[u8], max: usize) -> Result<(), OverBudget> {
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

/// Whether the body is compressed; any coding but gzip is refused.
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

async fn collect(body: Body, receiver: &Receiver, client: Client) -> Result<Received, Problem> {
    let limits = &receiver.options.limits;
    let reading = async {
        let mut arrived = Received::new(receiver, client);
        let mut body = Limited::new(body, limits.payload);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return too_large(limits.payload);
                }
                // The connection broke off, or its chunks are not valid. JSON that ends early would
                // be answered in the same way.
                let detail = "The body was cut short.";
                Problem::new(&problems::MALFORMED_JSON, detail)
            })?;
            // Trailers say nothing that counts.
            if let Ok(data) = frame.into_data() {
                let extended = arrived.extend(&data, limits.payload);
                extended.map_err(|OverBudget| receiver.turned_away(TurnedAway::Memory))?;
            }
        }
        Ok(arrived)
    };
    let read = tokio::time::timeout(limits.body_timeout, reading).await;
    read.unwrap_or_else(|_| {
        let detail = "The body did not arrive within the time allowed for it.";
        Err(Problem::new(&problems::REQUEST_TIMEOUT, detail))
    })
}

fn decompress(compressed: &[u8], receiver: &Receiver, client: Client) -> Result<Received, Problem> {
    let max = receiver.options.limits.payload;
    let mut decompressed = Received::new(receiver, client);
    let mut reader = MultiGzDecoder::new(compressed);
    let mut buffer = [0; DECOMPRESSED_AT_A_TIME];
    loop {
        // Bytes that are not gzip are for the provider to correct, as bytes that are not JSON are.
        let Ok(read) = reader.read(&mut buffer) else {
            let detail =
                "The body is not what its Content-Encoding says: it cannot be decompressed.";
            return Err(Problem::new(&problems::MALFORMED_JSON, detail));
        };
        let bytes = &buffer[..read];
        if bytes.is_empty() {
            return Ok(decompressed);
        }
        if decompressed.bytes.len() + bytes.len() > max {
            return Err(too_large(max));
        }
        let extended = decompressed.extend(bytes, max);
        extended.map_err(|OverBudget| receiver.turned_away(TurnedAway::Memory))?;
    }
}

fn too_large(max: usize) -> Problem {
    let detail = format!("The body is larger than {max} bytes, compressed or decompressed.");
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
}
