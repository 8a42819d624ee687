//! For which host requests are.

use sampler_service::http::{Limits, Port};
use sampler_service::lifecycle::Shutdown;

use super::{listener, serve_on};

async fn statuses(is_open: bool, hosts: &[&str]) -> Vec<String> {
    let port = Port {
        is_open,
        ..listener().await.into()
    };
    let server = serve_on(port, Limits::default(), Shutdown::new());
    let mut statuses = Vec::new();
    for host in hosts {
        let mut client = server.connect().await;
        let head = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        client.send(&head).await;
        let answer = client.rest().await;
        statuses.push(answer[9..12].to_owned());
    }
    statuses
}

/// DNS rebinding: a page of a stranger has led its own name to this machine.
#[tokio::test]
async fn without_tokens_a_loopback_serves_requests_for_this_machine_alone() {
    let hosts = [
        "localhost:7070",
        "127.0.0.1",
        "[::1]:1",
        "evil.example",
        "127.0.0.1.evil.example:80",
    ];
    assert_eq!(
        statuses(true, &hosts).await,
        ["200", "200", "200", "421", "421"]
    );
    assert_eq!(statuses(false, &hosts).await, ["200"; 5]);
}
