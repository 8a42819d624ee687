//! Who may read what.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_domain::{
    Acceptance, Delivery, Entry, Granularities, Granularity, Interval, Policy, Span, Timestamp,
    usage_guid,
};
use sampler_testkit::uaa::SigningKey;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::auth_fixture::{WRITE, bearer, secured};
use crate::event::{start, with};
use crate::world::{DAY, HOUR, NOW, START, World};

/// A receiver with a span of postgres and one of redis, in one organization, and a cause of each.
pub(crate) struct Two {
    pub(crate) world: World,
    key: SigningKey,
    pub(crate) spans: [String; 2],
    pub(crate) causes: [String; 2],
}

impl Two {
    pub(crate) async fn new() -> Self {
        let (key, world) = secured();
        let mut two = Self {
            world,
            key,
            spans: Default::default(),
            causes: Default::default(),
        };
        for (index, resource) in ["postgres", "redis"].into_iter().enumerate() {
            let event = with(&start(NOW), "resource_id", resource);
            let bearer = two.bearer(&[WRITE]);
            let asked = two.world.ask("POST", START, &[&bearer], &event).await;
            assert_eq!(asked.status(), 201);
            let mut spans = two.world.spans().into_iter();
            let span = spans.find(|span| span.target.resource_id.as_str() == resource);
            let span = span.unwrap();
            let location = format!("/v1/spans/{}", span.id);
            two.world.watched(&span, false).await;
            two.world.goes_on(&location, NOW + DAY).await;
            let span = two.world.refuses(&location, NOW + DAY).await;
            let cause = span.suspension().unwrap().cause;
            two.causes[index] = format!("/v1/suspended/{cause}");
            two.spans[index] = location;
        }
        two.world.clock.set(NOW + DAY);
        two
    }

    pub(crate) fn bearer(&self, scopes: &[&str]) -> String {
        bearer(&self.key, scopes)
    }

    async fn answer(&self, path: &str, scopes: &[&str]) -> Answer {
        let bearer = self.bearer(scopes);
        let asked = self.world.ask("GET", path, &[&bearer], &Value::Null).await;
        asked.answer
    }

    async fn get(&self, path: &str, scopes: &[&str]) -> (u16, Value) {
        let answer = self.answer(path, scopes).await;
        (answer.status, answer.json())
    }

    /// The items of a page.
    async fn items(&self, path: &str, scopes: &[&str]) -> Vec<Value> {
        let (status, page) = self.get(path, scopes).await;
        assert_eq!(status, 200, "{path} {scopes:?}: {page}");
        page["items"].as_array().unwrap().clone()
    }

    /// The addresses of the spans of a page, and the cursor of the next.
    async fn list(&self, query: &str, scope: &str) -> (Vec<String>, Option<String>) {
        let answer = self.answer(&format!("/v1/spans?{query}"), &[scope]).await;
        assert_eq!(answer.status, 200, "{query}");
        let cursor = |link: String| link.split_once("cursor=").unwrap().1.to_owned();
        let page = answer.json();
        let items = page["items"].as_array().unwrap().iter();
        let address = |item: &Value| format!("/v1/spans/{}", item["id"].as_str().unwrap());
        (
            items.map(address).collect(),
            answer.linked("next").map(cursor),
        )
    }

    /// The resources whose usages are in a sum.
    async fn summed(&self, query: &str, scopes: &[&str]) -> Vec<String> {
        let path = format!("/v1/usages?{query}&group_by=resource_id");
        let items = self.items(&path, scopes).await;
        let resource = |item: &Value| item["group"]["resource_id"].as_str().unwrap().to_owned();
        items.iter().map(resource).collect()
    }

    /// The resources of the spans of a list.
    async fn listed(&self, query: &str, scopes: &[&str]) -> Vec<String> {
        let items = self.items(&format!("/v1/spans?{query}"), scopes).await;
        let resource = |item: &Value| item["target"]["resource_id"].as_str().unwrap().to_owned();
        let mut resources: Vec<String> = items.iter().map(resource).collect();
        resources.sort();
        resources
    }
}

/// A usage of the first hour of the span, which the upstream accepted at its end.
pub(crate) fn billed(span: &Span) -> Entry {
    let (start, end) = (span.start, span.start.plus(HOUR));
    let interval = Interval { start, end };
    let delivery = Delivery {
        interval,
        usage_guid: usage_guid(span, interval),
        is_again: false,
    };
    let acceptance = Acceptance {
        at: end,
        status: Some(202),
        location: None,
    };
    let policy = Policy {
        granularities: Granularities::all(Granularity::Hour),
        stop_grace: 0,
    };
    Entry::new(span, &delivery, acceptance, &policy)
}

/// The query for what both have in common.
const OF_ALL: &str = "organization_id=an%20organization";

#[tokio::test]
async fn spans_of_other_resources_do_not_exist_for_a_scope_of_one() {
    let two = Two::new().await;
    let of_all = OF_ALL;
    for (scopes, readable) in [
        (&["abacus.sampler.read"][..], &["postgres", "redis"][..]),
        (&["abacus.sampler.write"], &["postgres", "redis"]),
        (&["abacus.sampler.admin"], &["postgres", "redis"]),
        (&["abacus.sampler.postgres.read"], &["postgres"]),
        (&["abacus.sampler.redis.write"], &["redis"]),
        (
            &["abacus.sampler.postgres.write", "abacus.sampler.redis.read"],
            &["postgres", "redis"],
        ),
        (&["abacus.sampler.mongodb.read"], &[]),
    ] {
        assert_eq!(two.listed(of_all, scopes).await, readable, "{scopes:?}");
        let each = ["postgres", "redis"].iter().zip(&two.spans);
        for ((resource, span), cause) in each.zip(&two.causes) {
            let may_read = readable.contains(resource);
            let expected = if may_read { 200 } else { 404 };
            for (path, unknown) in [
                (span.clone(), "no-such-span"),
                (format!("{span}/usages"), "no-such-span"),
                (cause.clone(), "no-such-cause"),
            ] {
                let (status, body) = two.get(&path, scopes).await;
                assert_eq!(status, expected, "{scopes:?} {path}");
                let is_unknown = body["type"] == format!("/problems/{unknown}");
                assert_eq!(is_unknown, !may_read);
            }
            let own = two.listed(&format!("resource_id={resource}"), scopes).await;
            let expected = if may_read { &[*resource][..] } else { &[] };
            assert_eq!(own, expected, "{scopes:?}");
            let own = two.summed(&format!("resource_id={resource}"), scopes).await;
            assert_eq!(own, expected, "{scopes:?}");
        }
        assert_eq!(two.summed(of_all, scopes).await, readable, "{scopes:?}");
        for query in ["", of_all] {
            let items = two.items(&format!("/v1/unconfirmed?{query}"), scopes).await;
            let mut resources: Vec<_> = items
                .iter()
                .map(|it| it["target"]["resource_id"].as_str().unwrap())
                .collect();
            resources.sort_unstable();
            assert_eq!(resources, readable, "{scopes:?}");
        }
        let (_, page) = two.get(&format!("/v1/usages?{of_all}"), scopes).await;
        let usages = page["items"][0]["usages"].as_u64().unwrap_or(0);
        assert_eq!(usages, readable.len() as u64, "{scopes:?}");
    }
}

/// The position in a cursor: it is not sealed.
fn position(cursor: &str) -> Value {
    let json = URL_SAFE_NO_PAD.decode(cursor).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// A cursor says where a list begins. What is in the list, the query and the token say, on each page.
#[tokio::test]
async fn a_cursor_of_another_query_or_another_client_lists_nothing_more() {
    let two = Two::new().await;
    let (all, own) = ("abacus.sampler.read", "abacus.sampler.postgres.read");
    // With the scope for everything there is a page behind each of the two.
    let (first, cursor) = two.list(&format!("{OF_ALL}&limit=1"), all).await;
    let (first, cursor) = (first[0].clone(), cursor.expect("there are two"));
    assert_eq!(format!("/v1/spans/{}", span_id(&position(&cursor))), first);
    let (second, _) = two.list(&format!("{OF_ALL}&cursor={cursor}"), all).await;
    let [mine, theirs] = &two.spans;
    let is_other = second.len() == 1 && second[0] != first;
    assert!(is_other, "{first} {second:?}");
    // What may not be read does not come, whoever has made the cursor, and wherever it begins.
    let begin = made_up_cursor();
    for cursor in [&cursor, &begin] {
        for query in [
            OF_ALL,
            "resource_instance_id=an%20instance",
            "state=suspended",
        ] {
            let query = format!("{query}&limit=1&cursor={cursor}");
            let (listed, next) = two.list(&query, own).await;
            let is_own = listed.iter().all(|span| span == mine);
            assert!(is_own, "{query}: {listed:?}");
            assert_eq!(next, None, "{query}");
        }
        let of_redis = format!("resource_id=redis&cursor={cursor}");
        assert_eq!(two.list(&of_redis, own).await, (Vec::new(), None));
        let (listed, _) = two.list(&of_redis, all).await;
        assert!(listed.iter().all(|span| span == theirs), "{listed:?}");
    }
    let (listed, _) = two.list(&format!("{OF_ALL}&cursor={begin}"), own).await;
    assert_eq!(listed, [mine.as_str()]);
    // A list of another kind does not take it.
    let path = format!("/v1/usages?{OF_ALL}&cursor={cursor}");
    assert_eq!(two.get(&path, &[all]).await.0, 400, "{path}");
}

fn span_id(position: &Value) -> String {
    let bytes = position["id"]["ObjectId"]
        .as_array()
        .expect("the id of a span");
    bytes
        .iter()
        .map(|byte| format!("{:02x}", byte.as_u64().unwrap()))
        .collect()
}

/// One that begins a list with its first item.
fn made_up_cursor() -> String {
    let id = json!({ "ObjectId": vec![255; 12] });
    let position = json!({ "start": Timestamp::MAX, "id": id });
    URL_SAFE_NO_PAD.encode(position.to_string())
}

/// What is not there and what may not be read are answered alike, byte for byte.
#[tokio::test]
async fn nobody_learns_which_spans_of_others_exist() {
    let two = Two::new().await;
    let scopes = ["abacus.sampler.postgres.read"];
    let other = two.get(&two.spans[1], &scopes).await;
    let (unknown, _) = two.spans[1].split_at("/v1/spans/".len());
    let unknown = format!("{unknown}{}", "0".repeat(24));
    assert_eq!(other, two.get(&unknown, &scopes).await);
    let other = two.get(&two.causes[1], &scopes).await;
    let unknown = "/v1/suspended/00000000-0000-5000-8000-000000000000";
    assert_eq!(other, two.get(unknown, &scopes).await);
}
