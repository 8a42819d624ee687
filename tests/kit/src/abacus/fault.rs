//! Faults to order.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

/// Which requests a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Posts of usages. The body that a condition sees is the usage.
    Usage,
    /// Posts of mappings. The body that a condition sees has `kind` (`metering`, `rating` or
    /// `pricing`), `resource_id`, `plan_id` and `plan`.
    Mapping,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misdeed {
    Status {
        status: u16,
        retry_after: Option<String>,
    },
    Hang,
    Delay(Duration),
    LoseAnswer,
    CloseBefore,
    PutAside(String),
}

type Condition = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Something to go wrong, for all requests from now on unless it is narrowed.
#[derive(Clone)]
pub struct Fault {
    pub(super) misdeed: Misdeed,
    endpoint: Endpoint,
    left: Option<u64>,
    condition: Option<Condition>,
}

impl Fault {
    fn new(misdeed: Misdeed) -> Self {
        Self {
            misdeed,
            endpoint: Endpoint::Usage,
            left: None,
            condition: None,
        }
    }

    /// An answer of that status, with nothing counted.
    pub fn status(status: u16) -> Self {
        Self::new(Misdeed::Status {
            status,
            retry_after: None,
        })
    }

    /// An answer of that status with a `Retry-After` of any text, with nothing counted.
    pub fn status_retry_after(status: u16, retry_after: impl Into<String>) -> Self {
        Self::new(Misdeed::Status {
            status,
            retry_after: Some(retry_after.into()),
        })
    }

    /// No answer, ever, and nothing counted.
    pub fn hang() -> Self {
        Self::new(Misdeed::Hang)
    }

    /// The usage counts at once, but the answer takes its time. Other faults apply as well.
    pub fn delay(latency: Duration) -> Self {
        Self::new(Misdeed::Delay(latency))
    }

    /// The usage counts, but the connection is closed without an answer.
    pub fn lose_answer() -> Self {
        Self::new(Misdeed::LoseAnswer)
    }

    /// The connection is closed without an answer, and nothing counts.
    pub fn close_before() -> Self {
        Self::new(Misdeed::CloseBefore)
    }

    /// 202, but afterwards the usage is put aside with this error.
    pub fn put_aside(error: impl Into<String>) -> Self {
        Self::new(Misdeed::PutAside(error.into()))
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

    /// For posts of mappings, not of usages.
    #[must_use]
    pub fn on_mappings(mut self) -> Self {
        self.endpoint = Endpoint::Mapping;
        self
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("misdeed", &self.misdeed)
            .field("endpoint", &self.endpoint)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

/// What is to be done to one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) delay: Duration,
    pub(super) misdeed: Option<Misdeed>,
}

/// The faults that are ordered, oldest first.
#[derive(Debug, Default)]
pub(super) struct Faults {
    ordered: Vec<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.ordered.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.ordered.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordered.is_empty()
    }

    /// What applies to a request: all delays, and the first of the other faults.
    pub(super) fn orders(&mut self, endpoint: Endpoint, body: &Value) -> Orders {
        let mut orders = Orders::default();
        for fault in &mut self.ordered {
            let is_delay = matches!(fault.misdeed, Misdeed::Delay(_));
            if (orders.misdeed.is_some() && !is_delay) || !fault.applies(endpoint, body) {
                continue;
            }
            fault.left = fault.left.map(|left| left - 1);
            match &fault.misdeed {
                Misdeed::Delay(latency) => orders.delay += *latency,
                misdeed => orders.misdeed = Some(misdeed.clone()),
            }
        }
        self.ordered.retain(|fault| fault.left != Some(0));
        orders
    }
}

impl Fault {
    fn applies(&self, endpoint: Endpoint, body: &Value) -> bool {
        let condition = self.condition.as_ref();
        self.endpoint == endpoint && condition.is_none_or(|condition| condition(body))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_that_applies_is_taken_and_used_up() {
        let mut faults = Faults::default();
        faults.add(Fault::hang().only_where("plan_id", "small"));
        faults.add(Fault::status(503).times(2));
        faults.add(Fault::lose_answer());
        let (small, large) = (json!({ "plan_id": "small" }), json!({ "plan_id": "large" }));
        let mut next = |body| faults.orders(Endpoint::Usage, body).misdeed.unwrap();
        let unavailable = Misdeed::Status {
            status: 503,
            retry_after: None,
        };
        assert_eq!(next(&small), Misdeed::Hang);
        assert_eq!(next(&large), unavailable);
        assert_eq!(next(&large), unavailable);
        assert_eq!(next(&large), Misdeed::LoseAnswer);
        assert_eq!(next(&small), Misdeed::Hang);
    }

    #[test]
    fn delays_come_on_top() {
        let mut faults = Faults::default();
        faults.add(Fault::status(500));
        faults.add(Fault::delay(Duration::from_secs(1)));
        faults.add(Fault::delay(Duration::from_secs(2)).times(1));
        let orders = faults.orders(Endpoint::Usage, &Value::Null);
        assert_eq!(orders.delay, Duration::from_secs(3));
        assert!(orders.misdeed.is_some());
        assert_eq!(
            faults.orders(Endpoint::Usage, &Value::Null).delay,
            Duration::from_secs(1)
        );
    }

    #[test]
    fn endpoints_are_apart() {
        let mut faults = Faults::default();
        faults.add(Fault::status(429).on_mappings());
        assert_eq!(
            faults.orders(Endpoint::Usage, &Value::Null),
            Orders::default()
        );
        assert!(
            faults
                .orders(Endpoint::Mapping, &Value::Null)
                .misdeed
                .is_some()
        );
    }
}
