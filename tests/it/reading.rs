//! Spans and their usages, read from a receiver while a worker bills them.

use reqwest::header::{ETAG, IF_NONE_MATCH, LINK, LOCATION};
use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::Value;

use crate::landscape::{HOUR, Landscape, PATIENCE, until_ready};

struct Reader<'a> {
    world: &'a Landscape,
    receiver: &'a Program,
}

impl Reader<'_> {
    async fn get(&self, path: &str) -> (reqwest::header::HeaderMap, Value) {
        let url = format!("{}{path}", self.receiver.base_url());
        let response = self.world.http.get(url).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        (headers, serde_json::from_str(&text).unwrap())
    }

    /// The items of all pages.
    async fn list(&self, path: &str) -> Vec<Value> {
        let (mut items, mut path) = (Vec::new(), path.to_owned());
        loop {
            let (headers, page) = self.get(&path).await;
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            let Some(link) = headers.get(LINK) else {
                return items;
            };
            let link = link.to_str().unwrap().split(['<', '>']).nth(1);
            link.unwrap().clone_into(&mut path);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_billed_can_be_read_and_adds_up() {
    let world = Landscape::new("reading").await;
    let receiver = world.receiver().start().await.unwrap();
    let worker = world.worker().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let reader = Reader {
        world: &world,
        receiver: &receiver,
    };
    let start = now_millis() - 5 * HOUR - HOUR / 2;
    let end = start + 2 * HOUR + 1;
    let event = with(start_event(1, start), "id", "start-1");
    let started = world.post(&receiver, "/v1/events/start", &event).await;
    assert_eq!(started.status().as_u16(), 201);
    let location = started.headers()[LOCATION].to_str().unwrap().to_owned();
    world
        .take(&receiver, "/v1/events/start", &start_event(11, start + 1))
        .await;
    // It is sampled to the present before it is stopped, so that a part is taken back.
    wait_until("the span is sampled", PATIENCE, async || {
        let (_, span) = reader.get(&location).await;
        assert_eq!(span["proof"]["difference"], 0, "{span}");
        span["sampled_to"].as_i64().unwrap() > end
    })
    .await;
    let open_at = now_millis();
    world
        .take(&receiver, "/v1/events/stop", &stop_event(1, end))
        .await;
    world.until_complete(1).await;

    let (headers, span) = reader.get(&location).await;
    assert_eq!(span["state"], "complete");
    assert_eq!(span["sampled_to"], end);
    assert_eq!(span["start_event_id"], "start-1");
    assert_eq!(span["planned"], Value::Null);
    let proof = &span["proof"];
    assert_eq!(
        (&proof["used"], &proof["billed"]),
        (
            &span["end"].as_i64().map(|end| end - start).into(),
            &(2 * HOUR + 1).into()
        )
    );
    assert_eq!(proof["difference"], 0);
    let tag = headers[ETAG].clone();
    let url = format!("{}{location}", receiver.base_url());
    let again = world.http.get(url).header(IF_NONE_MATCH, tag).send().await;
    assert_eq!(again.unwrap().status().as_u16(), 304);

    let usages = reader.list(&format!("{location}/usages?limit=2")).await;
    assert_eq!(proof["usages"], usages.len());
    let mut sampled_to = start;
    for usage in &usages {
        assert_eq!(usage["state"], "accepted", "{usage}");
        assert_eq!(usage["status"], 202);
        assert!(usage["location"].is_string(), "{usage}");
        assert_eq!(usage["interval"]["start"], sampled_to);
        sampled_to = usage["interval"]["end"].as_i64().unwrap();
    }
    assert_eq!(sampled_to, end);
    let sum = |usages: &[Value]| -> i64 {
        let durations = usages
            .iter()
            .map(|usage| usage["duration"].as_i64().unwrap());
        durations.sum()
    };
    assert_eq!(sum(&usages), 2 * HOUR + 1);
    assert_eq!(world.billed("instance-1"), i128::from(2 * HOUR + 1));
    // Before the stop, more was billed than there is now.
    let then = reader
        .list(&format!("{location}/usages?as_of={open_at}"))
        .await;
    assert!(sum(&then) > 2 * HOUR + 1, "{then:?}");

    let of = |name: &str| event[name].as_str().unwrap().to_owned();
    let organization = of("organization_id");
    let all = format!("/v1/spans?organization_id={organization}&limit=1");
    let all = reader.list(&all);
    let starts: Vec<_> = all
        .await
        .iter()
        .map(|span| span["start"].as_i64())
        .collect();
    assert_eq!(starts, [Some(start + 1), Some(start)], "the newest first");
    for query in [
        format!("organization_id={organization}&state=complete"),
        format!("resource_id={}&to={}", of("resource_id"), start + 1),
        format!("resource_instance_id={}", of("resource_instance_id")),
    ] {
        let (_, page) = reader.get(&format!("/v1/spans?{query}")).await;
        assert_eq!(page["items"], Value::Array(vec![span.clone()]), "{query}");
    }
    for narrowing in ["organization_id", "resource_id", "resource_instance_id"] {
        let mine = format!("resource_instance_id={}", of("resource_instance_id"));
        let query = match narrowing {
            "resource_instance_id" => mine,
            _ => format!("{narrowing}={}&{mine}", of(narrowing)),
        };
        let range = format!("from={}&to={}", start - HOUR, end + 7 * HOUR);
        let by_hour = format!("/v1/usages?{query}&window=hour&{range}&limit=2");
        let sums = reader.list(&by_hour).await;
        let count = sums.iter().map(|row| row["usages"].as_u64().unwrap());
        assert_eq!(count.sum::<u64>(), usages.len() as u64, "{narrowing}");
        assert_eq!(sum(&sums), 2 * HOUR + 1, "{narrowing}");
        let all = reader.list(&format!("/v1/usages?{query}")).await;
        assert_eq!(sum(&all), 2 * HOUR + 1, "{narrowing}");
        let quantity = event["measured_usage"][0]["quantity"].as_i64().unwrap();
        let amount = &all[0]["measures"][0]["amount"];
        assert_eq!(*amount, quantity * (2 * HOUR + 1), "{narrowing}");
        let then = format!("/v1/usages?{query}&as_of={open_at}");
        assert!(sum(&reader.list(&then).await) > 2 * HOUR + 1, "{narrowing}");
    }
    drop(worker);
}
