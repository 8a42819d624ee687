//! Usages as CloudEvents, into an upstream that recognises a repeat for a while, forgets, and answers finds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bson::doc;
use sampler_testkit::abacus::{Options, StandInAbacus};
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::meter::{MeterFault, MeterOptions, Posted, Sought, StandInMeter};
use sampler_testkit::program::Launch;
use sampler_testkit::{Program, TestDatabase, now_millis, sdks, wait_until};
use serde_json::Value;

use crate::landscape::{HOUR, Landscape, PATIENCE, client, until_ready};

/// How long one post may take, in the settings of these tests.
const POST_TIMEOUT: Duration = Duration::from_secs(1);

struct World {
    landscape: Landscape,
    meter: StandInMeter,
    receiver: Program,
    horizon: Duration,
    settles: Duration,
}

impl World {
    async fn new(label: &str, horizon: Duration, settles: Duration) -> Self {
        let options = MeterOptions {
            horizon,
            settles,
            ..MeterOptions::default()
        };
        let landscape = Landscape {
            database: TestDatabase::new(label).await,
            abacus: StandInAbacus::start(Options::default()).await.unwrap(),
            http: client(),
        };
        let receiver = landscape.receiver().start().await.unwrap();
        until_ready(&landscape.http, &receiver).await;
        Self {
            meter: StandInMeter::start(options).await.unwrap(),
            landscape,
            receiver,
            horizon,
            settles,
        }
    }

    fn worker(&self) -> Launch {
        let millis = |length: Duration| format!("{}ms", length.as_millis());
        self.landscape
            .worker()
            .env("COLLECTOR_URL", "")
            .env("SAMPLER_UPSTREAM", "cloudevents")
            .env("SAMPLER_UPSTREAM_URL", self.meter.post_url())
            .env("SAMPLER_UPSTREAM_FIND_URL", self.meter.find_url())
            .env("SAMPLER_UPSTREAM_HORIZON", millis(self.horizon))
            .env("SAMPLER_UPSTREAM_SETTLES", millis(self.settles))
            .env("SAMPLER_POST_TIMEOUT", millis(POST_TIMEOUT))
            .env("SAMPLER_RETRY_FIRST", "100ms")
            .env("SAMPLER_CONFIRM_INTERVAL", "100ms")
    }

    /// One usage of two hours, in two intervals.
    async fn use_two_hours(&self, target: u64) {
        let start = now_millis() - 4 * HOUR;
        let (receiver, landscape) = (&self.receiver, &self.landscape);
        let event = start_event(target, start);
        landscape.take(receiver, "/v1/events/start", &event).await;
        let event = stop_event(target, start + 2 * HOUR);
        landscape.take(receiver, "/v1/events/stop", &event).await;
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.receiver.base_url());
        let answer = self.landscape.http.get(url).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        answer.json().await.unwrap()
    }

    async fn span_of(&self, instance: &str) -> Value {
        let list = self
            .get(&format!("/v1/spans?resource_instance_id={instance}"))
            .await;
        let id = list["items"][0]["id"].as_str().unwrap().to_owned();
        self.get(&format!("/v1/spans/{id}")).await
    }

    /// Each usage counts once, its repeats say the same, and together they are what was used.
    fn assert_exact(&self, instance: &str) {
        let mut bodies = BTreeMap::new();
        for post in self.meter.posts() {
            let first = bodies.entry(post.id).or_insert_with(|| post.body.clone());
            assert_eq!(*first, post.body, "a repeat says something else");
        }
        let counted = self.meter.counted();
        let mut ids: Vec<&str> = counted.iter().filter_map(|it| it["id"].as_str()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "one counts twice");
        assert_eq!(self.meter.sum(instance), 2 * HOUR, "{counted:#?}");
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_usage_is_one_event_in_structured_mode_and_nothing_is_asked() {
    let world = World::new("ce_plain", seconds(3_600), seconds(1)).await;
    world.use_two_hours(1).await;
    let worker = world.worker().env("SAMPLER_UPSTREAM_TOKEN", "t0k3n");
    let worker = worker.start().await.unwrap();
    world.landscape.until_complete(1).await;
    world.assert_exact("instance-1");
    let posts = world.meter.posts();
    assert!(posts.len() >= 2);
    for post in &posts {
        assert_eq!(post.path, "/api/v1/events?tenant=a%20b");
        assert_eq!(post.content_type, "application/cloudevents+json");
        assert_eq!(post.authorization.as_deref(), Some("Bearer t0k3n"));
        let event: Value = serde_json::from_str(&post.body).unwrap();
        assert_eq!(event["source"], "sampler");
        assert_eq!(event["subject"], event["data"]["organization_id"]);
        let duration: i64 = event["data"]["duration"].as_str().unwrap().parse().unwrap();
        let interval = &event["data"]["interval"];
        let length = interval["end"].as_i64().unwrap() - interval["start"].as_i64().unwrap();
        assert_eq!(duration, length);
    }
    assert_eq!(world.meter.finds().len(), 0);
    assert_sdks_agree(&posts).await;
    // Probes of the time ask for the root.
    assert!(!world.meter.others().is_empty());
    assert!(world.meter.others().iter().all(|path| path == "/"));
    assert!(worker.lines().iter().all(|line| !line.contains("t0k3n")));
    // The stand-in is called over http.
    let mut lines = worker.logs().into_iter();
    assert!(lines.any(|line| line["code"] == "security.abacus_http"));
    let entry = world.landscape.usages().await;
    let entry = entry.find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(entry.get_i32("status").unwrap(), 204);
    assert!(!entry.contains_key("location"));
}

/// The official SDKs read what was sent.
async fn assert_sdks_agree(posts: &[Posted]) {
    let request = |post: &Posted| {
        serde_json::json!({
            "headers": { "content-type": post.content_type }, "body": post.body,
        })
    };
    let requests: Value = posts.iter().map(request).collect();
    let parse = move || {
        [
            sdks::parsed_by_node(&requests),
            sdks::parsed_by_python(&requests),
        ]
    };
    let parsed = tokio::task::spawn_blocking(parse).await.unwrap();
    for events in parsed {
        let events = events.unwrap();
        assert_eq!(events.as_array().unwrap().len(), posts.len());
        for (event, post) in events.as_array().unwrap().iter().zip(posts) {
            let sent: Value = serde_json::from_str(&post.body).unwrap();
            for name in ["id", "source", "type", "subject", "data"] {
                assert_eq!(event[name], sent[name], "{name}");
            }
        }
    }
}

/// The usage counts, its answer is lost, and the worker is killed. Another one posts it again, as long as the
/// upstream recognises it, or for ever. Then no address for finds is needed.
#[tokio::test(flavor = "multi_thread")]
async fn what_counted_before_a_kill_and_is_remembered_is_posted_again() {
    for (label, horizon, find_url) in [
        ("ce_again", "1h", None),
        ("ce_forever", "forever", Some("")),
    ] {
        let world = World::new(label, seconds(3_600), seconds(1)).await;
        let find_url = find_url.map_or_else(|| world.meter.find_url(), str::to_owned);
        let worker = || {
            let worker = world.worker().env("SAMPLER_UPSTREAM_HORIZON", horizon);
            worker.env("SAMPLER_UPSTREAM_FIND_URL", find_url.as_str())
        };
        world.meter.post_fault(MeterFault::LosesAnswer);
        world.use_two_hours(1).await;
        let first = worker().start().await.unwrap();
        wait_until("it is posted", PATIENCE, async || {
            !world.meter.posts().is_empty()
        })
        .await;
        first.kill().unwrap();
        world.meter.post_fault(MeterFault::None);
        let _worker = worker().start().await.unwrap();
        world.landscape.until_complete(1).await;
        world.assert_exact("instance-1");
        let posts = world.meter.posts();
        let of_first = posts.iter().filter(|post| post.id == posts[0].id);
        assert!(of_first.count() >= 2, "it is posted again");
        assert_eq!(world.meter.finds().len(), 0, "and nothing is asked");
    }
}

/// The usage counts, its answer is lost, and the worker is killed. Another one comes when the upstream has
/// forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn what_counted_before_a_kill_and_was_forgotten_is_found() {
    let world = World::new("ce_found", seconds(4), seconds(1)).await;
    world.meter.post_fault(MeterFault::LosesAnswer);
    world.use_two_hours(1).await;
    let worker = world.worker().start().await.unwrap();
    wait_until("it is posted", PATIENCE, async || {
        !world.meter.posts().is_empty()
    })
    .await;
    worker.kill().unwrap();
    let first = world.meter.posts()[0].at;
    world.meter.post_fault(MeterFault::None);
    wait_until("it is forgotten", PATIENCE, async || {
        first.elapsed() > world.horizon
    })
    .await;
    let _worker = world.worker().start().await.unwrap();
    world.landscape.until_complete(1).await;
    world.assert_exact("instance-1");
    assert!(world.meter.finds().iter().any(|find| find.found == Some(1)));
    let id = world.meter.posts()[0].id.clone();
    let usages = world.landscape.usages().await;
    let entry = usages.find_one(doc! { "_id": id }).await.unwrap().unwrap();
    assert_eq!(entry.get_i32("status").unwrap(), 200, "that of the find");
    assert!(!entry.contains_key("location"));
}

/// With a horizon no longer than the margin the first post is asked for, too, and a kill at any moment
/// leaves each usage counted once.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_remembers_nothing_counts_once() {
    let world = World::new("ce_nothing", Duration::ZERO, Duration::from_millis(500)).await;
    for target in 1..4 {
        world.use_two_hours(target).await;
    }
    for round in 0..6 {
        let fault = match round {
            1 | 4 => MeterFault::LosesAnswer,
            2 | 5 => MeterFault::Status(503),
            _ => MeterFault::None,
        };
        world.meter.post_fault(fault);
        let posts = world.meter.posts().len();
        let worker = world.worker().start().await.unwrap();
        let began = Instant::now();
        wait_until("it does something", PATIENCE, async || {
            let is_done = complete(&world).await == 3;
            is_done || world.meter.posts().len() > posts || began.elapsed() > seconds(5)
        })
        .await;
        worker.kill().unwrap();
    }
    world.meter.post_fault(MeterFault::None);
    let _worker = world.worker().start().await.unwrap();
    world.landscape.until_complete(3).await;
    for instance in ["instance-1", "instance-2", "instance-3"] {
        world.assert_exact(instance);
    }
    // Each post follows a find of its own, the first one too.
    let (posts, finds) = (world.meter.posts(), world.meter.finds());
    for (index, post) in posts.iter().enumerate() {
        let earlier = posts[..index].iter().rfind(|it| it.id == post.id);
        let is_after = |at: Instant| earlier.is_none_or(|earlier| at > earlier.at);
        let is_its = |find: &&Sought| find.query.contains(&post.id) && find.found == Some(0);
        let mut finds = finds.iter().filter(is_its);
        assert!(
            finds.any(|find| is_after(find.at) && find.at < post.at),
            "post {index} was not asked for"
        );
    }
}

/// After an outage longer than the horizon all usages are looked up, a few at a time.
#[tokio::test(flavor = "multi_thread")]
async fn finds_after_a_long_outage_are_limited() {
    const SPANS: u64 = 16;
    let world = World::new("ce_flood", seconds(2), Duration::from_millis(300)).await;
    world.meter.post_fault(MeterFault::Status(503));
    for target in 1..=SPANS {
        world.use_two_hours(target).await;
    }
    // A quarter of the spans in progress may wait for finds.
    let worker = world.worker().env("SAMPLER_PROCESS_CONCURRENCY", "8");
    let _worker = worker.start().await.unwrap();
    wait_until("all are asked for", PATIENCE, async || {
        let finds = world.meter.finds();
        let asked: BTreeSet<&String> = finds.iter().map(|find| &find.query).collect();
        asked.len() as u64 >= SPANS
    })
    .await;
    world.meter.post_fault(MeterFault::None);
    world.landscape.until_complete(SPANS).await;
    for target in 1..=SPANS {
        world.assert_exact(&format!("instance-{target}"));
    }
    let at_once = world.meter.finds_at_once();
    assert!((1..=2).contains(&at_once), "{at_once}");
}

async fn complete(world: &World) -> u64 {
    let complete = doc! { "processing.complete": true };
    let spans = world.landscape.spans().await;
    spans.count_documents(complete).await.unwrap()
}

/// However finds fail or hang, nothing is guessed, and what needs none is posted.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_clear_answer_nothing_is_posted_and_others_go_on() {
    let world = World::new("ce_unclear", seconds(2), seconds(1)).await;
    world.meter.post_fault(MeterFault::LosesAnswer);
    world.meter.find_fault(MeterFault::Page);
    world.use_two_hours(1).await;
    let _worker = world.worker().start().await.unwrap();
    wait_until("it is asked for", PATIENCE, async || {
        world.meter.finds().len() > 2
    })
    .await;
    let posts = world.meter.posts().len();
    for fault in [
        MeterFault::Page,
        MeterFault::Status(404),
        MeterFault::Status(500),
        MeterFault::Hangs,
    ] {
        world.meter.find_fault(fault);
        let finds = world.meter.finds().len();
        wait_until("it is asked again", PATIENCE, async || {
            world.meter.finds().len() > finds + 1
        })
        .await;
    }
    assert_eq!(world.meter.posts().len(), posts, "nothing is posted");
    let span = world.span_of("instance-1").await;
    assert_eq!(span["state"], "stopped", "{span}");
    let delivery = &span["delivery"];
    assert!(delivery["attempts"].as_u64().unwrap() > 4, "{span}");
    let error = delivery["last_error"]["error"].as_str().unwrap();
    assert!(error.contains("find"), "{error}");
    assert!(span["suspended"].is_null(), "{span}");
    // Another usage needs no find.
    world.meter.post_fault(MeterFault::None);
    world.use_two_hours(2).await;
    wait_until("the other one is posted", PATIENCE, async || {
        world.meter.sum("instance-2") == 2 * HOUR
    })
    .await;
    world.meter.find_fault(MeterFault::None);
    world.landscape.until_complete(2).await;
    world.assert_exact("instance-1");
    world.assert_exact("instance-2");
}

/// A login page with 200 accepts nothing, and what is accepted and never there is set aside, owed, and sent
/// again, after a look.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_and_not_there_is_set_aside_and_owed() {
    let world = World::new("ce_owed", POST_TIMEOUT, Duration::from_millis(300)).await;
    world.meter.post_fault(MeterFault::Page);
    world.use_two_hours(1).await;
    let worker = world
        .worker()
        .env("SAMPLER_CONFIRM", "true")
        .env("SAMPLER_CONFIRM_TIMEOUT", "1s");
    let _worker = worker.start().await.unwrap();
    wait_until("pages are no acceptance", PATIENCE, async || {
        world.meter.posts().len() > 2
    })
    .await;
    let usages = world.landscape.usages().await;
    assert_eq!(usages.count_documents(doc! {}).await.unwrap(), 0);
    // Accepted, and lost.
    world.meter.post_fault(MeterFault::Status(202));
    world.landscape.until_complete(1).await;
    let all = usages.count_documents(doc! {}).await.unwrap();
    assert!(all >= 2, "{all}");
    wait_until("all are set aside", PATIENCE, async || {
        let aside = doc! { "state": "set_aside", "error": "not found" };
        usages.count_documents(aside).await.unwrap() == all
    })
    .await;
    let organization = world.meter.posts()[0].body.clone();
    let organization: Value = serde_json::from_str(&organization).unwrap();
    let organization = organization["subject"].as_str().unwrap().to_owned();
    let owed_query = format!(
        "/v1/usages?organization_id={organization}&state=set_aside,skipped&group_by=organization_id&window=all"
    );
    let owed = world.get(&owed_query).await;
    assert_eq!(owed["items"][0]["duration"], 2 * HOUR, "{owed}");
    let billed = format!("/v1/usages?organization_id={organization}&window=all");
    assert_eq!(world.get(&billed).await["items"], serde_json::json!([]));
    world.meter.post_fault(MeterFault::None);
    // What was set aside may have come in after all: it is looked up before it is sent again.
    let posts = world.meter.posts();
    let ids: BTreeSet<String> = posts.into_iter().map(|post| post.id).collect();
    for id in &ids {
        let url = format!("{}/v1/usages/{id}/resend", world.receiver.base_url());
        let reason = serde_json::json!({ "reason": "It was lost." });
        let answer = world.landscape.http.post(url).json(&reason).send().await;
        assert_eq!(answer.unwrap().status().as_u16(), 202);
    }
    wait_until("all count", PATIENCE, async || {
        let counted = doc! { "state": "counted", "resend": { "$exists": false } };
        usages.count_documents(counted).await.unwrap() == all
    })
    .await;
    world.assert_exact("instance-1");
    let finds = world.meter.finds();
    for post in world.meter.posts().iter().filter(|post| post.counts) {
        let of_it = |find: &&Sought| find.query.contains(&post.id) && find.at < post.at;
        let last = finds.iter().rfind(of_it).unwrap();
        assert_eq!(last.found, Some(0));
    }
    assert_eq!(world.get(&owed_query).await["items"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_would_count_twice_or_show_a_token_are_refused_by_name() {
    let (url, horizon, find, token) = (
        "SAMPLER_UPSTREAM_URL",
        "SAMPLER_UPSTREAM_HORIZON",
        "SAMPLER_UPSTREAM_FIND_URL",
        "SAMPLER_UPSTREAM_TOKEN",
    );
    let fit = (url, "http://localhost:1/events?x=y");
    for (settings, named) in [
        (&[] as &[(&str, &str)], &[url, horizon] as &[&str]),
        (&[fit], &[horizon]),
        (&[fit, (horizon, "1d")], &[find, horizon]),
        (
            &[fit, (horizon, "1d"), (find, "http://localhost/x")],
            &[find],
        ),
        (&[fit, (horizon, "soon")], &[horizon]),
        (
            &[fit, (horizon, "4000d"), (find, "http://x/{id}")],
            &[horizon],
        ),
        (&[fit, (horizon, "forever"), (find, "{id}")], &[find]),
        (
            &[(url, "http://user:pw@host/x"), (horizon, "forever")],
            &[url],
        ),
        (
            &[fit, (horizon, "forever"), ("SAMPLER_UPSTREAM_TYPE", " ")],
            &["SAMPLER_UPSTREAM_TYPE"],
        ),
        (
            &[fit, (horizon, "1d"), ("SAMPLER_CONFIRM", "true")],
            &["it would count twice", "where usages are looked up"],
        ),
        (&[(url, "localhost"), (horizon, "forever")], &[url]),
        (
            &[fit, (horizon, "forever"), ("SAMPLER_CONFIRM", "true")],
            &[find, "SAMPLER_CONFIRM"],
        ),
        (
            &[
                fit,
                (horizon, "forever"),
                ("SAMPLER_UPSTREAM_SOURCE", "a b"),
            ],
            &["SAMPLER_UPSTREAM_SOURCE"],
        ),
        // Tokens that would not be sent, or be sent in the clear.
        (&[fit, (horizon, "forever"), (token, "a token")], &[token]),
        (
            &[
                (url, "https://meter.example.com/events"),
                (horizon, "1d"),
                (find, "http://meter.example.com/events/{id}"),
                (token, "a.token"),
            ],
            &[find],
        ),
    ] {
        let mut environment = vec![("SAMPLER_UPSTREAM", "cloudevents")];
        environment.extend(settings);
        let ended = crate::settings::run("sampler-worker", &[], &environment).await;
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(64), "{settings:?}: {text}");
        for name in named {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(!text.contains("COLLECTOR_URL"), "{text}");
    }
}

/// Nothing can count twice where a repeat is recognised for ever, nor where what may have been forgotten is
/// looked up, nor with Abacus, whatever is set for the other upstream.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_count_once_are_taken() {
    let fit = [
        ("SAMPLER_UPSTREAM", "cloudevents"),
        ("SAMPLER_UPSTREAM_URL", "http://localhost:1/events?x=y"),
    ];
    let (horizon, find) = ("SAMPLER_UPSTREAM_HORIZON", "SAMPLER_UPSTREAM_FIND_URL");
    let abacus = ("COLLECTOR_URL", "http://localhost:1");
    for settings in [
        vec![fit[0], fit[1], (horizon, "forever")],
        vec![fit[0], fit[1], (horizon, "0s"), (find, "http://x/{id}")],
        vec![abacus, (horizon, "1d")],
        vec![abacus, ("SAMPLER_UPSTREAM", "abacus"), fit[1]],
    ] {
        let ended = crate::settings::run("sampler-worker", &["--check-config"], &settings).await;
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{settings:?}: {text}");
    }
}
