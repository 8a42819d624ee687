//! Clients that mean no good, at the real receiver over real connections: slow ones, many at once,
//! and such that send more than anybody needs. All the while an honest client is served.

use std::time::Duration;

use sampler_testkit::build::start_event;
use sampler_testkit::{Program, now_millis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::landscape::{Landscape, until_ready};

/// How many of each kind: far more bodies than the receiver reads at once.
const MANY: usize = 200;

/// Between two bytes of a slow client.
const DRIP: Duration = Duration::from_millis(100);

/// Longer than anything that is slow may take.
const AGES: Duration = Duration::from_secs(30);

/// Sends a head, and then one byte after the other until it is cut off. Returns how long that
/// was, and what was answered.
async fn drip(address: String, head: String, byte: &'static [u8]) -> (Duration, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let (began, mut answer) = (Instant::now(), Vec::new());
    while began.elapsed() < AGES {
        let over = match timeout(DRIP, stream.read_buf(&mut answer)).await {
            Ok(read) => matches!(read, Ok(0) | Err(_)),
            Err(_) => stream.write_all(byte).await.is_err(),
        };
        if over {
            break;
        }
    }
    (began.elapsed(), String::from_utf8(answer).unwrap())
}

async fn honest(world: &Landscape, receiver: &Program, target: u64) -> Duration {
    let began = Instant::now();
    let event = start_event(target, now_millis());
    world.take(receiver, "/v1/events/start", &event).await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_cut_off_and_honest_ones_served_all_the_while() {
    let world = Landscape::new("slow_clients").await;
    let receiver = world.receiver().env("SAMPLER_BODY_TIMEOUT", "2s");
    let receiver = receiver.start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let post = "POST /v1/events/start HTTP/1.1\r\nhost: test\r\n";
    let body = "content-type: application/json\r\ncontent-length: 5000\r\n\r\n{";
    let (mut heads, mut bodies) = (JoinSet::new(), JoinSet::new());
    for _ in 0..MANY {
        let address = receiver.address().to_owned();
        heads.spawn(drip(address.clone(), format!("{post}x: "), b"y"));
        bodies.spawn(drip(address, format!("{post}{body}"), b" "));
    }
    let mut target = 0;
    let mut cut_off = 0;
    while let Some(dripped) = bodies.join_next().await {
        let (lasted, answer) = dripped.unwrap();
        // Requests beyond the limit were answered at once.
        assert!(
            answer.starts_with("HTTP/1.1 408 ") || answer.starts_with("HTTP/1.1 503 "),
            "{answer}"
        );
        assert!(lasted < AGES / 2, "{lasted:?}");
        cut_off += usize::from(answer.starts_with("HTTP/1.1 408 "));
    }
    assert!(cut_off > 0);
    while !heads.is_empty() {
        let took = honest(&world, &receiver, target).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
        target += 1;
        while let Some(dripped) = heads.try_join_next() {
            let (lasted, _) = dripped.unwrap();
            assert!(lasted < AGES / 2, "{lasted:?}");
        }
    }
    assert!(target > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_larger_than_anybody_needs_are_refused_and_bodies_not_waited_for() {
    let world = Landscape::new("huge_heads").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let head =
        |line: &str| format!("POST /v1/events/start HTTP/1.1\r\nhost: test\r\n{line}\r\n\r\n");
    let many = (0..200)
        .map(|number| format!("x-{number}: y"))
        .collect::<Vec<_>>()
        .join("\r\n");
    for (what, line, status) in [
        (
            "one long header",
            format!("authorization: Bearer {}", "x".repeat(40_000)),
            "431",
        ),
        (
            "a header without end",
            format!("x: {}", "y".repeat(2_000_000)),
            "431",
        ),
        ("many headers", many, "431"),
        (
            "a body of a terabyte",
            "content-type: application/json\r\ncontent-length: 1099511627776".to_owned(),
            "413",
        ),
    ] {
        let mut stream = TcpStream::connect(receiver.address()).await.unwrap();
        // A server that has answered need not take the rest.
        let _ = stream.write_all(head(&line).as_bytes()).await;
        let mut answer = Vec::new();
        let read = timeout(AGES, stream.read_buf(&mut answer))
            .await
            .expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        let reset = read.is_err();
        assert!(
            reset || answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what}: {answer}"
        );
    }
    honest(&world, &receiver, 1).await;
}
