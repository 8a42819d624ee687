//! A stand-in for the receiver's API: spans and usages as the contract shows them, in pages.

use std::collections::HashMap;
use std::sync::Mutex;

use axum::http::header;
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::stub::{Reply, Seen, Stub};

pub(crate) const HOUR: i64 = 3_600_000;
pub(crate) const IDS: [&str; 6] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
];

type Query = HashMap<String, String>;

/// What the API knows, and how it behaves.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) spans: Vec<Value>,
    pub(crate) usages: HashMap<String, Vec<Value>>,
    /// What is answered instead of the next answers, front first: a status, and when to come again.
    pub(crate) trouble: Vec<(u16, Option<&'static str>)>,
    pub(crate) token: Option<&'static str>,
    /// At most so many items are on a page, whatever is asked for.
    pub(crate) page: usize,
    pub(crate) links_are_absolute: bool,
    pub(crate) never_ends: bool,
    /// An empty page, with a link to the real one, comes before each first page.
    pub(crate) begins_empty: bool,
    /// The answers to requests that change something.
    pub(crate) writes: Option<fn(&Seen) -> Reply>,
    /// Done once, before the first usages are answered.
    pub(crate) on_usages: Option<fn(&mut World)>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            page: 1_000,
            ..Self::default()
        }
    }

    /// A span of `hours`, sampled by hours, newest entries last.
    pub(crate) fn add(&mut self, instance: &str, start: i64, hours: i64, is_open: bool) {
        let id = format!("span-{instance}");
        let end = start + hours * HOUR;
        let usages = (0..hours).map(|hour| usage(&id, instance, start + hour * HOUR, HOUR));
        self.usages.insert(id.clone(), usages.collect());
        let length = end - start;
        self.spans.push(json!({
            "id": id, "target": target(instance),
            "measured_usage": [{ "measure": "memory", "quantity": 512 }],
            "start": start, "end": (!is_open).then_some(end),
            "state": if is_open { "open" } else { "complete" },
            "start_event_id": format!("{instance}-1"), "end_event_id": format!("{instance}-2"),
            "sampled_to": end, "due_at": end + HOUR, "planned": null,
            "delivery": { "attempts": 0, "unanswered": false, "last_error": null },
            "proof": { "used": length, "billed": length, "skipped": 0, "unanswered": 0,
                       "unsampled": 0, "usages": hours, "ledger": length, "difference": 0 },
        }));
    }

    /// Serves it.
    pub(crate) fn start(self) -> Stub {
        let world = Mutex::new(self);
        Stub::start(move |seen, _| world.lock().unwrap().answer(seen))
    }

    fn answer(&mut self, seen: &Seen) -> Reply {
        let expected = self.token.map(|token| format!("Bearer {token}"));
        if expected.as_deref() != seen.header("authorization") {
            let problem = json!({ "title": "No", "detail": "The token\u{1b} is not valid." });
            return Reply::of(401, problem);
        }
        if !self.trouble.is_empty() {
            let (status, after) = self.trouble.remove(0);
            let reply = Reply::of(status, Value::Null);
            return match after {
                Some(after) => reply.with(header::RETRY_AFTER, after),
                None => reply,
            };
        }
        let Some(address) = seen.what.strip_prefix("GET ") else {
            let none = Reply::of(404, Value::Null);
            return self.writes.map_or(none, |answer| answer(seen));
        };
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let query = form_urlencoded::parse(query.as_bytes());
        let query = query.into_owned().collect();
        match path.split('/').collect::<Vec<_>>()[..] {
            ["", "v1", "spans"] => self.list_spans(&query),
            ["", "v1", "spans", id] => self.span(id).map_or_else(no_such_span, Reply::from),
            ["", "v1", "spans", id, "usages"] => self.list_usages(id, path, &query),
            _ => Reply::of(404, Value::Null),
        }
    }

    fn span(&self, id: &str) -> Option<Value> {
        self.spans.iter().find(|span| span["id"] == id).cloned()
    }

    fn list_spans(&self, query: &Query) -> Reply {
        let narrow = [IDS[0], IDS[3], IDS[5], "state"];
        if !narrow.iter().any(|id| query.contains_key(*id)) {
            return too_wide();
        }
        let moment = |name: &str| query.get(name).map(|text| text.parse::<i64>().unwrap());
        let (from, to) = (moment("from"), moment("to"));
        let mut spans = self.spans.clone();
        spans.retain(|span| {
            let is_of = |id: &&str| query.get(*id).is_none_or(|it| span["target"][id] == **it);
            let (start, end) = (span["start"].as_i64().unwrap(), span["end"].as_i64());
            IDS.iter().all(is_of)
                && from.is_none_or(|from| end.is_none_or(|end| from < end))
                && to.is_none_or(|to| start < to)
        });
        spans.sort_by_key(|span| -span["start"].as_i64().unwrap());
        self.page_of(spans, "/v1/spans", query)
    }

    fn list_usages(&mut self, id: &str, path: &str, query: &Query) -> Reply {
        if let Some(act) = self.on_usages.take() {
            act(self);
        }
        if self.span(id).is_none() {
            return no_such_span();
        }
        let usages = self.usages.get(id).cloned().unwrap_or_default();
        self.page_of(usages, path, query)
    }

    /// A page, with a link to the next.
    fn page_of(&self, items: Vec<Value>, path: &str, query: &Query) -> Reply {
        if self.begins_empty && !query.contains_key("cursor") {
            let link = format!("<{path}?cursor=c%2B0>; rel=\"next\"");
            return Reply::from(json!({ "items": [] })).with(header::LINK, &link);
        }
        let number = |name: &str| {
            query
                .get(name)
                .map(|it| it.replace("c+", "").parse().unwrap())
        };
        let limit = number("limit").unwrap_or(100).min(self.page.max(1));
        let from: usize = number("cursor").unwrap_or(0);
        let total = items.len();
        let items: Vec<Value> = items.into_iter().skip(from).take(limit).collect();
        let next = from + items.len();
        let page = Reply::from(json!({ "items": items }));
        if next >= total && !self.never_ends {
            return page;
        }
        let host = if self.links_are_absolute {
            "https://inner.example:8443"
        } else {
            ""
        };
        let link = format!("<{host}{path}?limit={limit}&cursor=c%2B{next}>; rel=\"next\"");
        page.with(header::LINK, &link)
    }
}

/// The answers of a receiver to what it does not have, and to what it does not want to read.
fn no_such_span() -> Reply {
    let detail = "There is no span with this id, or the token does not allow reading its resource.";
    Reply::problem(404, "no-such-span", detail)
}

fn too_wide() -> Reply {
    let detail = "The query reads too many spans. Add organization_id, resource_id or \
                  resource_instance_id, or state=suspended.";
    Reply::problem(422, "query-too-wide", detail)
}

fn target(instance: &str) -> Value {
    let values = ["o", "s", "c", "postgres", "large", instance];
    IDS.into_iter().zip(values).collect()
}

pub(crate) fn usage(span: &str, instance: &str, start: i64, duration: i64) -> Value {
    let end = start + duration;
    json!({
        "id": format!("{instance}-{start}"), "span": span,
        "interval": { "start": start, "end": end },
        "timestamp": (start + end).div_euclid(2), "duration": duration,
        "measured_usage": [{ "measure": "memory", "quantity": 512 },
                           { "measure": "duration", "quantity": duration }],
        "accepted_at": end + 59, "status": 202, "location": "https://abacus.example/usage/1",
    })
}

/// The events behind [`World::add`].
pub(crate) fn events(instance: &str, start: i64, hours: i64, is_open: bool) -> String {
    let event = |kind: &str, id: &str, timestamp: i64| {
        let mut event = json!({ "type": kind, "id": id, "timestamp": timestamp });
        let target = target(instance);
        event
            .as_object_mut()
            .unwrap()
            .extend(target.as_object().unwrap().clone());
        event
    };
    let mut begin = event("start", &format!("{instance}-1"), start);
    begin["measured_usage"] = json!([{ "measure": "memory", "quantity": 512.0 }]);
    if is_open {
        return format!("{begin}\n");
    }
    let end = event("stop", &format!("{instance}-2"), start + hours * HOUR);
    format!("{begin}\n{end}\n")
}
