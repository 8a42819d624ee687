//! Upstreams that would take the token, the memory or the time of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use flate2::Compression;
use flate2::write::GzEncoder;
use sampler_upstream::{
    Answer, ClientOptions, CloudEvents, HttpCollector, LookupAnswer, Posted, Upstream,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{NOW, cloud_events, find, options, serve, usage};

const TOKEN: &str = "the.token.of-the-upstream";

/// An upstream of CloudEvents at this address, with a token of its own.
fn with_token(options: &ClientOptions) -> CloudEvents {
    cloud_events(options).with_token(Some(&TOKEN.into()))
}

/// The answers of both kinds of upstream to a post.
async fn post_to_both(options: &ClientOptions) -> [Posted; 2] {
    let collector = HttpCollector::new(options).unwrap();
    let usage = usage();
    [
        collector.post(&usage, NOW).await,
        with_token(options).post(&usage, NOW).await,
    ]
}

#[track_caller]
fn assert_says_nothing(answer: &LookupAnswer) {
    let says_nothing = matches!(
        answer,
        LookupAnswer::Mismatch { .. } | LookupAnswer::Failed { .. }
    );
    assert!(says_nothing, "{answer:?}");
}

#[track_caller]
fn assert_tries_again(posted: &Posted) {
    let is_again = matches!(posted.answer, Answer::TryAgain { .. });
    assert!(is_again, "{posted:?}");
}

/// Whatever the status: neither the usage nor the token goes anywhere else.
#[tokio::test]
async fn an_upstream_that_redirects_to_another_host_gets_no_token_sent_there() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let other = Router::new().fallback(async move || {
        seen.fetch_add(1, Ordering::Relaxed);
        StatusCode::ACCEPTED
    });
    let other = serve(other).await.url;
    for status in [301, 302, 303, 307, 308] {
        let other = other.to_string();
        let away = Router::new().fallback(async move |headers: HeaderMap| {
            let is_ours = headers
                .get("authorization")
                .is_none_or(|token| token.to_str().unwrap() == format!("Bearer {TOKEN}"));
            assert!(is_ours, "{headers:?}");
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("location", other)])
        });
        let options = serve(away).await;
        for posted in post_to_both(&options).await {
            assert_tries_again(&posted);
        }
        assert_says_nothing(&find(&with_token(&options)).await.answer);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// Nothing is decompressed: a compressed body does not count as an answer.
#[tokio::test]
async fn what_is_compressed_is_not_unpacked() {
    let bomb = {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        let mut spaces = std::io::Read::take(std::io::repeat(b' '), 64 << 20);
        std::io::copy(&mut spaces, &mut packer).unwrap();
        packer.finish().unwrap()
    };
    let bomb = Router::new().fallback(async move |headers: HeaderMap| {
        assert_eq!(headers.get("accept-encoding"), None);
        ([("content-encoding", "gzip")], bomb).into_response()
    });
    let options = serve(bomb).await;
    let answer = find(&with_token(&options)).await.answer;
    let is_mismatch = matches!(answer, LookupAnswer::Mismatch { .. });
    assert!(is_mismatch, "{answer:?}");
}

/// Sends this, and then the same again and again, as long as anybody listens. It leaves the processor to the
/// client in between.
async fn endless(begin: &'static str, again: String) -> ClientOptions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let again = again.clone();
            tokio::spawn(async move {
                read_head(&mut stream).await;
                let mut going = stream.write_all(begin.as_bytes()).await;
                while going.is_ok() {
                    going = stream.write_all(again.as_bytes()).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
    });
    options
}

async fn read_head(stream: &mut TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
        head.push(byte[0]);
    }
}

#[tokio::test]
async fn answers_without_end_end_in_time() {
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(65_536));
    for (begin, again) in [
        ("HTTP/1.1 202 Accepted\r\n", "x: y\r\n".repeat(1_000)),
        ("HTTP/1.1 202 Accepted\r\nx: ", "y".repeat(65_536)),
        ("", "HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000)),
        (
            "HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n",
            chunk.clone(),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            chunk,
        ),
    ] {
        let options = endless(begin, again).await;
        let began = Instant::now();
        let [collected, event] = post_to_both(&options).await;
        assert_tries_again(&collected);
        if !begin.starts_with("HTTP/1.1 200") {
            assert_tries_again(&event);
        }
        assert_says_nothing(&find(&with_token(&options)).await.answer);
        // Half a second each.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{begin:?}: {took:?}");
    }
}

#[tokio::test]
async fn an_answer_to_a_find_has_a_limit() {
    for (length, is_read) in [(2 << 20, true), ((2 << 20) + 1, false)] {
        let answer = format!("[{}]", " ".repeat(length - 2));
        let router = Router::new().fallback(async move || answer);
        let answer = find(&with_token(&serve(router).await)).await.answer;
        assert_eq!(answer == LookupAnswer::NotFound, is_read, "{answer:?}");
    }
}
