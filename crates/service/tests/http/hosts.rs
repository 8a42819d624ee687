//! For which host requests are.

use sampler_service::http::{Limits, Port};
use sampler_service::lifecycle::Shutdown;

use super::{listener, serve_on};

/// The answers of a server to requests with these lines after the first one.
async fn answers(is_open: bool, lines: &[String]) -> Vec<String> {
    let port = Port {
        is_open,
        ..listener().await.into()
    };
    let server = serve_on(port, Limits::default(), Shutdown::new());
    let mut answers = Vec::new();
    for lines in lines {
        let head = format!("GET / HTTP/1.1\r\n{lines}\r\nconnection: close\r\n\r\n");
        answers.push(server.exchange(&head).await.to_ascii_lowercase());
    }
    answers
}

async fn statuses(is_open: bool, hosts: &[&str]) -> Vec<String> {
    let lines: Vec<String> = hosts.iter().map(|host| format!("host: {host}")).collect();
    let answers = answers(is_open, &lines).await;
    answers
        .iter()
        .map(|answer| answer[9..12].to_owned())
        .collect()
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

#[tokio::test]
async fn what_is_not_for_this_machine_cannot_be_shown_as_a_page_either() {
    let lines = ["host: evil.example".to_owned()];
    let refused = &answers(true, &lines).await[0];
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "connection: close",
    ] {
        assert!(refused.contains(header), "{header}: {refused}");
    }
}

/// Over https, which a router in front has ended, browsers are told to stay there; also by what is
/// refused before it is routed.
#[tokio::test]
async fn browsers_that_came_over_https_come_over_https_from_now_on() {
    let hosts = ["localhost", "evil.example"];
    for host in hosts {
        let plain = format!("host: {host}");
        let lines = [
            plain.clone(),
            format!("{plain}\r\nx-forwarded-proto: http"),
            format!("{plain}\r\nx-forwarded-proto: https"),
        ];
        let answers = answers(true, &lines).await;
        let told = answers
            .iter()
            .map(|answer| answer.contains("strict-transport-security: max-age=31536000"));
        assert_eq!(told.collect::<Vec<_>>(), [false, false, true], "{host}");
    }
}
