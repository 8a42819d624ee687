//! What clients with a token of one resource, or with slow connections, can do to others.

use std::time::Duration;

use bson::doc;
use reqwest::{Client, StatusCode};
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::program::Launch;
use sampler_testkit::uaa::StandInUaa;
use sampler_testkit::{Program, now_millis};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::landscape::{HOUR, Landscape, client, until_ready};
use crate::secured::{secured, uaa};

/// How long each sum takes in the database.
const SUM: Duration = Duration::from_secs(3);

/// How long others may wait for what slow clients do not keep from them.
const AT_ONCE: Duration = Duration::from_secs(4);

/// The token of a client with this name.
fn token(uaa: &StandInUaa, name: &str, scope: &str) -> String {
    uaa.sign(&json!({
        "client_id": name, "scope": [scope], "aud": ["abacus.sampler.any"],
        "iss": uaa.issuer(), "exp": now_millis() / 1_000 + 300,
    }))
}

async fn add_up(http: &Client, receiver: &Program, token: &str, resource: &str) -> StatusCode {
    let url = format!("{}/v1/usages?resource_id={resource}", receiver.base_url());
    let answer = http.get(url).bearer_auth(token).send().await.unwrap();
    answer.status()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_that_adds_up_without_end_takes_no_sums_away_from_others() {
    let (set, uaa) = (
        ReplicaSet::start(Options::single()).await.unwrap(),
        uaa().await,
    );
    let receiver = Launch::new("sampler-receiver").env("DB_URI", set.uri_of("sampler"));
    let receiver = secured(receiver, &uaa).start().await.unwrap();
    let http = client();
    until_ready(&http, &receiver).await;
    let slow = doc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": {
            "failCommands": ["aggregate"], "namespace": "sampler.spans_usages",
            "blockConnection": true, "blockTimeMS": i64::try_from(SUM.as_millis()).unwrap(),
        },
    };
    set.command(0, slow).await.unwrap();
    let evil = token(&uaa, "evil", "abacus.sampler.evilres.read");
    let honest = token(&uaa, "honest", "abacus.sampler.postgres.read");
    let mut hostile = JoinSet::new();
    let address = receiver.base_url();
    for _ in 0..16 {
        let (http, evil, address) = (http.clone(), evil.clone(), address.clone());
        hostile.spawn(async move {
            loop {
                let url = format!("{address}/v1/usages?resource_id=evilres");
                let _ = http.get(url).bearer_auth(&evil).send().await;
            }
        });
    }
    for _ in 0..4 {
        let began = Instant::now();
        let status = add_up(&http, &receiver, &honest, "postgres").await;
        let took = began.elapsed();
        assert_eq!(status, StatusCode::OK, "{took:?}");
        // Its own, and at the most those of another that has not used more yet.
        assert!(took < 4 * SUM, "{took:?}");
    }
    hostile.shutdown().await;
}

fn head(path: &str, media_type: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\n\
         content-length: {length}\r\n\r\n"
    )
}

async fn begun(receiver: &Program, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(receiver.address()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_stand_still_keep_no_stops_out_where_max_inflight_is_set() {
    let world = Landscape::new("stalled_bodies").await;
    let receiver = world.receiver().env("MAX_INFLIGHT", "8");
    let receiver = receiver.start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - HOUR;
    for target in 0..6 {
        let event = start_event(target, start);
        world.take(&receiver, "/v1/events/start", &event).await;
    }
    let mut slow = Vec::new();
    for path in ["/v1/events/start", "/v1/events/stop", "/v1/events"] {
        for _ in 0..16 {
            let text = format!("{}{{\"id\":", head(path, "application/json", 400));
            slow.push(begun(&receiver, &text).await);
        }
    }
    for target in 0..6 {
        let event = stop_event(target, start + 1);
        let stop = world.post(&receiver, "/v1/events/stop", &event);
        let stopped = timeout(AT_ONCE, stop).await.expect("an answer");
        assert_eq!(stopped.status(), StatusCode::CREATED);
    }
    drop(slow);
}
