//! A snapshot that the token may not have compared keeps nobody waiting.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::{Stream, StreamExt, stream};
use sampler_testkit::uaa::SigningKey;
use tokio::time::{Instant, sleep};

use super::{NDJSON, SNAPSHOTS, instance};
use crate::auth_fixture::{bearer, configured};
use crate::world::{NOW, World};

const JSON: &str = "application/json";

const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A receiver, and a token that lets read one resource, which is not `postgres`.
struct OfRedis {
    world: World,
    bearer: String,
}

impl OfRedis {
    fn new() -> Self {
        let key = SigningKey::rsa("key-1").unwrap();
        let world = World::secured(configured(&key), |options| {
            options.settings.limits.body_timeout = BODY_TIMEOUT;
        });
        let bearer = bearer(&key, &["abacus.sampler.redis.read"]);
        Self { world, bearer }
    }

    async fn status(&self, kind: &str, body: impl Stream<Item = Bytes> + Send + 'static) -> u16 {
        let post = Request::post(SNAPSHOTS)
            .header("content-type", kind)
            .header("authorization", &self.bearer);
        let body = Body::from_stream(body.map(Ok::<_, io::Error>));
        self.world.answer(post.body(body).unwrap()).await.status
    }
}

fn head(resource: &str) -> String {
    format!("\"resource_id\":\"{resource}\",\"at\":{NOW}")
}

/// A body of NDJSON has no end here, so the answer does not wait for it. JSON is read whole first.
#[tokio::test(start_paused = true)]
async fn a_resource_that_may_not_be_read_is_refused_as_soon_as_it_is_named() {
    let receiver = OfRedis::new();
    let head = head("postgres");
    let began = Instant::now();
    let body = stream::iter([Bytes::from(format!("{{{head}}}\n"))]).chain(stream::pending());
    assert_eq!(receiver.status(NDJSON, body).await, 403);
    assert!(began.elapsed() < Duration::from_secs(1));
    for whole in [
        format!("{{{head},\"instances\":[{{}}]}}"),
        format!("{{\"instances\":[{{}}],\"x\":{{}},{head}}}"),
    ] {
        let body = stream::iter([Bytes::from(whole.clone())]);
        assert_eq!(receiver.status(JSON, body).await, 403, "{whole}");
    }
}

/// A megabyte of a body that has more.
fn megabyte(kind: &str, number: usize) -> Bytes {
    let text = if kind == NDJSON {
        "\n".repeat(1 << 20)
    } else {
        let name = |place: usize| format!("{}-{number}-{place}", "i".repeat(999));
        let one = |place| format!("{},", instance(&name(place), "large"));
        (0..1_000).map(one).collect()
    };
    text.into()
}

/// A megabyte each second is fast enough for a snapshot, but not for one of nobody knows what.
#[tokio::test(start_paused = true)]
async fn a_resource_must_be_named_within_the_time_for_a_body() {
    let receiver = OfRedis::new();
    let rest = |kind: &'static str, count: usize| {
        stream::iter(0..count).then(async move |number| {
            sleep(Duration::from_secs(1)).await;
            megabyte(kind, number)
        })
    };
    let text = |text: String| stream::iter([Bytes::from(text)]);
    let own = head("redis");
    for (kind, begun) in [
        (NDJSON, "\n".to_owned()),
        (JSON, format!("{{{own},\"instances\":[")),
    ] {
        let began = Instant::now();
        let body = text(begun).chain(rest(kind, 8));
        assert_eq!(receiver.status(kind, body).await, 408, "{kind}");
        assert_eq!(began.elapsed().as_secs(), BODY_TIMEOUT.as_secs(), "{kind}");
    }
    // Once it is named, it has its time. JSON is there in the time that it has without.
    let last = format!("{}]}}", instance("last", "large"));
    for (kind, begun, count, last) in [
        (NDJSON, format!("{{{own}}}\n"), 8, String::new()),
        (JSON, format!("{{{own},\"instances\":["), 4, last),
    ] {
        let body = text(begun).chain(rest(kind, count)).chain(text(last));
        assert_eq!(receiver.status(kind, body).await, 200, "{kind}");
    }
}
