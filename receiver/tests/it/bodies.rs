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
use serde_json::json;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::event::{mapping, start, stop, with};
use crate::world::{ALL, MAPPINGS, NOW, START, STOP, World, request};

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
fn headed(mut request: Request<Body>, name: &'static str, value: &[u8]) -> Request<Body> {
    let value = HeaderValue::from_bytes(value).unwrap();
    let name = HeaderName::from_static(name);
    request.headers_mut().insert(name, value);
    request
}

fn zipped(path: &str, body: impl Into<Body>) -> Request<Body> {
    headed(request(path, body), "content-encoding", b"gzip")
}

fn body_of(path: &str) -> String {
    match path {
        START => start(NOW).to_string(),
        STOP => stop(NOW).to_string(),
        _ => mapping().to_string(),
    }
}

#[tokio::test]
async fn json_in_utf_8_is_taken_however_its_type_is_written() {
    let written = [
        "application/json",
        "application/json;charset=utf-8",
        "application/json; charset=UTF-8",
        "Application/JSON; Charset=Utf-8",
        "application/json; charset=\"utf-8\"",
        "application/json ; charset=utf-8",
        "application/json;",
        "application/json; profile=x; charset=utf-8",
    ];
    for media_type in written {
        let world = World::new();
        let event = request(START, body_of(START));
        let answer = world
            .send(headed(event, "content-type", media_type.as_bytes()))
            .await;
        assert_eq!(answer.status, 201, "{media_type}");
        answer.is_created();
        world.assert_kept(&[(&start(NOW), None)]);
    }
}

#[tokio::test]
async fn another_media_type_is_refused() {
    let written: [&[u8]; 13] = [
        b"",
        b"text/plain",
        b"text/json",
        b"application/x-www-form-urlencoded",
        b"json",
        b"application/problem+json",
        b"application/json+x",
        b"application/jsonx",
        b"*/*",
        b"application/json; charset=iso-8859-1",
        b"application/json; charset=utf-16",
        b"application/json, text/plain",
        b"application/\xff",
    ];
    let world = World::new();
    for path in ALL {
        for media_type in written {
            let event = headed(request(path, body_of(path)), "content-type", media_type);
            let answer = world.send(event).await;
            answer.names(415, "unsupported-media-type", &[]);
            assert_eq!(answer.header("accept"), Some("application/json"));
        }
        let mut none = request(path, body_of(path));
        none.headers_mut().remove("content-type");
        let answer = world.send(none).await;
        answer.names(415, "unsupported-media-type", &[]);
        let mut two = request(path, body_of(path));
        let json = HeaderValue::from_static("application/json");
        two.headers_mut().append("content-type", json);
        let answer = world.send(two).await;
        answer.names(415, "unsupported-media-type", &[]);
    }
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_gzip_body_is_taken() {
    for coding in ["gzip", "GZIP", "x-gzip"] {
        let world = World::new();
        let event = request(START, gzip(body_of(START).as_bytes()));
        let answer = world
            .send(headed(event, "content-encoding", coding.as_bytes()))
            .await;
        answer.is_created();
        let end = zipped(STOP, gzip(body_of(STOP).as_bytes()));
        world.send(end).await.is_created();
        world.assert_kept(&[(&start(NOW), Some(&stop(NOW)))]);
    }
    let world = World::new();
    let body = body_of(START);
    let (head, tail) = body.as_bytes().split_at(50);
    let two_members = [gzip(head), gzip(tail)].concat();
    world.send(zipped(START, two_members)).await.is_created();
    world.assert_kept(&[(&start(NOW), None)]);
    let plain = World::new();
    let event = headed(request(START, body), "content-encoding", b"identity");
    plain.send(event).await.is_created();
    plain.assert_kept(&[(&start(NOW), None)]);
}

#[tokio::test]
async fn a_broken_gzip_body_is_refused() {
    for path in ALL {
        let packed = gzip(body_of(path).as_bytes());
        let cut = packed[..packed.len() - 1].to_vec();
        let mut of_another_sum = packed.clone();
        let sum = packed.len() - 8;
        of_another_sum[sum] ^= 1;
        let trailed = [&packed[..], b"x"].concat();
        let plain = body_of(path).into_bytes();
        let twice = gzip(&packed);
        for broken in [
            cut,
            of_another_sum,
            trailed,
            plain,
            twice,
            vec![],
            gzip(b""),
            gzip(b"{"),
        ] {
            let world = World::new();
            let answer = world.send(zipped(path, broken)).await;
            answer.names(400, "malformed-json", &[]);
            assert_eq!(world.store.calls(), 0);
            world.assert_kept(&[]);
        }
    }
}

#[tokio::test]
async fn another_coding_is_refused() {
    let codings: [&[u8]; 7] = [
        b"br",
        b"deflate",
        b"zstd",
        b"gzip, gzip",
        b"gzip, br",
        b"gzipp",
        b"\xff",
    ];
    let world = World::new();
    for path in ALL {
        let refuse = async |request| {
            let answer = world.send(request).await;
            answer.names(415, "unsupported-media-type", &[]);
            assert_eq!(answer.header("accept-encoding"), Some("gzip"));
        };
        for coding in codings {
            refuse(headed(
                request(path, body_of(path)),
                "content-encoding",
                coding,
            ))
            .await;
        }
        let mut two = zipped(path, gzip(body_of(path).as_bytes()));
        let gzip = HeaderValue::from_static("gzip");
        two.headers_mut().append("content-encoding", gzip);
        refuse(two).await;
    }
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
}

async fn refuse_size(world: &World, request: Request<Body>) {
    let answer = world.send(request).await;
    answer.names(413, "payload-too-large", &[]);
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_at_it_is_taken() {
    let small = || World::with(|options| options.settings.limits.payload = SMALL);
    // No length is declared here: it is as if it came in chunks.
    refuse_size(&small(), request(START, start_of(SMALL + 1))).await;
    let declared = |length: &str, body: String| {
        headed(request(START, body), "content-length", length.as_bytes())
    };
    refuse_size(&small(), declared("4097", start_of(SMALL + 1))).await;
    refuse_size(&small(), declared("10", start_of(SMALL + 1))).await;
    refuse_size(&small(), declared("18446744073709551615", start_of(SMALL))).await;
    for path in [STOP, MAPPINGS] {
        let body = body_of(path) + &" ".repeat(SMALL);
        refuse_size(&small(), request(path, body)).await;
    }
    for taken in [
        request(START, start_of(SMALL)),
        declared("4096", start_of(SMALL)),
    ] {
        let world = small();
        world.send(taken).await.is_created();
        world.assert_kept(&[(&start(NOW), None)]);
    }
}

#[tokio::test]
async fn a_body_that_says_itself_that_it_is_too_large_is_not_read() {
    let touched = Arc::new(AtomicBool::new(false));
    let touch = Arc::clone(&touched);
    let body = Full::new(Bytes::from(body_of(START))).map_frame(move |frame| {
        touch.store(true, Ordering::Relaxed);
        frame
    });
    let event = request(START, Body::new(body));
    refuse_size(&World::new(), headed(event, "content-length", b"512001")).await;
    assert!(!touched.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_gzip_body_that_grows_over_the_limit_is_refused() {
    let small = || World::with(|options| options.settings.limits.payload = SMALL);
    let over = gzip(start_of(SMALL + 1).as_bytes());
    assert!(over.len() < SMALL);
    refuse_size(&small(), zipped(START, over)).await;
    let bomb = gzip(&vec![b' '; 500 * SMALL]);
    assert!(bomb.len() < SMALL, "{}", bomb.len());
    for path in ALL {
        refuse_size(&small(), zipped(path, bomb.clone())).await;
    }
    let many = gzip(&[b' '; 64]).repeat(100);
    assert!(many.len() < SMALL);
    refuse_size(&small(), zipped(START, many)).await;
    // Small once it is unpacked, but too large as it is sent.
    let packed = gzip(body_of(START).as_bytes());
    let empty = gzip(b"").repeat(SMALL / 20 + 1);
    refuse_size(&small(), zipped(START, [packed, empty].concat())).await;
    let world = small();
    let at_limit = gzip(start_of(SMALL).as_bytes());
    world.send(zipped(START, at_limit)).await.is_created();
    world.assert_kept(&[(&start(NOW), None)]);
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

#[tokio::test]
async fn half_a_megabyte_of_measures_is_taken() {
    let world = World::new();
    let measures: Vec<_> = (0..12_000)
        .map(|number| json!({"measure": format!("m{number}"), "quantity": number}))
        .collect();
    let event = with(&start(NOW), "measured_usage", measures);
    assert!((400_000..512_000).contains(&event.to_string().len()));
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
}

/// A body of which these bytes come, and then what `rest` waits for.
fn body_with(
    bytes: &str,
    rest: impl Future<Output = Option<Result<HeaderMap, Error>>> + Send + 'static,
) -> Body {
    let bytes = Full::new(Bytes::from(bytes.to_owned()));
    Body::new(
        bytes
            .map_err(|never: Infallible| match never {})
            .with_trailers(rest),
    )
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused() {
    let world = World::new();
    for path in ALL {
        let reset = async { Some(Err(Error::other("connection reset"))) };
        let answer = world
            .send(request(path, body_with(&body_of(path), reset)))
            .await;
        answer.names(400, "malformed-json", &[]);
    }
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_given_up_and_its_place_is_free_again() {
    let world = World::with(|options| options.settings.limits.inflight = Some(1));
    for path in ALL {
        for bytes in ["", &body_of(path)[..20], &body_of(path)] {
            for coding in [&b"identity"[..], b"gzip"] {
                let stalled = request(path, body_with(bytes, pending()));
                let began = Instant::now();
                let answer = world
                    .send(headed(stalled, "content-encoding", coding))
                    .await;
                answer.names(408, "request-timeout", &[]);
                assert_eq!(began.elapsed(), Duration::from_secs(30));
            }
        }
    }
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
    world.start(&start(NOW)).await.is_created();
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_that_comes_in_time_is_taken() {
    let world = World::new();
    let slow = async {
        tokio::time::sleep(Duration::from_millis(29_999)).await;
        None
    };
    let answer: Answer = world
        .send(request(START, body_with(&body_of(START), slow)))
        .await;
    answer.is_created();
    world.assert_kept(&[(&start(NOW), None)]);
}
