//! Parameters that several requests share.

#![allow(dead_code, reason = "only their schemas are used")]

use utoipa::IntoParams;

/// The page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// The most items of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u16>,
    /// Where the list continues: as in the `Link` of the page before.
    cursor: Option<String>,
}

/// A time: milliseconds since the epoch, or RFC 3339.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Time {
    /// Milliseconds since the epoch, or RFC 3339.
    #[param(example = "2026-11-20T00:00:00Z")]
    from: Option<String>,
    /// The same; it is not included.
    #[param(example = "2026-11-21T00:00:00Z")]
    to: Option<String>,
}

/// When usages were accepted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Accepted {
    /// Only usages that the upstream had accepted by then. So the figures of an invoice can be had again.
    #[param(example = "2026-12-03T00:00:00Z")]
    accepted_to: Option<String>,
}

/// Fields of targets, which must be equal.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub(crate) struct OfTarget {
    organization_id: Option<String>,
    space_id: Option<String>,
    consumer_id: Option<String>,
    #[param(example = "postgres")]
    resource_id: Option<String>,
    plan_id: Option<String>,
    resource_instance_id: Option<String>,
}

/// The condition of a change.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct IfMatchParams {
    /// The `ETag` of what is changed.
    #[param(rename = "If-Match")]
    if_match: String,
}
