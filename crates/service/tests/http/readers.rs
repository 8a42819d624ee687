//! Clients that read their answers slowly, or not at all.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::{LARGE, LONG, PIECE, PIECES, limited, serve};

/// Bytes that a slow client reads at a time, and its pauses.
const SIP: usize = 2 << 20;
const PAUSE: Duration = Duration::from_millis(250);

/// A client that sends requests and reads no answer.
#[tokio::test]
async fn a_client_that_reads_nothing_gets_one_answer_at_a_time_and_is_cut_off() {
    let write = Duration::from_millis(500);
    let server = limited(|limits| limits.write = write).await;
    let mut client = server.connect().await;
    let (mut reading, mut writing) = client.0.split();
    let sending = async {
        let requests = "GET /large HTTP/1.1\r\nhost: test\r\n\r\n".repeat(100);
        while writing.write_all(requests.as_bytes()).await.is_ok() {}
    };
    timeout(LONG, sending).await.expect("the server closes");
    // No more answers were made than what the system's buffers took, and one.
    let made = server.large.load(Ordering::Relaxed);
    assert!(made < 64, "{made} answers of 1 MB each");
    let mut bytes = Vec::new();
    let _ = timeout(LONG, reading.read_to_end(&mut bytes))
        .await
        .expect("an end");
    assert!(bytes.len() < made << 20);
}

/// As a client that is slow, but reads on.
#[tokio::test]
async fn a_client_that_reads_slowly_gets_its_answer() {
    let server = serve().await;
    let mut client = server.connect().await;
    client.ask("/large").await;
    client.ask("/").await;
    let mut text = String::new();
    let mut bytes = vec![0; 64 << 10];
    while !text.ends_with("hello") {
        let read = timeout(LONG, client.0.read(&mut bytes))
            .await
            .unwrap()
            .unwrap();
        assert!(read > 0, "the server closed");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    assert!(text.len() > LARGE);
}

/// An answer that is made in pieces may be large: the limit holds for each of them.
#[tokio::test]
async fn a_client_that_reads_on_gets_an_answer_that_takes_longer_than_the_limit_of_a_piece() {
    let write = Duration::from_secs(2);
    let server = limited(|limits| limits.write = write).await;
    let mut client = server.connect_with_small_buffer().await;
    client.ask("/pieces").await;
    let began = Instant::now();
    for sip in 0..PIECES * PIECE / SIP {
        assert!(client.sip(SIP).await, "closed after {sip} sips");
        sleep(PAUSE).await;
    }
    assert!(began.elapsed() > write);
    client.greet().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_an_answer_in_pieces_is_cut_off() {
    let write = Duration::from_millis(500);
    let server = limited(|limits| limits.write = write).await;
    let mut client = server.connect_with_small_buffer().await;
    let began = Instant::now();
    client.ask("/endless").await;
    assert!(client.sip(SIP).await);
    while !server.shutdown.running().is_empty() {
        assert!(began.elapsed() < LONG, "it is not cut off");
        sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() >= write);
}

#[tokio::test]
async fn a_client_that_reads_little_by_little_is_cut_off_some_time() {
    let answer = Duration::from_secs(1);
    let server = limited(|limits| limits.answer = answer).await;
    let mut client = server.connect_with_small_buffer().await;
    client.ask("/endless").await;
    let began = Instant::now();
    while client.sip(SIP).await {
        assert!(began.elapsed() < LONG, "it is not cut off");
        sleep(PAUSE).await;
    }
    assert!(began.elapsed() >= answer);
}
