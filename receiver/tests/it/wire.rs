//! Over a real connection, where bodies come in pieces and their lengths may be lies.

use std::io;
use std::time::Duration;

use sampler_service::http::{HttpMetrics, serve};
use sampler_service::lifecycle::Shutdown;
use sampler_service::security::Authenticator;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::event::start;
use crate::world::{NOW, World};

const LIMIT: usize = 1024;

/// A client, and what it has read.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) answer: Vec<u8>,
}

/// What comes back for what a client sends, until the server closes.
pub(crate) async fn exchange(
    world: &World,
    send: impl AsyncFnOnce(&mut Client) -> io::Result<()>,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, router) = (
        Shutdown::new(),
        world.receiver.clone().routes(Authenticator::none()),
    );
    let of_server = shutdown.clone();
    let metrics = HttpMetrics::default();
    let server = tokio::spawn(async move { serve(listener, router, metrics, &of_server).await });
    let mut client = Client {
        stream: TcpStream::connect(address).await.unwrap(),
        answer: Vec::new(),
    };
    let exchanging = async {
        // A server that has answered need not listen any more.
        let _ = send(&mut client).await;
        client.stream.read_to_end(&mut client.answer).await
    };
    let _ = timeout(Duration::from_secs(20), exchanging)
        .await
        .expect("an answer, and the end of the connection");
    shutdown.begin();
    server.await.unwrap().unwrap();
    String::from_utf8(client.answer).unwrap()
}

/// How the length of a body is told, the pieces in which it comes, whether the client then ends the connection, and
/// the status and the kind of problem. Nothing is kept but of what is answered 201.
type Row = (&'static str, String, Vec<String>, bool, u16, &'static str);

#[rustfmt::skip]
fn table(event: &str) -> Vec<Row> {
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let chunked = || "transfer-encoding: chunked".to_owned();
    let length = |length: usize| format!("content-length: {length}");
    let (head, tail) = event.split_at(100);
    let spaces = chunk(&" ".repeat(LIMIT));
    let whole = || vec![event.to_owned()];
    vec![
        ("in chunks", chunked(), vec![chunk(head), chunk(tail), chunk("")], false, 201, ""),
        // It is refused before its end.
        ("chunks over the limit", chunked(), vec![chunk(event), spaces], false, 413, "payload-too-large"),
        ("a length over the limit", length(LIMIT + 1), vec![], false, 413, "payload-too-large"),
        ("longer than it says", length(event.len() - 1), whole(), false, 400, "malformed-json"),
        ("shorter than it says", length(event.len() + 1), whole(), true, 400, ""),
    ]
}

#[tokio::test]
async fn a_body_is_read_as_far_as_its_length_and_the_limit_say() {
    let event = start(NOW);
    for (what, length, pieces, is_ended, status, slug) in table(&event.to_string()) {
        let world = World::with(|options| options.settings.limits.payload = LIMIT);
        let head = format!(
            "POST /v1/events/start HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
             content-type: application/json\r\n{length}\r\n\r\n"
        );
        let answer = exchange(&world, async |client: &mut Client| {
            client.stream.write_all(head.as_bytes()).await?;
            for piece in &pieces {
                client.stream.write_all(piece.as_bytes()).await?;
            }
            if is_ended {
                client.stream.shutdown().await?;
            }
            Ok(())
        })
        .await;
        let is_answered = answer.starts_with(&format!("HTTP/1.1 {status} "));
        // A client that has ended the connection may get none.
        assert!(
            is_answered || (is_ended && answer.is_empty()),
            "{what}: {answer}"
        );
        assert!(answer.contains(slug), "{what}: {answer}");
        if status == 201 {
            world.assert_kept(&[(&event, None)]);
        } else {
            assert_eq!(world.store.calls(), 0, "{what}");
        }
    }
}
