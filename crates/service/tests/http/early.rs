//! Answers that come before the body of their request.

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::{Client, LONG, serve};

/// What clients such as Python's urllib send: the whole body, before they look for an answer.
const BODY: usize = 3 << 20;

async fn refused(head: &str) -> Client {
    let server = serve().await;
    let mut client = server.connect().await;
    let head = format!("POST /large HTTP/1.1\r\nhost: test\r\n{head}\r\n\r\n");
    client.send(&head).await;
    timeout(LONG, client.0.readable()).await.unwrap().unwrap();
    client
}

#[tokio::test]
async fn a_client_that_sends_its_whole_body_sees_the_answer_that_came_before() {
    let mut client = refused(&format!("content-length: {BODY}")).await;
    for piece in vec![b'x'; BODY].chunks(1 << 16) {
        client.0.write_all(piece).await.expect("it is still read");
    }
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_client_that_goes_on_sending_is_cut_off() {
    let mut client = refused("transfer-encoding: chunked").await;
    let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let sending = async { while client.0.write_all(piece.as_bytes()).await.is_ok() {} };
    timeout(LONG, sending).await.expect("an end");
}

#[tokio::test]
async fn a_connection_goes_on_where_the_body_has_arrived() {
    let server = serve().await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        let request = "POST /large HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc";
        client.send(request).await;
        let answer = client.answer("}").await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}
