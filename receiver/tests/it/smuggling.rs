//! Requests that two readers could take for different ones, over a real connection. A router in
//! front of us may be the other reader, so each is answered 400 and is the last of its connection.

use std::time::Duration;

use sampler_service::http::serve;
use sampler_service::lifecycle::Stop;
use sampler_service::security::Door;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::event::start;
use crate::world::{NOW, World};

/// What comes back for these requests, each sent when the one before was answered, until the
/// server closes.
async fn exchange(world: &World, requests: &[&[u8]]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, router) = (Stop::new(), world.receiver.clone().routes(Door::open()));
    let of_server = stop.clone();
    let server = tokio::spawn(async move { serve(listener, router, &of_server).await });
    let mut client = TcpStream::connect(address).await.unwrap();
    let mut answer = Vec::new();
    let exchanging = async {
        for (number, bytes) in requests.iter().enumerate() {
            client.write_all(bytes).await?;
            while number + 1 < requests.len() && !answer.ends_with(b"\r\n\r\n") {
                client.read_buf(&mut answer).await?;
            }
        }
        client.read_to_end(&mut answer).await
    };
    let _ = timeout(Duration::from_secs(20), exchanging)
        .await
        .unwrap_or_else(|_| panic!("kept open: {requests:?}"));
    stop.begin();
    server.await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

/// A request with these lines in its head, before a body and a second request that would be taken
/// for the first one's body by another reader.
fn request(lines: &str, body: &str) -> Vec<u8> {
    let second = "GET /smuggled HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let head = "POST /v1/events/start HTTP/1.1\r\nhost: test\r\ncontent-type: application/json";
    format!("{head}\r\n{lines}\r\n\r\n{body}{second}").into_bytes()
}

#[tokio::test]
async fn what_two_readers_could_take_for_different_requests_is_refused() {
    let event = start(NOW).to_string();
    let length = event.len();
    let chunked = format!("{length:x}\r\n{event}\r\n0\r\n\r\n");
    let plain = |lines: &str| request(lines, &event);
    let in_chunks = |lines: &str| request(lines, &chunked);
    let both = format!(
        "content-length: {}\r\ntransfer-encoding: chunked",
        chunked.len()
    );
    let swapped = format!(
        "transfer-encoding: chunked\r\ncontent-length: {}",
        chunked.len()
    );
    let cl = |text: &str| format!("content-length: {text}");
    let length_and = |line: &str| format!("content-length: {length}\r\n{line}");
    let cases = [
        ("length and chunks", in_chunks(&both)),
        ("chunks and length", in_chunks(&swapped)),
        (
            "length 0 and chunks",
            in_chunks("content-length: 0\r\ntransfer-encoding: chunked"),
        ),
        (
            "two lengths",
            plain(&format!("{}\r\n{}", cl(&length.to_string()), cl("0"))),
        ),
        ("two lengths in one", plain(&cl(&format!("{length}, 0")))),
        ("a length with a sign", plain(&cl(&format!("+{length}")))),
        ("a negative length", plain(&cl("-1"))),
        ("a length in hex", plain(&cl(&format!("0x{length:x}")))),
        ("a length with a tail", plain(&cl(&format!("{length} 0")))),
        ("a huge length", plain(&cl("184467440737095516160"))),
        ("no such coding", in_chunks("transfer-encoding: xchunked")),
        (
            "another coding last",
            in_chunks("transfer-encoding: chunked, identity"),
        ),
        (
            "chunks in quotes",
            in_chunks("transfer-encoding: \"chunked\""),
        ),
        (
            "chunks with a vertical tab",
            in_chunks("transfer-encoding: \u{b}chunked"),
        ),
        (
            "chunks with a tail",
            in_chunks("transfer-encoding: chunked x"),
        ),
        (
            "two codings",
            in_chunks("transfer-encoding: chunked\r\ntransfer-encoding: identity"),
        ),
        (
            "another coding first",
            in_chunks("transfer-encoding: gzip, chunked"),
        ),
        (
            "chunked twice",
            in_chunks("transfer-encoding: chunked, chunked"),
        ),
        (
            "a space before the colon",
            in_chunks("transfer-encoding : chunked"),
        ),
        ("a folded line", in_chunks("transfer-encoding:\r\n chunked")),
        (
            "a folded line after the length",
            plain(&length_and("x: y\r\n z")),
        ),
        (
            "a bare CR in a value",
            plain(&length_and("x: y\rtransfer-encoding: chunked")),
        ),
        ("a NUL in a value", plain(&length_and("x: y\0z"))),
        (
            "a bare LF at the end of a line",
            plain(&length_and("x: y\nz: a")),
        ),
        ("a line without a colon", plain(&length_and("nonsense"))),
        (
            "a size with a sign",
            request("transfer-encoding: chunked", &format!("+{chunked}")),
        ),
        (
            "a size that is none",
            request("transfer-encoding: chunked", &format!("x{chunked}")),
        ),
        (
            "a size too large",
            request("transfer-encoding: chunked", "fffffffffffffffff\r\n"),
        ),
        (
            "a bare LF after a size",
            request("transfer-encoding: chunked", &chunked.replace("\r\n", "\n")),
        ),
        (
            "a chunk longer than its size",
            request(
                "transfer-encoding: chunked",
                &chunked.replacen("}\r\n", "}x\r\n", 1),
            ),
        ),
    ];
    let mut wrong = Vec::new();
    for (what, bytes) in cases {
        let world = World::new();
        let answer = exchange(&world, &[&bytes]).await;
        let answers = answer.matches("HTTP/1.1 ").count();
        let status = answer.lines().next().unwrap_or_default().to_owned();
        if answers != 1 || !answer.starts_with("HTTP/1.1 400 ") || world.store.calls() != 0 {
            wrong.push(format!(
                "{what}: {answers} answers, {status}, {} calls",
                world.store.calls()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without anything odd both requests are answered, so the table could tell.
#[tokio::test]
async fn two_requests_that_all_understand_alike_are_two() {
    let (world, event) = (World::new(), start(NOW));
    let body = event.to_string();
    let length = format!("content-length: {}", body.len());
    let answer = exchange(&world, &[&request(&length, &body)]).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(answer.contains("HTTP/1.1 404 "), "{answer}");
    world.holds(&[(&event, None)]);
}

/// A router keeps its connections: what comes after a good request is looked at no less.
#[tokio::test]
async fn an_odd_request_behind_a_good_one_is_refused_as_well() {
    let (world, event) = (World::new(), start(NOW));
    let body = event.to_string();
    let good = format!(
        "POST /v1/events/start HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let odd = request("x: y\n\nPOST /v1/events/stop HTTP/1.1", "");
    let answer = exchange(&world, &[good.as_bytes(), &odd]).await;
    let statuses: Vec<&str> = answer
        .lines()
        .filter(|line| line.starts_with("HTTP/1.1 "))
        .collect();
    assert_eq!(statuses.len(), 2, "{answer}");
    assert!(
        statuses[0].contains(" 201 ") && statuses[1].contains(" 400 "),
        "{answer}"
    );
    world.holds(&[(&event, None)]);
}
