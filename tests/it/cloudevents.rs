//! Usages as CloudEvents, into an upstream that recognises a repeat for a while, forgets, and answers finds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::doc;
use sampler_testkit::meter::{MeterFault, MeterOptions, Posted, StandInMeter};
use sampler_testkit::program::Launch;
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::Value;

use crate::landscape::{HOUR, Landscape, PATIENCE};

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
        let options = MeterOptions { horizon, settles };
        let landscape = Landscape::new(label).await;
        let receiver = landscape.ready_receiver().await;
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
    }

    /// One usage of two hours, in two intervals.
    async fn use_two_hours(&self, target: u64) {
        let start = now_millis() - 4 * HOUR;
        let (receiver, end) = (&self.receiver, start + 2 * HOUR);
        self.landscape
            .use_between(receiver, target, start, end)
            .await;
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
    assert_eq!(world.meter.others(), Vec::<String>::new());
    assert!(worker.lines().iter().all(|line| !line.contains("t0k3n")));
    // The stand-in is called over http.
    let mut lines = worker.logs().into_iter();
    assert!(lines.any(|line| line["code"] == "security.abacus_http"));
    let entry = world.landscape.usages().await;
    let entry = entry.find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(entry.get_i32("status").unwrap(), 204);
    assert!(!entry.contains_key("location"));
}

/// The usage counts, its answer is lost, and the worker is killed. Another one posts it again, as long as the
/// upstream recognises it, or for ever: then no address for finds is needed. Once it has forgotten, the usage is
/// found.
#[tokio::test(flavor = "multi_thread")]
async fn what_counted_before_a_kill_counts_once() {
    let no_finds = [
        ("SAMPLER_UPSTREAM_HORIZON", "forever"),
        ("SAMPLER_UPSTREAM_FIND_URL", ""),
    ];
    for (label, horizon, settings, is_forgotten) in [
        ("ce_again", seconds(3_600), &[][..], false),
        ("ce_forever", seconds(3_600), &no_finds, false),
        ("ce_found", seconds(4), &[], true),
        ("ce_nothing", Duration::ZERO, &[], true),
    ] {
        let world = World::new(label, horizon, seconds(1)).await;
        let worker = || {
            let set = |launch: Launch, (name, value): &(&str, &str)| launch.env(name, *value);
            settings.iter().fold(world.worker(), set).start()
        };
        world.meter.post_fault(MeterFault::LosesAnswer);
        world.use_two_hours(1).await;
        let first = worker().await.unwrap();
        wait_until("it is posted", PATIENCE, async || {
            !world.meter.posts().is_empty()
        })
        .await;
        first.kill().unwrap();
        let posted = world.meter.posts().remove(0);
        world.meter.post_fault(MeterFault::None);
        if is_forgotten {
            wait_until("it is forgotten", PATIENCE, async || {
                posted.at.elapsed() > horizon
            })
            .await;
        }
        let _worker = worker().await.unwrap();
        world.landscape.until_complete(1).await;
        world.assert_exact("instance-1");
        if is_forgotten {
            let finds = world.meter.finds();
            assert!(finds.iter().any(|find| find.found == 1));
            // An upstream that remembers nothing is asked before each post, also the first.
            let was_asked = |post: &Posted| {
                let mut finds = finds.iter();
                finds.any(|find| {
                    find.found == 0 && find.query.contains(&post.id) && find.at < post.at
                })
            };
            assert!(!horizon.is_zero() || world.meter.posts().iter().all(was_asked));
            let usages = world.landscape.usages().await;
            let entry = usages.find_one(doc! { "_id": posted.id }).await;
            let entry = entry.unwrap().unwrap();
            assert_eq!(entry.get_i32("status").unwrap(), 200, "that of the find");
            assert!(!entry.contains_key("location"));
        } else {
            let posts = world.meter.posts();
            let of_first = posts.iter().filter(|post| post.id == posted.id);
            assert!(of_first.count() >= 2, "it is posted again");
            assert_eq!(world.meter.finds().len(), 0, "and nothing is asked");
        }
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
