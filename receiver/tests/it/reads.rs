//! What holds at all addresses that are read: each wrong parameter is named, and a store that does not answer is told.

use crate::store::Behaviour;
use crate::world::{CAUSE, NOW, SPANS, SUMS, World};

const ID: &str = "0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52";

/// A cursor of the spans' list, and one of no list that there is.
const OF_SPANS: &str = "eyJzdGFydCI6MSwiaWQiOnsiVGV4dCI6ImEifX0";
const OF_NUMBERS: &str = "MQ";

/// Addresses with the parameters that are wrong there.
#[rustfmt::skip]
fn wrong_parameters(span: &str) -> Vec<(String, &'static [&'static str])> {
    let long = "x".repeat(1_025);
    let of_spans = |query: &str| format!("{SPANS}&{query}");
    let of_usages = |query: &str| format!("{span}/usages?{query}");
    let of_sums = |query: &str| format!("{SUMS}&{query}");
    let of_audit = |query: &str| format!("/v1/audit?{query}");
    let moments = format!("from={NOW}&to={NOW}");
    let mut rows: Vec<(String, &'static [&'static str])> = vec![
        (of_spans("from=soon&to=-1&limit=0&cursor=AAAA&nope=1&space_id=&plan_id=%00&state=closed\
                &consumer_id=a&consumer_id=b"),
            &["space_id", "consumer_id", "plan_id", "state", "from", "to", "cursor", "limit", "nope"]),
        // A value that is not UTF-8 is not taken for another id.
        (of_spans("space_id=%ff&plan_id=%C3&state=open%C0"), &["space_id", "plan_id", "state"]),
        (of_spans(&moments), &["to"]),
        ("/v1/spans?order=x".to_owned(), &["order"]),
        ("/v1/spans?order=received&plan_id=large".to_owned(), &["order"]),
        ("/v1/spans?organization_id=o&cause=x&state=suspended".to_owned(), &["cause"]),
        (format!("/v1/spans?organization_id=o&cause={ID}"), &["cause"]),
        (format!("/v1/spans?state=open&cause={ID}"), &["cause"]),
        // No id is an operator of the database.
        ("/v1/spans?resource_id[$ne]=x".to_owned(), &["resource_id[$ne]"]),
        ("/v1/spans?organization_id=o&plan_id[$gt]=".to_owned(), &["plan_id[$gt]"]),
        ("/v1/spans?$where=1".to_owned(), &["$where"]),
        (format!("{span}?nope&limit=1"), &["nope", "limit"]),
        (of_usages("state=open&as_of=x"), &["state", "as_of"]),
        (of_usages("order=x&accepted_to=y"), &["order", "accepted_to"]),
        ("/v1/spans?excluded=false".to_owned(), &["excluded"]),
        ("/v1/unconfirmed?missing=1&space_id=&limit=0&cursor=x&from=1".to_owned(),
            &["space_id", "missing", "cursor", "limit", "from"]),
        (format!("/v1/unconfirmed?cursor={OF_SPANS}"), &["cursor"]),
        (of_usages(&format!("cursor={OF_SPANS}")), &["cursor"]),
        (of_sums("space_id=&plan_id=a&plan_id=b&window=year&group_by=plan&from=soon&to=-1&as_of=x&cursor=AAAA\
                &limit=0&state=open&accepted_to=x"),
            &["space_id", "plan_id", "window", "from", "to", "group_by", "cursor", "accepted_to", "limit", "as_of", "state"]),
        (of_sums(&moments), &["to"]),
        (of_audit("from=x&to=y&limit=0&cursor=z&state=open"), &["from", "to", "cursor", "limit", "state"]),
        (of_audit("who=&span="), &["who", "span"]),
        (of_audit(&format!("who={long}&span={long}")), &["who", "span"]),
        (of_audit("who=a%0Ab"), &["who"]),
        (of_audit("from=2&to=2"), &["to"]),
        (of_audit(&format!("cursor={OF_NUMBERS}")), &["cursor"]),
        ("/v1/suspended?resource_id=&limit=1&cursor=x".to_owned(), &["resource_id", "limit", "cursor"]),
        (format!("{CAUSE}?limit=1"), &["limit"]),
        ("/v1/backlog?due=1".to_owned(), &["due"]),
    ];
    for limit in ["", "0", "1001", "1e2", "+5", "five", "99999999999999999999"] {
        rows.push((of_spans(&format!("limit={limit}")), &["limit"]));
    }
    for fields in ["", ",", "plan_id,", "plan_id,plan_id", "plan_id,%20space_id", "$plan_id"] {
        rows.push((of_sums(&format!("group_by={fields}")), &["group_by"]));
    }
    rows
}

#[tokio::test]
async fn each_wrong_parameter_is_named() {
    let world = World::new();
    let span = world.starts("an instance", NOW).await;
    for (path, names) in wrong_parameters(&span) {
        let answer = world.get(&path).await;
        assert_eq!(answer.status, 400, "{path}");
        answer.names(400, "invalid-query", names);
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_without_its_words() {
    let world = World::new();
    let span = world.starts("an instance", NOW).await;
    let usages = format!("{span}/usages");
    let paths = [
        SPANS,
        &span,
        &usages,
        "/v1/suspended",
        CAUSE,
        "/v1/unconfirmed",
        "/v1/audit",
        "/v1/backlog",
    ];
    for (behaviour, status, slug) in [
        (Behaviour::Unavailable, 503, "database-unavailable"),
        (Behaviour::Unknown, 503, "database-unavailable"),
        (Behaviour::Refused, 500, "internal"),
    ] {
        world.store.set_behaviour(behaviour);
        for path in paths {
            let answer = world.get(path).await;
            assert_eq!(answer.status, status, "{path}");
            answer.names(status, slug, &[]);
            let text = answer.text();
            assert!(!text.contains("kept"), "{text}");
        }
    }
    let unprepared = World::unprepared(None, |_| {});
    for path in [SPANS, CAUSE, SUMS] {
        let answer = unprepared.get(path).await;
        answer.names(503, "database-unavailable", &[]);
    }
}
