//! Faults that the stand-in can be told to show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

/// Which requests a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Posts of usages. The body that a condition sees is the usage.
    Usage,
    /// Questions for the document of a usage. There is no body.
    Document,
}

/// What goes wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An answer of that status, with nothing counted.
    Status {
        status: u16,
        /// The `Retry-After`, any text.
        retry_after: Option<String>,
    },
    /// No answer, ever, and nothing counted.
    Hang,
    /// The usage counts at once, but the answer takes its time. Other faults apply as well.
    Delay(Duration),
    /// The usage counts, but the connection is closed without an answer.
    LoseAnswer,
    /// The connection is closed without an answer, and nothing counts.
    CloseBefore,
    /// 202, but afterwards the usage is set aside with this error.
    PutAside(String),
}

type Condition = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// A fault of all requests from now on, unless it is narrowed.
#[derive(Clone)]
pub struct Fault {
    pub(super) kind: FaultKind,
    endpoint: Endpoint,
    left: Option<u64>,
    condition: Option<Condition>,
    name: &'static str,
}

impl Fault {
    /// A fault of this kind, for posts of usages.
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            endpoint: Endpoint::Usage,
            left: None,
            condition: None,
            name: "",
        }
    }

    /// [`FaultKind::Status`] without `Retry-After`.
    pub fn status(status: u16) -> Self {
        Self::new(FaultKind::Status {
            status,
            retry_after: None,
        })
    }

    /// [`FaultKind::Status`].
    pub fn status_retry_after(status: u16, retry_after: impl Into<String>) -> Self {
        Self::new(FaultKind::Status {
            status,
            retry_after: Some(retry_after.into()),
        })
    }

    /// [`FaultKind::Hang`].
    pub fn hang() -> Self {
        Self::new(FaultKind::Hang)
    }

    /// [`FaultKind::LoseAnswer`].
    pub fn lose_answer() -> Self {
        Self::new(FaultKind::LoseAnswer)
    }

    /// [`FaultKind::CloseBefore`].
    pub fn close_before() -> Self {
        Self::new(FaultKind::CloseBefore)
    }

    /// [`FaultKind::PutAside`].
    pub fn put_aside(error: impl Into<String>) -> Self {
        Self::new(FaultKind::PutAside(error.into()))
    }

    /// Only for this percentage of requests, spread evenly.
    #[must_use]
    pub fn percent(self, percent: u8) -> Self {
        let (percent, seen) = (u64::from(percent), AtomicU64::new(0));
        // 37 has no divisor in common with 100, so the requests that meet the fault are spread.
        self.only(move |_| seen.fetch_add(1, Ordering::Relaxed) * 37 % 100 < percent)
    }

    /// Only for the next `count` requests that it applies to.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.left = Some(count);
        self
    }

    /// Only for requests whose body is like that.
    #[must_use]
    pub fn only(mut self, condition: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(Arc::new(condition));
        self
    }

    /// Only for requests whose body has this text in this field.
    #[must_use]
    pub fn only_where(self, field: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        self.only(move |body| body[field].as_str() == Some(text.as_str()))
    }

    /// With a name, by which it can be ended while others go on.
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// For questions for documents, not for posts of usages.
    #[must_use]
    pub fn on_documents(mut self) -> Self {
        self.endpoint = Endpoint::Document;
        self
    }
}

/// The faults of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) delay: Duration,
    pub(super) failure: Option<FaultKind>,
}

/// The active faults, oldest first.
#[derive(Default)]
pub(super) struct Faults {
    active: Vec<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.active.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.active.clear();
    }

    pub(super) fn end(&mut self, name: &str) {
        self.active.retain(|fault| fault.name != name);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// What applies to a request: all delays, and the first of the other faults.
    pub(super) fn apply(&mut self, endpoint: Endpoint, body: &Value) -> Applied {
        let mut applied = Applied::default();
        for fault in &mut self.active {
            let is_delay = matches!(fault.kind, FaultKind::Delay(_));
            if (applied.failure.is_some() && !is_delay) || !fault.applies(endpoint, body) {
                continue;
            }
            fault.left = fault.left.map(|left| left - 1);
            match &fault.kind {
                FaultKind::Delay(latency) => applied.delay += *latency,
                kind => applied.failure = Some(kind.clone()),
            }
        }
        self.active.retain(|fault| fault.left != Some(0));
        applied
    }
}

impl Fault {
    fn applies(&self, endpoint: Endpoint, body: &Value) -> bool {
        let condition = self.condition.as_ref();
        self.endpoint == endpoint && condition.is_none_or(|condition| condition(body))
    }
}
