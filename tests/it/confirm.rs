//! What Abacus sets aside after its 202 is seen, and shown with its reason.

use std::collections::BTreeMap;
use std::time::Duration;

use sampler_testkit::abacus::{Fault, Options, StandInAbacus};
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{Program, TestDatabase, now_millis, wait_until};
use serde_json::Value;

use crate::landscape::{HOUR, Landscape, PATIENCE, client, until_ready};

async fn world() -> Landscape {
    let options = Options {
        confirms_after: Duration::from_secs(1),
        ..Options::default()
    };
    Landscape {
        database: TestDatabase::new("confirm").await,
        abacus: StandInAbacus::start(options).await.unwrap(),
        http: client(),
    }
}

async fn get(world: &Landscape, program: &Program, path: &str) -> Value {
    let url = format!("{}{path}", program.base_url());
    let response = world.http.get(url).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{path}");
    response.json().await.unwrap()
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().unwrap()
}

/// How many entries there are in each state.
async fn states(world: &Landscape) -> BTreeMap<String, u64> {
    let usages = world.usages().await;
    let mut cursor = usages.find(bson::Document::new()).await.unwrap();
    let mut states = BTreeMap::new();
    while cursor.advance().await.unwrap() {
        let entry = cursor.deserialize_current().unwrap();
        let state = entry.get_str("state").unwrap().to_owned();
        *states.entry(state).or_default() += 1;
    }
    states
}

async fn outcome(world: &Landscape, worker: &Program, outcome: &str) -> u64 {
    let url = format!("{}/metrics", worker.base_url());
    let metrics = world.http.get(url).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let name = format!("sampler_confirmations_total{{outcome=\"{outcome}\"}} ");
    let mut values = metrics.lines().filter_map(|line| line.strip_prefix(&*name));
    values.next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn usages_that_abacus_puts_aside_are_shown_with_their_reason() {
    let world = world().await;
    let aside = Fault::put_aside("plan not found");
    world
        .abacus
        .fault(aside.only_where("resource_instance_id", "instance-3"));
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 4 * HOUR;
    for target in 0..6 {
        let event = start_event(target, start);
        world.take(&receiver, "/v1/events/start", &event).await;
        let event = stop_event(target, start + 2 * HOUR);
        world.take(&receiver, "/v1/events/stop", &event).await;
    }
    let launch = || {
        world
            .worker()
            .env("SAMPLER_CONFIRM", "true")
            .env("SAMPLER_CONFIRM_INTERVAL", "500ms")
    };
    // One dies while it waits for the documents; the next one goes on.
    let first = launch().start().await.unwrap();
    world.until_complete(6).await;
    first.kill().unwrap();
    let posts = world.abacus.post_count();
    let worker = launch().start().await.unwrap();
    wait_until("all are settled", PATIENCE, async || {
        let states = states(&world).await;
        !states.contains_key("accepted") && !states.is_empty()
    })
    .await;
    let settled = states(&world).await;
    let of_aside = settled["set_aside"];
    assert!((2..=3).contains(&of_aside), "{settled:?}");
    assert_eq!(settled["counted"], world.abacus.counted_count());
    assert_eq!(world.abacus.post_count(), posts, "nothing is posted again");
    assert!(world.abacus.questions() > 0);

    let spans = get(
        &world,
        &receiver,
        "/v1/spans?resource_instance_id=instance-3",
    )
    .await;
    let span = &items(&spans)[0];
    assert_eq!(span["proof"]["difference"], 0);
    assert_eq!(span["proof"]["billed"], 2 * HOUR);
    let path = format!("/v1/spans/{}/usages", span["id"].as_str().unwrap());
    let usages = get(&world, &receiver, &path).await;
    for usage in items(&usages) {
        assert_eq!(usage["state"], "set_aside");
        assert_eq!(usage["error"], "plan not found");
    }
    let accepted_at = items(&usages)
        .iter()
        .filter_map(|usage| usage["accepted_at"].as_i64())
        .max();
    let then = format!("{path}?as_of={}", accepted_at.unwrap());
    let then = get(&world, &receiver, &then).await;
    assert!(
        items(&then)
            .iter()
            .all(|usage| usage["state"] == "accepted")
    );

    let causes = get(&world, &receiver, "/v1/suspended").await;
    let [cause] = items(&causes) else {
        panic!("{causes}");
    };
    assert_eq!(cause["error"], "plan not found");
    assert_eq!(cause["status"], Value::Null);
    assert_eq!(
        (cause["spans"].as_u64(), cause["set_aside"].as_u64()),
        (Some(0), Some(of_aside))
    );
    let resource = cause["resource_id"].as_str().unwrap();
    let sums = format!("/v1/usages?resource_id={resource}&group_by=resource_instance_id");
    let sums = get(&world, &receiver, &sums).await;
    let instance = |row: &Value| {
        row["group"]["resource_instance_id"]
            .as_str()
            .map(str::to_owned)
    };
    let billed: Vec<String> = items(&sums).iter().filter_map(instance).collect();
    assert!(!billed.contains(&"instance-3".to_owned()), "{billed:?}");
    assert_eq!(
        items(&sums)
            .iter()
            .map(|row| row["duration"].as_i64().unwrap())
            .sum::<i64>(),
        5 * 2 * HOUR
    );

    // The one that died may have seen some of them.
    assert!(outcome(&world, &worker, "counted").await <= settled["counted"]);
    let told = || {
        let logs_of = |worker: &Program| {
            worker.logs_of("the upstream has set usages aside that it had accepted")
        };
        [logs_of(&first), logs_of(&worker)].concat()
    };
    wait_until("it is told", PATIENCE, async || !told().is_empty()).await;
    assert!(
        told()
            .iter()
            .all(|line| line["code"] == "confirmation.set_aside")
    );
}
