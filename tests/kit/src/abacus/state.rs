//! What the stand-in knows: what it was sent, what it counts and what it has set aside.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::fault::Faults;
use super::usage::{Refusal, Usage};
use super::{Keep, Options};

/// A day in ms.
const DAY: i64 = 86_400_000;

/// A usage as it was posted.
#[derive(Clone, Debug)]
pub struct Post {
    /// The bytes of the body.
    pub body: Bytes,
    /// The `traceparent` header.
    pub traceparent: Option<String>,
}

impl Post {
    /// The body, if it is JSON; else null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A usage that counts.
#[derive(Clone, Debug)]
pub struct Counted {
    /// What it says.
    pub usage: Arc<Usage>,
}

#[derive(Debug)]
struct Document {
    /// The end of its `Location`.
    number: usize,
    at: i64,
    usage: Arc<Usage>,
    error: Option<String>,
}

/// The key by which repeats are recognised; space and measures are not part of it.
type Key = ([String; 6], i64, i64);

/// What a post is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Accepted { document: usize },
    Refused(Refusal),
    Unauthorized,
}

/// Decides whether a token is good.
pub(super) type TokenCheck = Box<dyn Fn(&str) -> bool + Send + Sync>;

pub(super) struct State {
    pub(super) options: Options,
    /// Which tokens are good, where not all are.
    pub(super) token_check: Option<TokenCheck>,
    pub(super) faults: Faults,
    /// By how many ms the dates of answers are ahead.
    pub(super) dates_ahead: i64,
    pub(super) posts: Vec<Post>,
    documents: Vec<Document>,
    seen: HashSet<Key>,
    /// The last number of a `Location`.
    numbers: usize,
    /// How often a document was asked for.
    pub(super) questions: usize,
    mapped: HashSet<String>,
    pub(super) post_count: u64,
    pub(super) counted_count: u64,
}

/// A post before it is judged.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) at: i64,
    pub(super) body: Bytes,
    pub(super) authorization: Option<String>,
    pub(super) traceparent: Option<String>,
}

impl State {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            token_check: None,
            faults: Faults::default(),
            dates_ahead: 0,
            posts: Vec::new(),
            documents: Vec::new(),
            seen: HashSet::new(),
            numbers: 0,
            questions: 0,
            mapped: HashSet::new(),
            post_count: 0,
            counted_count: 0,
        }
    }

    /// Notes a post that failed because of a fault.
    pub(super) fn turn_away(&mut self, incoming: Incoming) {
        self.record(incoming);
    }

    /// Judges a post. `aside`: it is to be set aside in any case.
    pub(super) fn take(&mut self, incoming: Incoming, aside: Option<String>) -> Reply {
        if self.options.keep == Keep::Count {
            self.post_count += 1;
            self.counted_count += 1;
            return Reply::Accepted { document: 0 };
        }
        let reply = match self.parse(&incoming) {
            Ok(usage) => self.judge(usage, incoming.at, aside),
            Err(reply) => reply,
        };
        self.record(incoming);
        reply
    }

    /// Whether the header holds a token that is wanted, if one is.
    pub(super) fn is_authorized(&self, authorization: Option<&str>) -> bool {
        let token = authorization.and_then(|header| header.strip_prefix("Bearer "));
        let check = self.token_check.as_ref();
        check.is_none_or(|check| token.is_some_and(check))
    }

    fn parse(&self, incoming: &Incoming) -> Result<Usage, Reply> {
        if !self.is_authorized(incoming.authorization.as_deref()) {
            return Err(Reply::Unauthorized);
        }
        Usage::parse(&incoming.body).map_err(Reply::Refused)
    }

    fn judge(&mut self, usage: Usage, at: i64, aside: Option<String>) -> Reply {
        self.numbers += 1;
        let document = self.numbers;
        let key = key(&usage);
        if self.seen.contains(&key) {
            // Abacus passes over what it recognises: under this Location there never is anything.
            return Reply::Accepted { document };
        }
        let error = aside.or_else(|| reason_to_put_aside(&usage, at));
        if error.is_none() {
            self.seen.insert(key);
            self.counted_count += 1;
        }
        self.documents.push(Document {
            number: document,
            at,
            usage: Arc::new(usage),
            error,
        });
        Reply::Accepted { document }
    }

    fn record(&mut self, incoming: Incoming) {
        self.post_count += 1;
        if self.options.keep == Keep::Count {
            return;
        }
        self.posts.push(Post {
            body: incoming.body,
            traceparent: incoming.traceparent,
        });
    }

    /// The document of a usage, once its time has come.
    pub(super) fn document(&self, number: usize, now: i64) -> Option<Value> {
        let documents = &self.documents;
        let index = documents.binary_search_by_key(&number, |document| document.number);
        let document = &documents[index.ok()?];
        let wait = i64::try_from(self.options.confirms_after.as_millis()).unwrap_or(i64::MAX);
        if now < document.at.saturating_add(wait) {
            return None;
        }
        let mut value = serde_json::to_value(&*document.usage).ok()?;
        if let Some(error) = &document.error {
            value["error"] = json!(error);
        }
        Some(value)
    }

    /// Makes a part of a mapping; false if there is one already, which is never changed.
    pub(super) fn map(&mut self, part: &str) -> bool {
        self.mapped.insert(part.to_owned())
    }

    pub(super) fn counted(&self) -> impl Iterator<Item = Counted> + '_ {
        let counts = self
            .documents
            .iter()
            .filter(|document| document.error.is_none());
        counts.map(|document| Counted {
            usage: Arc::clone(&document.usage),
        })
    }

    pub(super) fn put_aside(&self) -> Vec<(Arc<Usage>, String)> {
        let aside = |document: &Document| {
            document
                .error
                .clone()
                .map(|error| (Arc::clone(&document.usage), error))
        };
        self.documents.iter().filter_map(aside).collect()
    }
}

fn key(usage: &Usage) -> Key {
    let texts = [
        usage.organization_id.clone(),
        usage.resource_instance_id.clone(),
        usage.consumer_id.clone(),
        usage.resource_id.clone(),
        usage.plan_id.clone(),
        usage.dedup_id.clone(),
    ];
    (texts, usage.end, usage.start)
}

fn reason_to_put_aside(usage: &Usage, now: i64) -> Option<String> {
    let tomorrow = (now.div_euclid(DAY) + 1) * DAY;
    (usage.end >= tomorrow).then(|| "the usage is in the future".to_owned())
}
