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
use crate::auth::{WRITE, bearer, secured};
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
        for (index, resource) in RESOURCES.into_iter().enumerate() {
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

    async fn get(&self, path: &str, scopes: &[&str]) -> Answer {
        let bearer = self.bearer(scopes);
        let asked = self.world.ask("GET", path, &[&bearer], &Value::Null).await;
        asked.answer
    }

    /// What a pointer leads to in each item of a page, in order.
    async fn listed(&self, path: &str, pointer: &str, scopes: &[&str]) -> Vec<String> {
        let answer = self.get(path, scopes).await;
        assert_eq!(answer.status, 200, "{path} {scopes:?}: {answer:?}");
        let page = answer.json();
        let items = page["items"].as_array().unwrap().iter();
        let texts = items.map(|item| item.pointer(pointer).unwrap().as_str().unwrap());
        let mut texts: Vec<String> = texts.map(str::to_owned).collect();
        texts.sort();
        texts
    }

    /// The ids of a list of spans, and the cursor of the next page.
    async fn page(&self, query: &str, scope: &str) -> (Vec<String>, Option<String>) {
        let path = format!("/v1/spans?{query}");
        let next = self.get(&path, &[scope]).await.linked("next");
        let cursor = next.map(|link| link.split_once("cursor=").unwrap().1.to_owned());
        (self.listed(&path, "/id", &[scope]).await, cursor)
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

const RESOURCES: [&str; 2] = ["postgres", "redis"];

/// The query for what both have in common.
const OF_ALL: &str = "organization_id=an%20organization";

/// The beginnings of lists, and where the resource is in an item.
const LISTS: [(&str, &str); 3] = [
    ("/v1/spans?", "/target/resource_id"),
    ("/v1/usages?group_by=resource_id&", "/group/resource_id"),
    ("/v1/unconfirmed?", "/target/resource_id"),
];

#[tokio::test]
async fn spans_of_other_resources_do_not_exist_for_a_scope_of_one() {
    let two = Two::new().await;
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
        for (resource, (span, cause)) in RESOURCES.iter().zip(two.spans.iter().zip(&two.causes)) {
            let may_read = readable.contains(resource);
            for (path, unknown) in [
                (span.clone(), "no-such-span"),
                (format!("{span}/usages"), "no-such-span"),
                (cause.clone(), "no-such-cause"),
            ] {
                let answer = two.get(&path, scopes).await;
                if may_read {
                    assert_eq!(answer.status, 200, "{scopes:?} {path}");
                } else {
                    answer.problem(404, unknown);
                }
            }
            let own: &[&str] = if may_read { &[resource] } else { &[] };
            for (list, pointer) in LISTS {
                let path = format!("{list}resource_id={resource}");
                let listed = two.listed(&path, pointer, scopes).await;
                assert_eq!(listed, own, "{scopes:?} {path}");
            }
        }
        for (list, pointer) in LISTS {
            let path = format!("{list}{OF_ALL}");
            let listed = two.listed(&path, pointer, scopes).await;
            assert_eq!(listed, readable, "{scopes:?} {path}");
        }
        let unconfirmed = two.listed("/v1/unconfirmed", "/target/resource_id", scopes);
        assert_eq!(unconfirmed.await, readable, "{scopes:?}");
        let sum = two.get(&format!("/v1/usages?{OF_ALL}"), scopes).await;
        let usages = sum.json()["items"][0]["usages"].as_u64().unwrap_or(0);
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
    let ids = two
        .spans
        .each_ref()
        .map(|span| span.rsplit('/').next().unwrap());
    // With the scope for everything there is a page behind each of the two.
    let (first, cursor) = two.page(&format!("{OF_ALL}&limit=1"), all).await;
    let cursor = cursor.expect("there are two");
    assert_eq!(first, [span_id(&position(&cursor))]);
    let (second, _) = two.page(&format!("{OF_ALL}&cursor={cursor}"), all).await;
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    // What may not be read does not come, whoever has made the cursor, and wherever it begins.
    let begin = made_up_cursor();
    for cursor in [&cursor, &begin] {
        for query in [
            OF_ALL,
            "resource_instance_id=an%20instance",
            "state=suspended",
        ] {
            let query = format!("{query}&limit=1&cursor={cursor}");
            let (listed, next) = two.page(&query, own).await;
            let is_own = listed.iter().all(|span| span == ids[0]);
            assert!(is_own && next.is_none(), "{query}: {listed:?}");
        }
        let of_redis = format!("resource_id=redis&cursor={cursor}");
        assert_eq!(two.page(&of_redis, own).await, (Vec::new(), None));
        let (listed, _) = two.page(&of_redis, all).await;
        assert!(listed.iter().all(|span| span == ids[1]), "{listed:?}");
    }
    let (listed, _) = two.page(&format!("{OF_ALL}&cursor={begin}"), own).await;
    assert_eq!(listed, ids[..1]);
    // A list of another kind does not take it.
    let path = format!("/v1/usages?{OF_ALL}&cursor={cursor}");
    assert_eq!(two.get(&path, &[all]).await.status, 400, "{path}");
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
    let asked = async |path: &str| {
        let answer = two.get(path, &["abacus.sampler.postgres.read"]).await;
        (answer.status, answer.text())
    };
    let unknown = format!("/v1/spans/{}", "0".repeat(24));
    assert_eq!(asked(&two.spans[1]).await, asked(&unknown).await);
    let unknown = "/v1/suspended/00000000-0000-5000-8000-000000000000";
    assert_eq!(asked(&two.causes[1]).await, asked(unknown).await);
}
