//! TLS on the receiver's own port, for deployments without a router.

use std::fs;
use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Client, Identity};
use sampler_testkit::build::start_event;
use sampler_testkit::program::{Launch, RECEIVER};
use sampler_testkit::tls::Authority;
use sampler_testkit::{Program, now_millis, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::landscape::{Landscape, PATIENCE, until_ready};
use crate::settings::run;

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// A receiver with the certificate of this file, for clients of that authority.
fn launch(world: &Landscape, file: &Path, clients: &Authority) -> Launch {
    world
        .receiver()
        .env("SAMPLER_TLS_CERT_FILE", path(file))
        .env("SAMPLER_TLS_KEY_FILE", path(file))
        .env("SAMPLER_TLS_CLIENT_CA_FILE", path(&clients.certificate()))
}

/// A client that trusts one authority, and shows the certificate of this file. Each request is a
/// connection of its own.
fn client(trusted: &Authority, shown: Option<&Path>) -> Client {
    let trusted = fs::read(trusted.certificate()).unwrap();
    let builder = Client::builder()
        .timeout(PATIENCE)
        .pool_max_idle_per_host(0)
        .tls_certs_only([Certificate::from_pem(&trusted).unwrap()]);
    let identity = shown.map(|file| Identity::from_pem(&fs::read(file).unwrap()).unwrap());
    match identity {
        Some(identity) => builder.identity(identity).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

/// What a start is answered; 0 where there is no answer.
async fn start(client: &Client, receiver: &Program, target: u64) -> u16 {
    let url = format!("https://{}/v1/events/start", receiver.address());
    let sent = client.post(url).json(&start_event(target, now_millis()));
    sent.send()
        .await
        .map_or(0, |answer| answer.status().as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_with_a_certificate_are_let_in_and_a_new_certificate_is_taken_up() {
    let world = Landscape::new("own_tls").await;
    let (ours, theirs) = (
        Authority::new("Ours").unwrap(),
        Authority::new("Theirs").unwrap(),
    );
    let (server, shown) = (ours.issue("server").unwrap(), ours.issue("client").unwrap());
    let receiver = launch(&world, &server, &ours).start().await.unwrap();
    let known = client(&ours, Some(&shown));
    wait_until("the receiver is prepared", PATIENCE, async || {
        start(&known, &receiver, 1).await == 201
    })
    .await;
    let strange = theirs.issue("client").unwrap();
    assert_eq!(start(&client(&ours, None), &receiver, 2).await, 0);
    assert_eq!(start(&client(&ours, Some(&strange)), &receiver, 2).await, 0);
    let of_theirs = client(&theirs, Some(&shown));
    assert_eq!(start(&of_theirs, &receiver, 2).await, 0);
    let plain = world
        .http
        .get(format!("{}/healthz/live", receiver.base_url()));
    assert!(plain.send().await.is_err(), "answered without TLS");

    // Who connects and says nothing, or stops in the middle of it, holds up nobody and is cut off.
    let mut silent = TcpStream::connect(receiver.address()).await.unwrap();
    let mut slow = TcpStream::connect(receiver.address()).await.unwrap();
    slow.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    assert_eq!(start(&known, &receiver, 3).await, 201);
    // What comes next needs ten seconds as well.
    fs::write(&server, "no certificate").unwrap();
    for stream in [&mut silent, &mut slow] {
        let mut rest = Vec::new();
        let cut_off = timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await;
        assert!(cut_off.is_ok(), "kept waiting for ever");
    }

    // A certificate that cannot be used changes nothing; the next one is taken without a restart.
    wait_until("it is told", PATIENCE, async || {
        !receiver
            .logs_of("the new certificate cannot be used")
            .is_empty()
    })
    .await;
    assert_eq!(start(&known, &receiver, 4).await, 201);
    fs::copy(theirs.issue("server").unwrap(), &server).unwrap();
    wait_until("it is taken", PATIENCE, async || {
        start(&of_theirs, &receiver, 5).await == 201
    })
    .await;
    assert_eq!(start(&known, &receiver, 6).await, 0);
    let told = receiver
        .until_logged("the certificate was read again", 1)
        .await;
    assert_eq!(told.len(), 1);
    receiver.sigterm().unwrap();
    assert_eq!(receiver.wait_exit(PATIENCE).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_authority_of_clients_anybody_gets_tls() {
    let world = Landscape::new("own_tls_open").await;
    let ours = Authority::new("Ours").unwrap();
    let server = ours.issue("server").unwrap();
    let receiver = launch(&world, &server, &ours).env("SAMPLER_TLS_CLIENT_CA_FILE", "");
    let receiver = receiver.start().await.unwrap();
    let anybody = client(&ours, None);
    wait_until("the receiver is prepared", PATIENCE, async || {
        start(&anybody, &receiver, 1).await == 201
    })
    .await;
    // Without the settings it is as it was.
    let plain = world.receiver().start().await.unwrap();
    until_ready(&world.http, &plain).await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_told_at_the_start_and_nothing_of_what_is_in_them() {
    let (ours, theirs) = (
        Authority::new("Ours").unwrap(),
        Authority::new("Theirs").unwrap(),
    );
    let (good, other) = (ours.issue("good").unwrap(), theirs.issue("other").unwrap());
    let text = fs::read_to_string(&good).unwrap();
    let secret = text
        .rsplit("PRIVATE KEY-----\n")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let broken = good.with_file_name("broken.pem");
    fs::write(
        &broken,
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END NOTHING-----\n"),
    )
    .unwrap();
    let [good, other, broken, authority] =
        [&good, &other, &broken, &ours.certificate()].map(|file| path(file));
    let (missing, none) = ("/nowhere/at/all.pem".to_owned(), String::new());
    for (certificate, key, clients, expected) in [
        (&good, &none, &none, "both SAMPLER_TLS_CERT_FILE"),
        (&none, &good, &none, "both SAMPLER_TLS_CERT_FILE"),
        (&none, &none, &authority, "both SAMPLER_TLS_CERT_FILE"),
        (
            &missing,
            &good,
            &none,
            "SAMPLER_TLS_CERT_FILE (tls.cert_file): the certificate cannot be read",
        ),
        (
            &good,
            &missing,
            &none,
            "SAMPLER_TLS_KEY_FILE (tls.key_file): the key cannot be read",
        ),
        (&good, &authority, &none, "the key holds none as PEM"),
        (&broken, &good, &none, "the certificate holds none as PEM"),
        (&good, &broken, &none, "the key holds none as PEM"),
        (
            &good,
            &other,
            &none,
            "the key is not that of the certificate",
        ),
        (
            &good,
            &good,
            &broken,
            "the file of client authorities holds none",
        ),
    ] {
        let environment = [
            ("SAMPLER_TLS_CERT_FILE", certificate.as_str()),
            ("SAMPLER_TLS_KEY_FILE", key),
            ("SAMPLER_TLS_CLIENT_CA_FILE", clients),
        ];
        let (code, told) = run(RECEIVER, &["--check-config"], &environment).await;
        assert_eq!(code, Some(64), "{expected}: {told}");
        assert!(told.contains(expected), "{expected}: {told}");
        assert!(!told.contains(secret), "{told}");
    }
    let environment = [
        ("SAMPLER_TLS_CERT_FILE", good.as_str()),
        ("SAMPLER_TLS_KEY_FILE", &good),
        ("SAMPLER_TLS_CLIENT_CA_FILE", &authority),
    ];
    let (code, _) = run(RECEIVER, &["--check-config"], &environment).await;
    assert_eq!(code, Some(0));
}
