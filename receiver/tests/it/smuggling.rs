//! Requests that two readers could take for different ones, over a real connection. A router in
//! front of us may be the other reader, so each is answered 400 and is the last of its connection.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::event::{start, with};
use crate::wire::{self, Client};
use crate::world::{NOW, World};

/// What comes back for these requests, each sent when the one before was answered, until the
/// server closes.
async fn exchange(world: &World, requests: &[&[u8]]) -> String {
    wire::exchange(world, async |client: &mut Client| {
        for (number, bytes) in requests.iter().enumerate() {
            client.stream.write_all(bytes).await?;
            while number + 1 < requests.len() && !client.answer.ends_with(b"\r\n\r\n") {
                client.stream.read_buf(&mut client.answer).await?;
            }
        }
        Ok(())
    })
    .await
}

/// A request with these lines in its head, before a body and a second request that would be taken
/// for the first one's body by another reader.
fn request(lines: &str, body: &str) -> Vec<u8> {
    let second = "GET /smuggled HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let head = "POST /v1/events/start HTTP/1.1\r\nhost: test\r\ncontent-type: application/json";
    format!("{head}\r\n{lines}\r\n\r\n{body}{second}").into_bytes()
}

fn in_chunks(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len())
}

/// How long the body is, said in ways that are none.
fn lengths(event: &str) -> Vec<Vec<u8>> {
    let length = event.len();
    let values = [
        format!("{length}\r\ncontent-length: 0"),
        format!("{length}, 0"),
        format!("+{length}"),
        "-1".to_owned(),
        format!("0x{length:x}"),
        format!("{length} 0"),
        "184467440737095516160".to_owned(),
    ];
    let with = |value| request(&format!("content-length: {value}"), event);
    values.into_iter().map(with).collect()
}

/// Codings that some take for chunks, and chunks beside a length.
fn codings(event: &str) -> Vec<Vec<u8>> {
    let chunks = in_chunks(event);
    let length = chunks.len();
    let lengths = [
        format!("content-length: {length}\r\ntransfer-encoding: chunked"),
        format!("transfer-encoding: chunked\r\ncontent-length: {length}"),
        "content-length: 0\r\ntransfer-encoding: chunked".to_owned(),
    ];
    let codings = [
        "xchunked",
        "chunked, identity",
        "gzip, chunked",
        "chunked\r\ntransfer-encoding: identity",
        "chunked, chunked",
        "\"chunked\"",
        "\u{b}chunked",
        "chunked x",
    ];
    let codings = codings.map(|coding| format!("transfer-encoding: {coding}"));
    let heads = lengths.into_iter().chain(codings);
    heads.map(|head| request(&head, &chunks)).collect()
}

/// Lines that end, or begin, where another reader may not see it.
fn lines(event: &str) -> Vec<Vec<u8>> {
    let (chunks, length) = (in_chunks(event), event.len());
    let odd = [
        "x: y\r\n z",
        "x: y\rtransfer-encoding: chunked",
        "x: y\0z",
        "x: y\nz: a",
        "x: y\n\nGET / HTTP/1.1",
        "nonsense",
    ];
    let with = |line| request(&format!("content-length: {length}\r\n{line}"), event);
    let codings = [
        "transfer-encoding : chunked",
        "transfer-encoding:\r\n chunked",
    ];
    let codings = codings.map(|coding| request(coding, &chunks));
    odd.map(with).into_iter().chain(codings).collect()
}

/// Chunks that are none.
fn chunks(event: &str) -> Vec<Vec<u8>> {
    let chunks = in_chunks(event);
    let odd = [
        format!("+{chunks}"),
        format!("x{chunks}"),
        "fffffffffffffffff\r\n".to_owned(),
        "10000000000000000\r\n".to_owned(),
        "ffffffffffffffff\r\n".to_owned(),
        chunks.replace("\r\n", "\n"),
        // Longer than its size.
        chunks.replacen("}\r\n", "}x\r\n", 1),
    ];
    let with = |chunks: String| request("transfer-encoding: chunked", &chunks);
    odd.into_iter().map(with).collect()
}

#[tokio::test]
async fn what_two_readers_could_take_for_different_requests_is_refused() {
    let event = start(NOW).to_string();
    let mut wrong = Vec::new();
    for cases in [lengths, codings, lines, chunks] {
        for bytes in cases(&event) {
            let world = World::new();
            let answer = exchange(&world, &[&bytes]).await;
            let answers = answer.matches("HTTP/1.1 ").count();
            let refused = answers == 1 && answer.starts_with("HTTP/1.1 400 ");
            if !refused || world.store.calls() != 0 {
                wrong.push(format!("{}: {answer}", bytes.escape_ascii()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A request that all understand alike.
fn good(event: &Value) -> Vec<u8> {
    let body = event.to_string();
    let head = "POST /v1/events/start HTTP/1.1\r\nhost: test\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A router keeps its connections: what is behind a good request is looked at no less, in one packet with it or
/// after its answer. Without anything odd both are answered, so the tables can tell.
#[tokio::test]
async fn what_is_behind_a_good_request_is_looked_at_no_less() {
    let event = start(NOW);
    let another = with(&event, "resource_instance_id", "another").to_string();
    let in_chunks = in_chunks(&another);
    let odd = request(
        "content-length: 5\r\ntransfer-encoding: chunked",
        &in_chunks,
    );
    let odd_head = request("x: y\n\nPOST /v1/events/stop HTTP/1.1", "");
    let even = b"GET /other HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let good = good(&event);
    let (two, ahead) = ([&good[..], even].concat(), [&good[..], &odd].concat());
    for (requests, statuses) in [
        (vec![&two[..]], [" 201 ", " 404 "]),
        (vec![&ahead[..]], [" 201 ", " 400 "]),
        (vec![&good[..], &odd_head], [" 201 ", " 400 "]),
    ] {
        let world = World::new();
        let answer = exchange(&world, &requests).await;
        let lines = answer.lines().filter(|line| line.starts_with("HTTP/1.1 "));
        let lines: Vec<&str> = lines.collect();
        assert_eq!(lines.len(), 2, "{answer}");
        let mut told = lines.iter().zip(statuses);
        assert!(told.all(|(line, status)| line.contains(status)), "{answer}");
        world.assert_kept(&[(&event, None)]);
    }
}
