//! Over a real connection, where bodies come in pieces and their lengths may be lies.

use std::time::Duration;

use sampler_service::http::serve;
use sampler_service::lifecycle::Shutdown;
use sampler_service::security::Authenticator;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::event::start;
use crate::world::{NOW, World};

const LIMIT: usize = 1024;

/// What a client that was answered and let go has read.
async fn exchange(world: &World, head: &str, pieces: &[&str], close: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, router) = (
        Shutdown::new(),
        world.receiver.clone().routes(Authenticator::none()),
    );
    let of_server = shutdown.clone();
    let server = tokio::spawn(async move { serve(listener, router, &of_server).await });
    let mut client = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/events/start HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         content-type: application/json\r\n{head}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    for piece in pieces {
        // A server that has answered need not listen any more.
        let _ = client.write_all(piece.as_bytes()).await;
    }
    if close {
        client.shutdown().await.unwrap();
    }
    let mut answer = Vec::new();
    let reading = client.read_to_end(&mut answer);
    let _ = timeout(Duration::from_secs(20), reading)
        .await
        .expect("an answer");
    shutdown.begin();
    server.await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn small() -> World {
    World::with(|options| options.settings.limits.payload = LIMIT)
}

#[tokio::test]
async fn a_body_in_chunks_is_taken() {
    let (world, event) = (small(), start(NOW));
    let body = event.to_string();
    let (head, tail) = body.split_at(100);
    let pieces = [&chunk(head), &chunk(tail), "0\r\n\r\n"];
    let answer = exchange(&world, "transfer-encoding: chunked", &pieces, false).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    world.assert_kept(&[(&event, None)]);
}

#[tokio::test]
async fn a_body_in_chunks_that_grows_over_the_limit_is_refused_before_its_end() {
    let world = small();
    let (event, padding) = (chunk(&start(NOW).to_string()), chunk(&" ".repeat(LIMIT)));
    let pieces = [event.as_str(), &padding];
    let answer = exchange(&world, "transfer-encoding: chunked", &pieces, false).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("/problems/payload-too-large"), "{answer}");
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_is_sent() {
    let world = small();
    let answer = exchange(&world, "content-length: 1025", &[], false).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_body_that_is_longer_than_it_says_is_read_as_far_as_it_says() {
    let world = small();
    let body = start(NOW).to_string();
    let length = format!("content-length: {}", body.len() - 1);
    let answer = exchange(&world, &length, &[&body], false).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("/problems/malformed-json"), "{answer}");
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_body_that_is_shorter_than_it_says_is_refused() {
    let world = small();
    let body = start(NOW).to_string();
    let length = format!("content-length: {}", body.len() + 1);
    let answer = exchange(&world, &length, &[&body], true).await;
    assert!(
        answer.starts_with("HTTP/1.1 400 ") || answer.is_empty(),
        "{answer}"
    );
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
}
