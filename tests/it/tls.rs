//! TLS towards the database and towards Abacus, with an authority that the system does not know.

use mongodb::bson::doc;
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::tls::{TlsFront, certificate};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa};
use sampler_testkit::{now_millis, wait_until};

use crate::landscape::{DAY, Landscape, PATIENCE, status};

fn path(name: &str) -> String {
    certificate(name).display().to_string()
}

async fn front_of(url: &str) -> TlsFront {
    let address = url.trim_start_matches("http://").parse().unwrap();
    let file = certificate("server");
    TlsFront::start(address, &file).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn abacus_and_uaa_over_tls_are_trusted_by_a_bundle_and_by_nothing_else() {
    let world = Landscape::new("tls").await;
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.add_client("sampler", "hush", &["abacus.usage.sampler.write"]);
    let abacus = front_of(&world.abacus.base_url()).await;
    let front = front_of(&uaa.base_url()).await;
    let receiver = world.ready_receiver().await;
    let start = now_millis() - 2 * DAY;
    world.use_between(&receiver, 1, start, start + DAY).await;

    let worker = || world.worker().env("COLLECTOR_URL", abacus.base_url());
    let trusting = |authority| worker().env("SAMPLER_CA_FILE", path(authority));
    for launch in [worker(), trusting("another-authority")] {
        let worker = launch.start().await.unwrap();
        wait_until("the certificate is refused", PATIENCE, async || {
            let failed = worker.logs_of("a usage could not be delivered");
            let mut errors = failed.iter().map(|line| line["error"].as_str().unwrap());
            errors.any(|error| error.contains("certificate"))
        })
        .await;
        assert_eq!(world.abacus.post_count(), 0);
        worker.kill().unwrap();
    }
    let secured = trusting("authority")
        .env("SECURED", "true")
        .env("AUTH_SERVER", front.base_url())
        .env("CLIENT_ID", "sampler")
        .env("CLIENT_SECRET", "hush");
    let secured = secured.start().await.unwrap();
    // Over TLS it says that its endpoints are without: nobody's secret is sent there.
    wait_until("the way without TLS is refused", PATIENCE, async || {
        let failed = secured.logs_of("no token could be had");
        let mut errors = failed.iter().map(|line| line["error"].as_str().unwrap());
        errors.any(|error| error.contains("leads to http"))
    })
    .await;
    assert_eq!(uaa.asked(Offer::Token), 0);
    uaa.known_as(&front.base_url());
    world.until_complete(1).await;
    secured.kill().unwrap();

    // And whoever has been told not to look does not look.
    world.use_between(&receiver, 2, start, start + DAY).await;
    let careless = worker().env("SKIP_SSL_VALIDATION", "true");
    let _careless = careless.start().await.unwrap();
    world.until_complete(2).await;
    for instance in ["instance-1", "instance-2"] {
        assert_eq!(world.billed(instance), i128::from(DAY));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mongodb_over_tls_with_its_own_authority_and_a_client_certificate() {
    let world = Landscape::new("mongo_tls").await;
    let (server, client, ca) = (path("server"), path("client"), path("authority"));
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
    let tls = format!("{}&tls=true", set.uri_of("tls"));
    let with_ca = format!("{tls}&tlsCAFile={ca}");
    for uri in [&tls, &with_ca] {
        let receiver = world.receiver().env("DB_URI", uri).start().await.unwrap();
        // It says so each time it has tried in vain.
        wait_until("it has tried", PATIENCE, async || {
            receiver.lines().len() > 3
        })
        .await;
        let ready = status(&world.http, &receiver, "/healthz/ready").await;
        assert_eq!(ready, 503, "{uri}");
    }

    let uri = format!("{with_ca}&tlsCertificateKeyFile={client}");
    let receiver = world.ready(world.receiver().env("DB_URI", &uri)).await;
    let _worker = world.ready(world.worker().env("DB_URI", &uri)).await;
    let start = now_millis() - 2 * DAY;
    world.use_between(&receiver, 1, start, start + DAY).await;
    wait_until("it is billed", PATIENCE, async || {
        world.billed("instance-1") == i128::from(DAY)
    })
    .await;
    let status = set.command(0, doc! { "serverStatus": 1 }).await.unwrap();
    let mut connections = status.get_document("transportSecurity").unwrap().values();
    assert!(connections.any(|count| count.as_i64() > Some(0)));
}
