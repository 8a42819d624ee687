//! The schemas of requests and answers that no type of a handler has: bodies of requests are read
//! by hand, and the types of the domain know nothing of HTTP.

#![allow(dead_code, reason = "only their schemas are used")]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// Milliseconds since the epoch, UTC.
#[derive(ToSchema)]
#[schema(
    minimum = 0,
    maximum = 253_402_300_800_000_i64,
    example = 1_795_176_611_766_i64
)]
pub(crate) struct Moment(i64);

/// The target: the six ids of a resource and its customer.
#[derive(ToSchema)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub(crate) struct Target {
    #[schema(
        example = "43a8d88a-3ae8-47a8-a82f-f5dd336b1b4c",
        min_length = 1,
        max_length = 1024
    )]
    organization_id: String,
    #[schema(
        example = "78f79e6a-566c-40bd-aed4-ba129d4b858e",
        min_length = 1,
        max_length = 1024
    )]
    space_id: String,
    #[schema(
        example = "a1e7d724-b6a8-4efd-bcac-2ee03bf61a72",
        min_length = 1,
        max_length = 1024
    )]
    consumer_id: String,
    #[schema(example = "postgres", min_length = 1, max_length = 1024)]
    resource_id: String,
    #[schema(example = "large", min_length = 1, max_length = 1024)]
    plan_id: String,
    #[schema(
        example = "982c6024-4f5c-48e8-a64b-cf72d30df7dc",
        min_length = 1,
        max_length = 1024
    )]
    resource_instance_id: String,
}

/// A quantity that is used all the while.
#[derive(ToSchema)]
pub(crate) struct Measure {
    #[schema(example = "memory", min_length = 1, max_length = 1024)]
    measure: String,
    /// A number, a string, an object or a list.
    #[schema(example = 512)]
    quantity: Value,
}

/// A stretch of time. It ends before it starts where something is taken back.
#[derive(ToSchema)]
pub(crate) struct Interval {
    start: Moment,
    end: Moment,
}

/// The planned interval.
#[derive(ToSchema)]
pub(crate) struct Plan {
    start: Moment,
    end: Moment,
    usage_id: String,
}

/// A usage of a resource starts.
#[derive(ToSchema)]
#[schema(as = StartEvent)]
pub(crate) struct Start {
    /// Tells a repeat from a new event.
    #[schema(example = "start-1", max_length = 1024, nullable = false)]
    id: Option<String>,
    timestamp: Moment,
    #[schema(example = "o")]
    organization_id: String,
    #[schema(example = "s")]
    space_id: String,
    #[schema(example = "c")]
    consumer_id: String,
    #[schema(example = "postgres")]
    resource_id: String,
    #[schema(example = "large")]
    plan_id: String,
    #[schema(example = "i")]
    resource_instance_id: String,
    measured_usage: Vec<Measure>,
}

/// A usage of a resource stops.
#[derive(ToSchema)]
#[schema(as = StopEvent)]
pub(crate) struct Stop {
    /// Tells a repeat from a new event.
    #[schema(example = "stop-1", max_length = 1024, nullable = false)]
    id: Option<String>,
    timestamp: Moment,
    #[schema(example = "o")]
    organization_id: String,
    #[schema(example = "s")]
    space_id: String,
    #[schema(example = "c")]
    consumer_id: String,
    #[schema(example = "postgres")]
    resource_id: String,
    #[schema(example = "large")]
    plan_id: String,
    #[schema(example = "i")]
    resource_instance_id: String,
}

/// A usage goes on with another plan or other quantities.
#[derive(ToSchema)]
#[schema(as = UpdateEvent)]
pub(crate) struct Update {
    #[schema(example = "update-1", min_length = 1, max_length = 1024)]
    id: String,
    timestamp: Moment,
    #[schema(example = "o")]
    organization_id: String,
    #[schema(example = "s")]
    space_id: String,
    #[schema(example = "c")]
    consumer_id: String,
    #[schema(example = "postgres")]
    resource_id: String,
    #[schema(example = "large")]
    plan_id: String,
    #[schema(example = "i")]
    resource_instance_id: String,
    measured_usage: Vec<Measure>,
    /// The fields of the target that were different before.
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    previous: Option<BTreeMap<String, String>>,
}

/// One of the events of a batch: a start, a stop or an update, with its kind.
#[derive(ToSchema)]
#[schema(as = Event)]
pub(crate) struct AnyEvent {
    r#type: EventType,
    #[schema(example = "start-1", max_length = 1024, nullable = false)]
    id: Option<String>,
    timestamp: Moment,
    #[schema(example = "o")]
    organization_id: String,
    #[schema(example = "s")]
    space_id: String,
    #[schema(example = "c")]
    consumer_id: String,
    #[schema(example = "postgres")]
    resource_id: String,
    #[schema(example = "large")]
    plan_id: String,
    #[schema(example = "i")]
    resource_instance_id: String,
    /// Of a start or an update.
    #[schema(nullable = false)]
    measured_usage: Option<Vec<Measure>>,
    /// Of an update.
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    previous: Option<BTreeMap<String, String>>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub(crate) enum EventType {
    Start,
    Stop,
    Update,
}

/// A `CloudEvent` 1.0, whose `data` has the other fields of the event.
#[derive(ToSchema)]
pub(crate) struct CloudEvent {
    #[schema(example = "1.0")]
    specversion: String,
    /// It ends in `.start`, `.stop` or `.update`.
    #[schema(example = "com.example.usage.start")]
    r#type: String,
    #[schema(example = "/brokers/postgres")]
    source: String,
    #[schema(example = "start-1")]
    id: String,
    #[schema(example = "2026-11-20T15:10:11.766Z")]
    time: String,
    data: Value,
}

/// A plan of a resource, and the plans of Abacus that it is mapped to.
#[derive(ToSchema)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub(crate) struct Mapping {
    #[schema(example = "postgres")]
    resource_id: String,
    #[schema(example = "large")]
    plan_id: String,
    #[schema(example = "standard")]
    metering_plan: String,
    #[schema(example = "standard")]
    rating_plan: String,
    #[schema(example = "standard")]
    pricing_plan: String,
}

/// The instances that really run, as their provider knows them.
#[derive(ToSchema)]
pub(crate) struct Snapshot {
    #[schema(example = "postgres")]
    resource_id: String,
    at: Moment,
    instances: Vec<Instance>,
}

/// An instance that runs. Where `measured_usage` is left out, it is not compared.
#[derive(ToSchema)]
#[schema(as = SnapshotInstance)]
pub(crate) struct Instance {
    #[schema(example = "o")]
    organization_id: String,
    #[schema(example = "s")]
    space_id: String,
    #[schema(example = "c")]
    consumer_id: String,
    #[schema(example = "large")]
    plan_id: String,
    #[schema(example = "i")]
    resource_instance_id: String,
    /// Since when it runs, under any plan. It dates a proposed start, and is never compared.
    #[schema(nullable = false)]
    since: Option<Moment>,
    #[schema(nullable = false)]
    measured_usage: Option<Vec<Measure>>,
}

/// The differences between spans and a snapshot, and events that would make them agree.
#[derive(ToSchema)]
pub(crate) struct SnapshotReport {
    at: Moment,
    /// Instances in the body.
    checked: u64,
    open_without_instance: Vec<OpenWithoutInstance>,
    instance_without_span: Vec<InstanceWithoutSpan>,
    differs: Vec<Differs>,
    /// There are more differences than are shown. An instance whose spans with other plans do not all
    /// fit is left out of all lists, together with these spans.
    #[schema(required = false)]
    more: bool,
}

#[derive(ToSchema)]
pub(crate) struct OpenWithoutInstance {
    span: String,
    target: Target,
    start: Moment,
    proposal: AnyEvent,
}

#[derive(ToSchema)]
pub(crate) struct InstanceWithoutSpan {
    target: Target,
    proposal: AnyEvent,
}

#[derive(ToSchema)]
pub(crate) struct Differs {
    span: String,
    expected: Said,
    kept: Said,
    proposal: AnyEvent,
}

#[derive(ToSchema)]
pub(crate) struct Said {
    #[schema(nullable = false)]
    plan_id: Option<String>,
    #[schema(nullable = false)]
    measured_usage: Option<Vec<Measure>>,
}

/// The reason of an operator.
#[derive(ToSchema)]
pub(crate) struct Reason {
    #[schema(example = "The plan is mapped now.", min_length = 1, max_length = 1000)]
    reason: String,
}

/// The usage to skip, and why.
#[derive(ToSchema)]
pub(crate) struct SkipRequest {
    #[schema(example = "Billed by hand.", min_length = 1, max_length = 1000)]
    reason: String,
    /// The `usage_id` of what is planned.
    #[schema(example = "ad1f2853-43e0-5cbf-b4f7-39fd0d67600c")]
    usage_id: String,
}

/// How many spans go on.
#[derive(ToSchema)]
pub(crate) struct Resumed {
    resumed: u64,
}

/// The control of operators.
#[derive(ToSchema)]
pub(crate) struct Control {
    starts: StartRates,
    sampling: SamplingControl,
    controller: ControllerSettings,
}

/// The same, and why.
#[derive(ToSchema)]
pub(crate) struct ControlRequest {
    starts: StartRates,
    sampling: SamplingControl,
    controller: ControllerSettings,
    #[schema(example = "Abacus is slow.", min_length = 1, max_length = 1000)]
    reason: String,
}

/// Percentages of new starts that are admitted: of all, and of single resources. They multiply.
#[derive(ToSchema)]
pub(crate) struct StartRates {
    #[schema(minimum = 0, maximum = 100, example = 100)]
    rate: f64,
    #[schema(example = json!({ "postgres": 50 }))]
    resources: BTreeMap<String, f64>,
}

#[derive(ToSchema)]
pub(crate) struct SamplingControl {
    #[schema(example = false)]
    paused: bool,
}

/// The controller that keeps the time that the backlog needs near a target.
#[derive(ToSchema)]
pub(crate) struct ControllerSettings {
    #[schema(example = false)]
    enabled: bool,
    #[schema(example = 600)]
    target_seconds: f64,
    #[schema(example = 8)]
    kp: f64,
    #[schema(example = 0)]
    ki: f64,
    #[schema(example = 0)]
    kd: f64,
}

/// A problem document (RFC 9457). Some kinds have further members.
#[derive(ToSchema)]
pub(crate) struct Problem {
    #[schema(example = "urn:sampler:problem:invalid-event")]
    r#type: String,
    title: String,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The details of this occurrence, in full sentences.
    detail: String,
    /// The fields that are wrong, up to 100.
    errors: Option<Vec<FieldError>>,
}

/// A field, a header or a parameter that is wrong: one of the three names it.
#[derive(ToSchema)]
pub(crate) struct FieldError {
    /// A JSON Pointer into the body.
    #[schema(example = "#/timestamp")]
    pointer: Option<String>,
    header: Option<String>,
    parameter: Option<String>,
    detail: String,
}

/// A kind of problem, and what is done about it.
#[derive(ToSchema)]
pub(crate) struct ProblemType {
    r#type: String,
    title: String,
    status: u16,
    when: String,
    provider: String,
    operator: String,
}

/// The program is well.
#[derive(ToSchema)]
pub(crate) struct Healthy {
    healthy: bool,
    /// Points that a person should check.
    warnings: Option<Vec<String>>,
}
