//! TLS towards the database and towards Abacus, with an authority that the system does not know.

use mongodb::bson::doc;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::tls::{Authority, TlsFront};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa};
use sampler_testkit::{now_millis, wait_until};

use crate::landscape::{DAY, Landscape, PATIENCE, status, until_ready};

fn front_of(url: &str) -> std::net::SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn abacus_and_uaa_over_tls_are_trusted_by_a_bundle_and_by_nothing_else() {
    let (world, authority) = (Landscape::new("tls").await, Authority::Ours);
    let certificate = authority.issued("server");
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let scopes = ["abacus.usage.sampler.write"];
    uaa.add_client("sampler", "hush", &scopes);
    let abacus = TlsFront::start(front_of(&world.abacus.base_url()), &certificate);
    let abacus = abacus.await.unwrap();
    let front = TlsFront::start(front_of(&uaa.base_url()), &certificate)
        .await
        .unwrap();
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 2 * DAY;
    world
        .take(&receiver, "/v1/events/start", &start_event(1, start))
        .await;
    world
        .take(&receiver, "/v1/events/stop", &stop_event(1, start + DAY))
        .await;

    let worker = || world.worker().env("COLLECTOR_URL", abacus.base_url());
    let stranger = Authority::Theirs;
    for launch in [
        worker(),
        worker().env(
            "SAMPLER_CA_FILE",
            stranger.certificate().display().to_string(),
        ),
    ] {
        let worker = launch.start().await.unwrap();
        wait_until("the certificate is refused", PATIENCE, async || {
            let failed = worker.logs_of("a usage could not be delivered");
            failed
                .iter()
                .any(|line| line["error"].as_str().unwrap().contains("certificate"))
        })
        .await;
        assert_eq!(world.abacus.post_count(), 0);
        worker.kill().unwrap();
    }
    let bundle = authority.certificate().display().to_string();
    let trusting = worker()
        .env("SAMPLER_CA_FILE", bundle)
        .env("SECURED", "true")
        .env("AUTH_SERVER", front.base_url())
        .env("CLIENT_ID", "sampler")
        .env("CLIENT_SECRET", "hush");
    let trusting = trusting.start().await.unwrap();
    // Over TLS it says that its endpoints are without: nobody's secret is sent there.
    wait_until("the way without TLS is refused", PATIENCE, async || {
        let failed = trusting.logs_of("no token could be had");
        failed
            .iter()
            .any(|line| line["error"].as_str().unwrap().contains("leads to http"))
    })
    .await;
    assert_eq!(uaa.asked(Offer::Token), 0);
    uaa.known_as(&front.base_url());
    world.until_complete(1).await;
    assert_eq!(world.billed("instance-1"), i128::from(DAY));
    trusting.kill().unwrap();

    // And whoever has been told not to look does not look.
    world
        .take(&receiver, "/v1/events/start", &start_event(2, start))
        .await;
    world
        .take(&receiver, "/v1/events/stop", &stop_event(2, start + DAY))
        .await;
    let careless = worker()
        .env("SKIP_SSL_VALIDATION", "true")
        .start()
        .await
        .unwrap();
    world.until_complete(2).await;
    assert_eq!(world.billed("instance-2"), i128::from(DAY));
    careless.kill().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mongodb_over_tls_with_its_own_authority_and_a_client_certificate() {
    let (world, authority) = (Landscape::new("mongo_tls").await, Authority::Ours);
    let server = authority.issued("server").display().to_string();
    let client = authority.issued("client").display().to_string();
    let ca = authority.certificate().display().to_string();
    // The testkit itself talks without TLS; a client that begins TLS must show a certificate.
    let flags = [
        "--tlsMode",
        "preferTLS",
        "--tlsCertificateKeyFile",
        &server,
        "--tlsCAFile",
        &ca,
    ];
    let set = ReplicaSet::start(Options {
        arguments: flags.map(str::to_owned).to_vec(),
        ..Options::single()
    });
    let set = set.await.unwrap();
    let uri = |options: &[String]| format!("{}&{}", set.uri_of("tls"), options.join("&"));
    let tls = "tls=true".to_owned();
    let with_ca = format!("tlsCAFile={ca}");
    let with_client = format!("tlsCertificateKeyFile={client}");

    let strangers = Authority::Theirs;
    let strange = strangers.issued("client").display().to_string();
    for options in [
        vec![tls.clone()],
        vec![tls.clone(), with_ca.clone()],
        vec![tls.clone(), with_client.clone()],
        vec![
            tls.clone(),
            with_ca.clone(),
            format!("tlsCertificateKeyFile={strange}"),
        ],
    ] {
        let receiver = world
            .receiver()
            .env("DB_URI", uri(&options))
            .start()
            .await
            .unwrap();
        // It says so each time it has tried in vain.
        wait_until("it has tried", PATIENCE, async || {
            receiver.lines().len() > 3
        })
        .await;
        let ready = status(&world.http, &receiver, "/healthz/ready").await;
        assert_eq!(ready, 503, "{options:?}");
    }

    let uri = uri(&[tls, with_ca, with_client]);
    let receiver = world.receiver().env("DB_URI", &uri).start().await.unwrap();
    let worker = world.worker().env("DB_URI", &uri).start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    until_ready(&world.http, &worker).await;
    let start = now_millis() - 2 * DAY;
    world
        .take(&receiver, "/v1/events/start", &start_event(1, start))
        .await;
    world
        .take(&receiver, "/v1/events/stop", &stop_event(1, start + DAY))
        .await;
    wait_until("it is billed", PATIENCE, async || {
        world.billed("instance-1") == i128::from(DAY)
    })
    .await;
    let status = set.command(0, doc! { "serverStatus": 1 }).await.unwrap();
    let connections = status.get_document("transportSecurity").unwrap();
    assert!(
        connections
            .values()
            .any(|count| count.as_i64().is_some_and(|count| count > 0))
    );
}
