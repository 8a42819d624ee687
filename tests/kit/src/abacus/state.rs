//! What the stand-in knows: what it was sent, what it counts and what it has set aside.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::fault::Faults;
use super::schema::{Refusal, Usage};
use super::{Keep, Options};

/// A day in ms.
const DAY: i64 = 86_400_000;

/// What became of a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Counted,
    /// It was counted before and does not count again.
    Repeat,
    /// 202 was said, but it does not count, for this reason.
    PutAside(String),
    /// It was refused, or failed because of a fault.
    NotTaken,
}

/// A usage as it was posted.
#[derive(Clone, Debug)]
pub struct Post {
    /// When, ms since epoch.
    pub at: i64,
    /// The bytes of the body.
    pub body: Bytes,
    /// The `traceparent` header.
    pub traceparent: Option<String>,
    /// The answer; `None` if none was given.
    pub status: Option<u16>,
    /// What became of it.
    pub outcome: Outcome,
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
    /// When it was posted first, ms since epoch.
    pub at: i64,
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

impl Reply {
    fn status(&self) -> u16 {
        match self {
            Self::Accepted { .. } => 202,
            Self::Refused(_) => 400,
            Self::Unauthorized => 401,
        }
    }
}

/// Decides whether a token is good.
pub(super) type TokenCheck = Box<dyn Fn(&str) -> bool + Send + Sync>;

pub(super) struct State {
    pub(super) options: Options,
    /// Which tokens are good, where not all are.
    pub(super) token_check: Option<TokenCheck>,
    pub(super) faults: Faults,
    posts: Vec<Post>,
    documents: Vec<Document>,
    seen: HashSet<Key>,
    /// The last number of a `Location`.
    numbers: usize,
    questions: usize,
    mapped: HashSet<String>,
    post_count: u64,
    counted_count: u64,
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
    pub(super) fn turn_away(&mut self, incoming: Incoming, status: Option<u16>) {
        self.record(incoming, status, Outcome::NotTaken);
    }

    /// Judges a post. `aside`: it is to be set aside in any case. `answered`: the answer gets through.
    pub(super) fn take(
        &mut self,
        incoming: Incoming,
        aside: Option<String>,
        answered: bool,
    ) -> Reply {
        if self.options.keep == Keep::Count {
            self.post_count += 1;
            self.counted_count += 1;
            return Reply::Accepted { document: 0 };
        }
        let (reply, outcome) = match self.parse(&incoming) {
            Ok(usage) => self.judge(usage, incoming.at, aside),
            Err(reply) => (reply, Outcome::NotTaken),
        };
        self.record(incoming, answered.then_some(reply.status()), outcome);
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

    fn judge(&mut self, usage: Usage, at: i64, aside: Option<String>) -> (Reply, Outcome) {
        let key = key(&usage);
        if self.seen.contains(&key) {
            // Abacus passes over what it recognises: under this Location there never is anything.
            let document = self.next_number();
            return (Reply::Accepted { document }, Outcome::Repeat);
        }
        let error = aside.or_else(|| reason_to_put_aside(&usage, at));
        let document = self.next_number();
        let outcome = if let Some(reason) = &error {
            Outcome::PutAside(reason.clone())
        } else {
            self.seen.insert(key);
            self.counted_count += 1;
            Outcome::Counted
        };
        self.documents.push(Document {
            number: document,
            at,
            usage: Arc::new(usage),
            error,
        });
        (Reply::Accepted { document }, outcome)
    }

    fn next_number(&mut self) -> usize {
        self.numbers += 1;
        self.numbers
    }

    /// Notes that a document was asked for.
    pub(super) fn note_question(&mut self) {
        self.questions += 1;
    }

    pub(super) fn questions(&self) -> usize {
        self.questions
    }

    fn record(&mut self, incoming: Incoming, status: Option<u16>, outcome: Outcome) {
        self.post_count += 1;
        if self.options.keep == Keep::Count {
            return;
        }
        self.posts.push(Post {
            at: incoming.at,
            body: incoming.body,
            traceparent: incoming.traceparent,
            status,
            outcome,
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

    pub(super) fn posts(&self) -> Vec<Post> {
        self.posts.clone()
    }

    pub(super) fn post_count(&self) -> u64 {
        self.post_count
    }

    pub(super) fn counted_count(&self) -> u64 {
        self.counted_count
    }

    pub(super) fn counted(&self) -> impl Iterator<Item = Counted> + '_ {
        let counts = self
            .documents
            .iter()
            .filter(|document| document.error.is_none());
        counts.map(|document| Counted {
            at: document.at,
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
