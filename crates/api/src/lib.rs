//! The documents of the API, each once: the receiver writes them, the console and the command line
//! read them, and the `OpenAPI` description is made from them.
//!
//! Ids are plain texts: the original Sampler accepted ids that a receiver refuses today. The verifier
//! has types of its own, because it shares nothing with the programs
//! (`docs/decisions.md#the-verifier-shares-no-code`).

mod control;
mod events;
pub mod given;
mod operations;
mod problem;
mod spans;
mod usages;

pub use sampler_domain::{Timestamp, text, units};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::form_urlencoded;
use utoipa::ToSchema;

pub use control::{Control, ControllerSettings, SamplingControl, StartRates};
pub use events::{
    Batch, BatchResult, CloudEvent, CloudEventData, Event, EventType, GivenMeasure, Mapping,
    StartEvent, StopEvent, UpdateEvent,
};
pub use operations::{
    Act, Backlog, Cause, Closing, Healthy, Reason, ResendRequest, Resumed, SkipRequest,
};
pub use problem::{FieldError, Problem};
pub use spans::{Delivery, Excluded, LastError, Plan, Proof, Span};
pub use usages::{Amount, Sum, Unconfirmed, Usage};

/// Milliseconds since the epoch, UTC; in a request also RFC 3339 with an offset.
#[derive(ToSchema)]
#[schema(
    minimum = 0,
    maximum = 253_402_300_800_000_i64,
    example = 1_795_176_611_766_i64
)]
pub struct Moment(#[allow(dead_code, reason = "only its schema is used")] i64);

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
}

/// The target: the six ids of a resource and its customer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub struct Target {
    #[schema(example = "acme", min_length = 1, max_length = 1024)]
    pub organization_id: String,
    #[schema(example = "prod", min_length = 1, max_length = 1024)]
    pub space_id: String,
    #[schema(example = "shop", min_length = 1, max_length = 1024)]
    pub consumer_id: String,
    #[schema(example = "postgres", min_length = 1, max_length = 1024)]
    pub resource_id: String,
    #[schema(example = "large", min_length = 1, max_length = 1024)]
    pub plan_id: String,
    #[schema(example = "orders-db", min_length = 1, max_length = 1024)]
    pub resource_instance_id: String,
}

/// A quantity that is in use from the start to the stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Measure {
    #[schema(example = "memory", min_length = 1, max_length = 1024)]
    pub measure: String,
    /// A number, a string, an object or a list.
    #[schema(example = 512)]
    pub quantity: Value,
}

/// A stretch of time. It ends before it starts where something is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Interval {
    #[schema(value_type = Moment)]
    pub start: Timestamp,
    #[schema(value_type = Moment)]
    pub end: Timestamp,
}

impl From<sampler_domain::Target> for Target {
    fn from(target: sampler_domain::Target) -> Self {
        Self {
            organization_id: target.organization_id.into(),
            space_id: target.space_id.into(),
            consumer_id: target.consumer_id.into(),
            resource_id: target.resource_id.into(),
            plan_id: target.plan_id.into(),
            resource_instance_id: target.resource_instance_id.into(),
        }
    }
}

impl From<sampler_domain::Interval> for Interval {
    fn from(sampler_domain::Interval { start, end }: sampler_domain::Interval) -> Self {
        Self { start, end }
    }
}

/// The measures of a document.
pub fn measures(measures: &[sampler_domain::Measure]) -> Vec<Measure> {
    let measure = |it: &sampler_domain::Measure| Measure {
        measure: it.measure.to_string(),
        quantity: it.quantity.as_json().clone(),
    };
    measures.iter().map(measure).collect()
}

/// The cursor in the address of the next page, as a receiver writes it in the header `Link` (RFC 8288).
pub fn next_cursor_in(link: &str) -> Option<String> {
    let (address, _) = link.split_once(">; rel=\"next\"")?;
    let (_, query) = address.rsplit_once('?')?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let (_, cursor) = pairs.find(|(name, _)| name == "cursor")?;
    Some(cursor.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_cursor_of_the_next_page() {
        for (header, cursor) in [
            (
                "</v1/spans?cursor=a%2Bb&limit=2>; rel=\"next\"",
                Some("a+b"),
            ),
            (
                "<https://inner:1/v1/spans?a=%3Fcursor%3Db&cursor=x>; rel=\"next\"",
                Some("x"),
            ),
            ("</v1/spans?cursor=y>; rel=\"prev\"", None),
            ("</v1/spans>; rel=\"next\"", None),
            ("", None),
        ] {
            assert_eq!(next_cursor_in(header).as_deref(), cursor, "{header}");
        }
    }
}
