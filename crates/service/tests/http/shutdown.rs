//! Connections during a shutdown.

use std::time::Duration;

use sampler_service::http::Limits;
use sampler_service::lifecycle::Shutdown;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Client, listener, serve, serve_on};

#[tokio::test]
async fn on_stop_what_is_under_way_is_finished_and_nothing_else_is_accepted() {
    let server = serve().await;
    let (mut idle, mut busy) = (server.greeted().await, server.connect().await);
    busy.ask("/slow").await;
    server.entered.notified().await;
    server.shutdown.begin();
    assert_eq!(idle.rest().await, "");
    server.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.shutdown.running().get("http connection"), Some(&1));
    server.go.notify_one();
    let answer = busy.rest().await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("slow"),
        "{answer}"
    );
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

/// A router keeps its connections, and cannot know that this is not the time for a request.
#[tokio::test]
async fn an_idle_connection_is_good_for_one_more_request_after_the_stop() {
    let server = serve().await;
    let mut idle = server.greeted().await;
    server.shutdown.begin();
    server.serving.await.unwrap().unwrap();
    let mut byte = [0];
    let closed = timeout(Duration::from_millis(200), idle.0.read(&mut byte)).await;
    assert!(closed.is_err(), "closed while a request may be on its way");
    idle.ask("/").await;
    let answer = idle.rest().await;
    assert!(
        answer.contains("connection: close\r\n") && answer.ends_with("hello"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_client_that_was_accepted_just_before_the_stop_is_still_served() {
    let server = serve().await;
    let mut fresh = server.connect().await;
    server.has_connections().await;
    server.shutdown.begin();
    server.serving.await.unwrap().unwrap();
    fresh.ask("/").await;
    let answer = fresh.rest().await;
    assert!(answer.ends_with("hello"), "{answer:?}");
}

#[tokio::test]
async fn a_request_that_arrives_with_the_stop_is_still_served() {
    let server = serve().await;
    let mut client = server.greeted().await;
    client.ask("/").await;
    server.shutdown.begin();
    let answer = client.rest().await;
    assert!(answer.ends_with("hello"), "{answer:?}");
}

#[tokio::test]
async fn clients_in_the_queue_of_the_system_are_still_served() {
    let listener = listener().await;
    let address = listener.local_addr().unwrap();
    let mut queued = Client(TcpStream::connect(address).await.unwrap());
    queued.ask("/").await;
    let shutdown = Shutdown::new();
    shutdown.begin();
    let server = serve_on(listener, Limits::default(), shutdown);
    let answer = queued.rest().await;
    assert!(answer.ends_with("hello"), "{answer:?}");
    server.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_still_under_way_at_the_hard_stop_is_let_go() {
    let server = serve().await;
    let mut busy = server.connect().await;
    busy.ask("/slow").await;
    server.entered.notified().await;
    server.shutdown.begin();
    server.shutdown.hard().cancel();
    assert_eq!(busy.rest().await, "");
    while !server.shutdown.running().is_empty() {
        tokio::task::yield_now().await;
    }
}
