//! The examples for providers, where what stands between them and the receiver answers amiss.

use std::net::Ipv4Addr;

use sampler_testkit::workspace_dir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const KEPT: &str = r#"{"accepted":2,"replayed":0,"refused":0,"failed":0,"results":[
    {"index":0,"status":201,"replayed":false,"span":"s"},{"index":1,"status":201,"replayed":false}]}"#;
const PAGE: &str = "<html><h1>Bad Gateway</h1></html>";

/// An answer whose body ought to have so many bytes more.
fn answer(status: &str, body: &str, more: usize) -> String {
    let length = body.len() + more;
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

/// Takes one request, and returns its body.
async fn take(connection: &mut TcpStream) -> Vec<u8> {
    let mut reader = BufReader::new(connection);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    body
}

/// Sends the same batch again until an answer says the outcome of each event.
pub(crate) async fn sends_again(command: &[&str]) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = [
        answer("502 Bad Gateway", PAGE, 0),
        answer("200 OK", &KEPT[..60], 1_000),
        answer("200 OK", PAGE, 0),
        answer("200 OK", KEPT, 0),
    ];
    let serving = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for answer in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            bodies.push(take(&mut connection).await);
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
        bodies
    });
    let mut program = Command::new(command[0]);
    program.args(&command[1..]).arg("db-1");
    program.current_dir(workspace_dir()).kill_on_drop(true);
    program.env("SAMPLER_URL", format!("http://127.0.0.1:{port}"));
    let ended = program.output().await.unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let text = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(text.trim_end(), "0: 201 s\n1: 201", "{text}");
    let bodies = serving.await.unwrap();
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}
