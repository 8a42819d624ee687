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

type Cases = Vec<(&'static str, Vec<u8>)>;

fn in_chunks(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len())
}

/// How long the body is, said in ways that are none.
fn lengths(event: &str) -> Cases {
    let length = event.len();
    let with = |text: String| request(&format!("content-length: {text}"), event);
    vec![
        (
            "two lengths",
            with(format!("{length}\r\ncontent-length: 0")),
        ),
        ("two lengths in one", with(format!("{length}, 0"))),
        ("with a sign", with(format!("+{length}"))),
        ("negative", with("-1".to_owned())),
        ("in hex", with(format!("0x{length:x}"))),
        ("with a tail", with(format!("{length} 0"))),
        ("huge", with("184467440737095516160".to_owned())),
    ]
}

/// Codings that some take for chunks, and chunks beside a length.
fn codings(event: &str) -> Cases {
    let chunks = in_chunks(event);
    let length = chunks.len();
    let with = |text: &str| request(&format!("transfer-encoding: {text}"), &chunks);
    let before = format!("content-length: {length}\r\ntransfer-encoding: chunked");
    let zero = "content-length: 0\r\ntransfer-encoding: chunked";
    vec![
        ("a length before", request(&before, &chunks)),
        (
            "a length behind",
            with(&format!("chunked\r\ncontent-length: {length}")),
        ),
        ("a length of 0", request(zero, &chunks)),
        ("unknown", with("xchunked")),
        ("another behind", with("chunked, identity")),
        ("another before", with("gzip, chunked")),
        (
            "another on a line of its own",
            with("chunked\r\ntransfer-encoding: identity"),
        ),
        ("chunks in chunks", with("chunked, chunked")),
        ("in quotes", with("\"chunked\"")),
        ("with a vertical tab", with("\u{b}chunked")),
        ("with a tail", with("chunked x")),
    ]
}

/// Lines that end, or begin, where another reader may not see it.
fn lines(event: &str) -> Cases {
    let with = |line: &str| {
        let lines = format!("content-length: {}\r\n{line}", event.len());
        request(&lines, event)
    };
    let chunks = in_chunks(event);
    vec![
        (
            "a space before the colon",
            request("transfer-encoding : chunked", &chunks),
        ),
        (
            "a folded coding",
            request("transfer-encoding:\r\n chunked", &chunks),
        ),
        ("a folded line", with("x: y\r\n z")),
        (
            "a bare CR in a value",
            with("x: y\rtransfer-encoding: chunked"),
        ),
        ("a NUL in a value", with("x: y\0z")),
        ("a bare LF at the end", with("x: y\nz: a")),
        ("an end of bare LF", with("x: y\n\nGET / HTTP/1.1")),
        ("no colon", with("nonsense")),
    ]
}

/// Chunks that are none.
fn chunks(event: &str) -> Cases {
    let with = |chunks: &str| request("transfer-encoding: chunked", chunks);
    let chunks = in_chunks(event);
    vec![
        ("a size with a sign", with(&format!("+{chunks}"))),
        ("a size that is none", with(&format!("x{chunks}"))),
        ("a size too large", with("fffffffffffffffff\r\n")),
        ("a size of 2^64", with("10000000000000000\r\n")),
        ("the size below that", with("ffffffffffffffff\r\n")),
        (
            "a bare LF behind a size",
            with(&chunks.replace("\r\n", "\n")),
        ),
        (
            "longer than its size",
            with(&chunks.replacen("}\r\n", "}x\r\n", 1)),
        ),
    ]
}

#[tokio::test]
async fn what_two_readers_could_take_for_different_requests_is_refused() {
    let event = start(NOW).to_string();
    let mut wrong = Vec::new();
    for cases in [lengths, codings, lines, chunks] {
        for (what, bytes) in cases(&event) {
            let world = World::new();
            let answer = exchange(&world, &[&bytes]).await;
            let answers = answer.matches("HTTP/1.1 ").count();
            let refused = answers == 1 && answer.starts_with("HTTP/1.1 400 ");
            if !refused || world.store.calls() != 0 {
                wrong.push(format!("{what}: {answer}"));
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
