//! Media type, coding, size and time of bodies.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io::{Error, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::event::{start, stop, valid};
use crate::world::{ALL, HOUR, MAPPINGS, NOW, START, STOP, World, request};

const SMALL: usize = 4096;

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A start event that takes so many bytes.
fn start_of(length: usize) -> String {
    let event = start(NOW).to_string();
    let padding = " ".repeat(length - event.len());
    event + &padding
}

/// The same request with a header set.
pub(crate) fn headed(
    mut request: Request<Body>,
    name: &'static str,
    value: &[u8],
) -> Request<Body> {
    let value = HeaderValue::from_bytes(value).unwrap();
    let name = HeaderName::from_static(name);
    request.headers_mut().insert(name, value);
    request
}

pub(crate) fn zipped(path: &str, body: impl Into<Body>) -> Request<Body> {
    headed(request(path, body), "content-encoding", b"gzip")
}

/// A header of a body, and a value of it.
type Header<'h> = (&'static str, &'h [u8]);

const ACCEPTED: &[Header<'_>] = &[
    ("content-type", b"application/json"),
    ("content-type", b"application/json;charset=utf-8"),
    ("content-type", b"Application/JSON; Charset=Utf-8"),
    ("content-type", b"application/json; charset=\"utf-8\""),
    ("content-type", b"application/json; a=x; charset=utf-8"),
    ("content-encoding", b"identity"),
    ("content-encoding", b"gzip"),
    ("content-encoding", b"GZIP"),
    ("content-encoding", b"x-gzip"),
];

const REFUSED: &[Header<'_>] = &[
    ("content-type", b""),
    ("content-type", b"text/plain"),
    ("content-type", b"application/x-www-form-urlencoded"),
    ("content-type", b"application/problem+json"),
    ("content-type", b"application/jsonx"),
    ("content-type", b"application/json; charset=utf-16"),
    ("content-type", b"application/json, text/plain"),
    ("content-type", b"application/\xff"),
    ("content-encoding", b"br"),
    ("content-encoding", b"gzip, gzip"),
    ("content-encoding", b"\xff"),
];

#[tokio::test]
async fn json_in_utf_8_is_accepted_plain_or_as_gzip_however_that_is_written() {
    for (name, value) in ACCEPTED.iter().copied() {
        let world = World::new();
        let packed = name == "content-encoding" && value != b"identity";
        for path in [START, STOP] {
            let body = valid(path).to_string().into_bytes();
            let body = if packed { gzip(&body) } else { body };
            let answer = world.send(headed(request(path, body), name, value)).await;
            assert_eq!(answer.status, 201, "{name} {}", value.escape_ascii());
            answer.is_created();
        }
        world.assert_kept(&[(&start(NOW), Some(&stop(NOW)))]);
    }
    let world = World::new();
    let body = start(NOW).to_string();
    let (head, tail) = body.as_bytes().split_at(50);
    let two_members = [gzip(head), gzip(tail)].concat();
    world.send(zipped(START, two_members)).await.is_created();
    world.assert_kept(&[(&start(NOW), None)]);
}

#[tokio::test]
async fn other_media_types_and_codings_are_refused_with_what_is_accepted() {
    let world = World::new();
    for path in ALL {
        let plain = || request(path, valid(path).to_string());
        let refuse = async |request: Request<Body>, name: &str| {
            let said = format!("{path} {:?}", request.headers());
            let answer = world.send(request).await;
            assert_eq!(answer.status, 415, "{said}");
            answer.names(415, "unsupported-media-type", &[]);
            let accepted = ["accept", "accept-encoding"].map(|name| answer.header(name));
            let expected = if name == "content-type" {
                [Some("application/json"), None]
            } else {
                [None, Some("gzip")]
            };
            assert_eq!(accepted, expected, "{said}");
        };
        for (name, value) in REFUSED.iter().copied() {
            refuse(headed(plain(), name, value), name).await;
        }
        let mut none = plain();
        none.headers_mut().remove("content-type");
        refuse(none, "content-type").await;
        let json = HeaderValue::from_static("application/json");
        let mut two = plain();
        two.headers_mut().append("content-type", json);
        refuse(two, "content-type").await;
        let mut two = zipped(path, gzip(b"{}"));
        let coding = HeaderValue::from_static("gzip");
        two.headers_mut().append("content-encoding", coding);
        refuse(two, "content-encoding").await;
    }
    assert_eq!(world.store.calls(), 0);
}

#[tokio::test]
async fn a_broken_gzip_body_is_refused() {
    let world = World::new();
    for path in ALL {
        let plain = valid(path).to_string().into_bytes();
        let packed = gzip(&plain);
        let mut of_another_sum = packed.clone();
        of_another_sum[packed.len() - 8] ^= 1;
        let (cut, trailed) = (&packed[..packed.len() - 1], [&packed[..], b"x"].concat());
        let (twice, empty, half) = (gzip(&packed), gzip(b""), gzip(b"{"));
        let broken = [cut, &of_another_sum, &trailed, &plain];
        for broken in broken.iter().chain(&[&twice[..], &[], &empty, &half]) {
            let answer = world.send(zipped(path, broken.to_vec())).await;
            answer.names(400, "malformed-json", &[]);
        }
    }
    assert_eq!(world.store.calls(), 0);
}

async fn refuse_size(world: &World, request: Request<Body>) {
    let answer = world.send(request).await;
    answer.names(413, "payload-too-large", &[]);
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_at_it_is_accepted() {
    let small = || World::with(|options| options.settings.limits.payload = SMALL);
    let declared = |length: &str, body: String| {
        headed(request(START, body), "content-length", length.as_bytes())
    };
    let padded = |path| valid(path).to_string() + &" ".repeat(SMALL);
    let packed = |bytes: Vec<u8>| {
        assert!(bytes.len() < SMALL, "{}", bytes.len());
        zipped(START, bytes)
    };
    // Small once it is unpacked, but too large as it is sent.
    let event = gzip(start(NOW).to_string().as_bytes());
    let trailed = [event, gzip(b"").repeat(SMALL / 20 + 1)].concat();
    let mut refused = vec![
        // No length is declared here: it is as if it came in chunks.
        request(START, start_of(SMALL + 1)),
        declared("4097", start_of(SMALL + 1)),
        declared("10", start_of(SMALL + 1)),
        declared("18446744073709551615", start_of(SMALL)),
        request(STOP, padded(STOP)),
        request(MAPPINGS, padded(MAPPINGS)),
        packed(gzip(start_of(SMALL + 1).as_bytes())),
        packed(gzip(&[b' '; 64]).repeat(100)),
        zipped(START, trailed),
    ];
    let bomb = gzip(&vec![b' '; 500 * SMALL]);
    refused.extend(ALL.map(|path| zipped(path, bomb.clone())));
    for request in refused {
        refuse_size(&small(), request).await;
    }
    for accepted in [
        request(START, start_of(SMALL)),
        declared("4096", start_of(SMALL)),
        packed(gzip(start_of(SMALL).as_bytes())),
    ] {
        let world = small();
        world.send(accepted).await.is_created();
        world.assert_kept(&[(&start(NOW), None)]);
    }
}

#[tokio::test]
async fn a_body_that_says_itself_that_it_is_too_large_is_not_read() {
    let touched = Arc::new(AtomicBool::new(false));
    let touch = Arc::clone(&touched);
    let body = Full::new(Bytes::from(start(NOW).to_string())).map_frame(move |frame| {
        touch.store(true, Ordering::Relaxed);
        frame
    });
    let event = request(START, Body::new(body));
    refuse_size(&World::new(), headed(event, "content-length", b"512001")).await;
    assert!(!touched.load(Ordering::Relaxed));
}

/// The most memory that this process has taken so far, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_bomb_is_not_unpacked_beyond_the_limit() {
    let bomb = gzip(&vec![b' '; 1024 * 1024]).repeat(480);
    assert!(bomb.len() < 512_000, "{}", bomb.len());
    let before = peak();
    refuse_size(&World::new(), zipped(START, bomb)).await;
    // Other tests run beside this one, but none of them takes half as much as the bomb would.
    let taken = peak() - before;
    assert!(taken < 240 * 1024, "{taken} KiB");
}

/// A body of which these bytes come, and then what `rest` waits for.
fn body_with(
    bytes: &str,
    rest: impl Future<Output = Option<Result<HeaderMap, Error>>> + Send + 'static,
) -> Body {
    let bytes = Full::new(Bytes::from(bytes.to_owned()));
    let bytes = bytes.map_err(|never: Infallible| match never {});
    Body::new(bytes.with_trailers(rest))
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused() {
    let world = World::new();
    for path in ALL {
        let reset = async { Some(Err(Error::other("connection reset"))) };
        let body = body_with(&valid(path).to_string(), reset);
        let answer = world.send(request(path, body)).await;
        answer.names(400, "malformed-json", &[]);
    }
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_given_up_and_its_place_is_free_again() {
    let world = World::with(|options| options.settings.limits.inflight = Some(1));
    for path in ALL {
        for bytes in ["", &valid(path).to_string()[..20], &valid(path).to_string()] {
            for coding in [&b"identity"[..], b"gzip"] {
                let stalled = request(path, body_with(bytes, pending()));
                let began = Instant::now();
                let stalled = headed(stalled, "content-encoding", coding);
                let answer = world.send(stalled).await;
                answer.names(408, "request-timeout", &[]);
                assert_eq!(began.elapsed(), Duration::from_secs(30));
            }
        }
    }
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
    world.start(&start(NOW)).await.is_created();
}

/// Whatever is sent: no panic and no answer 5xx. `PROPTEST_CASES` says how often.
#[test]
fn whatever_is_sent_is_refused_or_kept() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let flips = prop::collection::vec((any::<Index>(), any::<u8>()), 1..4);
    let own = prop_oneof![
        Just(None),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Some)
    ];
    proptest!(|(own in own, flips in flips, packed in any::<bool>(), is_stop in any::<bool>())| {
        let (path, event) = if is_stop { (STOP, stop(NOW)) } else { (START, start(NOW)) };
        let mut bytes = own.unwrap_or_else(|| event.to_string().into_bytes());
        bytes = if packed { gzip(&bytes) } else { bytes };
        for (place, byte) in flips {
            let length = bytes.len().max(1);
            bytes.resize(length, 0);
            bytes[place.index(length)] = byte;
        }
        let sent = if packed { zipped(path, bytes) } else { request(path, bytes) };
        runtime.block_on(async {
            let world = World::new();
            world.start(&start(NOW - HOUR)).await.is_created();
            let answer = world.send(sent).await;
            assert!(answer.status < 500, "{answer:?}");
            if answer.status == 201 {
                answer.is_created();
            } else {
                answer.any_problem();
            }
            let kept = world.kept();
            let count = kept.len() + kept.iter().filter(|(_, stop)| stop.is_some()).count();
            assert_eq!(count, if answer.status == 201 { 2 } else { 1 }, "{kept:?}");
        });
    });
}
