//! Usages: the ledger of a span, sums, and those that are watched until they count, with the operator's action on one
//! that is missing.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use sampler_api as api;
use sampler_domain::{Entry, Span, Target, Timestamp, Units, Usage, Window, WindowLength};
use sampler_service::problem::Problem;
use sampler_store::{
    AuditRecord, CutUsage, EntryOrder, EntryPosition, StoreError, SumPage, SumPosition, SumQuery,
    SumRow, Watch, WatchQuery,
};
use serde_json::{Value, to_value};

use crate::Caller;
use crate::acts::reason;
use crate::admission::Kind;
use crate::failures::Task;
use crate::openapi::{Accepted, OfTarget, PageParams, Time};
use crate::parameters::Parameters;
use crate::problems;
use crate::reading::{Paged, to_its_end};
use crate::spans::IdPath;

/// Entries that are read for one page where only some of them may be shown, and the bytes of all that are read.
const WINDOW: usize = 5_000;
const WINDOW_BYTES: usize = 8 << 20;

/// About what an entry takes beside its measures.
const ENTRY_BYTES: usize = 1 << 10;

/// Windows of one query.
const WINDOWS_MAX: usize = 366;

/// The longest id of a usage that is searched for, in characters. Sampler's and the original's are UUIDs.
const ID_MAX: usize = 256;

#[utoipa::path(
    get, path = "/v1/spans/{id}/usages", operation_id = "list_usages_of_span", tag = "Reading",
    summary = "Each usage of a span that the upstream has accepted",
    description = "In the order in which they were accepted, or with `order=newest` the last one first.",
    params(
        ("id" = String, Path, description = "The id of the span."),
        ("order" = Option<String>, Query, description = "`oldest` (the default) or `newest` first.", example = "newest"),
        Time, Accepted, PageParams,
    ),
    responses((status = 200, description = "A page of usages.", body = api::List<api::Usage>)),
)]
pub(crate) async fn list(caller: Caller, id: IdPath) -> Result<Paged<api::Usage>, Problem> {
    let mut parameters = caller.parameters();
    let (from, to) = parameters.time();
    let expected = "The value must be oldest or newest.";
    let order = parameters.parsed("order", expected, |text| match text {
        "oldest" => Some(EntryOrder::Oldest),
        "newest" => Some(EntryOrder::Newest),
        _ => None,
    });
    let accepted_to = parameters.moment("accepted_to");
    let after: Option<EntryPosition> = parameters.cursor();
    let limit = parameters.limit();
    parameters.finish()?;
    let Span {
        id,
        target,
        measures,
        ..
    } = caller.span(id).await?;
    // Each entry has the measures of its span.
    let measures = serde_json::to_vec(&measures).map_or(0, |bytes| bytes.len());
    let affordable = (WINDOW_BYTES / (ENTRY_BYTES + measures)).max(1);
    let is_whole = [from, to, accepted_to] == [None; 3];
    let window = if is_whole { limit + 1 } else { WINDOW }.min(affordable);
    let order = order.unwrap_or_default();
    let read = caller.read(|store| async move {
        store
            .usages(&id, &target, order, after.as_ref(), window)
            .await
    });
    let mut page = read.await?;
    page.entries.retain(|entry| {
        let timestamp = entry.interval.midpoint();
        from.is_none_or(|from| timestamp >= from)
            && to.is_none_or(|to| timestamp < to)
            && accepted_to.is_none_or(|to| entry.acceptance.at <= to)
    });
    // As much as one answer may cost was read: a page may be empty, and have a next one.
    if page.entries.len() > limit {
        page.entries.truncate(limit);
        page.next = page.entries.last().map(EntryPosition::of);
    }
    Ok(parameters.page(page.entries.iter().map(shown), page.next))
}

fn shown(entry: &Entry) -> api::Usage {
    api::Usage {
        id: entry.usage_guid.clone(),
        span: entry.span.to_string(),
        interval: entry.interval.into(),
        timestamp: entry.interval.midpoint(),
        duration: entry.interval.duration(),
        measured_usage: api::measures(&Usage::of_entry(entry).measured_usage),
        accepted_at: entry.acceptance.at,
        status: entry.acceptance.status,
        location: entry.acceptance.location.clone(),
    }
}

#[utoipa::path(
    get, path = "/v1/usages", operation_id = "sum_usages", tag = "Reading",
    summary = "Sums of usages, by windows and groups",
    description = "Of what the upstream has accepted. One of `organization_id`, `resource_id` and `resource_instance_id` is required, and at most 366 windows.",
    params(
        OfTarget, Time, Accepted,
        ("window" = Option<String>, Query, description = "`hour`, `day`, `month` or `all`.", example = "day"),
        ("group_by" = Option<String>, Query, description = "Fields of targets, with commas between.", example = "resource_id,plan_id"),
        PageParams,
    ),
    responses((status = 200, description = "A page of sums.", body = api::List<api::Sum>)),
)]
pub(crate) async fn sums(caller: Caller) -> Result<Paged<api::Sum>, Problem> {
    let mut parameters = caller.parameters();
    let (mut query, windows) = read_sums(&mut parameters);
    parameters.finish()?;
    if query.target.narrowed_by().is_none() {
        let detail = "The query reads too many usages. Add organization_id, resource_id or \
                      resource_instance_id.";
        return Err(too_wide(detail));
    }
    let too_many = "There are more than 366 windows. Give from and to, less time between them, or a longer window.";
    query.windows = windows.ok_or_else(|| too_wide(too_many))?;
    let group_by = query.group_by.clone();
    let page = caller.add_up(query).await?;
    let units = &caller.receiver.settings.reading.units();
    let rows = page.rows.iter().map(|row| shown_sum(row, &group_by, units));
    Ok(parameters.page(rows, page.next))
}

impl Caller {
    async fn add_up(&self, mut query: SumQuery) -> Result<SumPage, Problem> {
        query.resources = self.readable(query.target.get("resource_id"));
        if query.resources.as_ref().is_some_and(Vec::is_empty) {
            return Ok(SumPage::default());
        }
        let receiver = &self.receiver;
        receiver.require_prepared()?;
        let turn = receiver.turn(Kind::Sum, self.client(), 1).await?;
        let permits = [turn, self.admit_reading().await?];
        let store = Arc::clone(&receiver.parts.reading);
        let page = to_its_end(permits, async move { store.sums(&query).await });
        let page = page.await.map_err(|failure| match failure {
            // Not 503: the same query again would take as long.
            StoreError::Overloaded => too_wide(
                "The usages of one window are too many to be added up in time. Ask for a shorter \
                 window, or for less time with from and to; or name more fields of the target.",
            ),
            failure => receiver.failed(Task::Read, &failure),
        });
        page?.map_err(cut_usage)
    }
}

/// The query without its windows, and these, unless they are too many.
fn read_sums(parameters: &mut Parameters) -> (SumQuery, Option<Vec<Window>>) {
    let target = parameters.target();
    let names = WindowLength::NAMES.join(", ");
    let expected = format!("The value must be one of {names}.");
    let length = parameters.parsed("window", &expected, WindowLength::from_name);
    let length = length.unwrap_or_default();
    let (from, to) = parameters.time();
    let (from, to) = (from.unwrap_or(Timestamp::MIN), to.unwrap_or(Timestamp::MAX));
    let windows = length.windows(from, to, WINDOWS_MAX);
    let names = Target::FIELDS.join(", ");
    let expected = format!("The value must name one or more of {names}, each once.");
    let group_by = parameters.parsed("group_by", &expected, read_group_by);
    let group_by = group_by.unwrap_or_default();
    let after = parameters.cursor_if(|after: &SumPosition| {
        let mut groups = after.group.iter();
        let is_window = |all: &Vec<Window>| all.iter().any(|it| it.start == after.window);
        groups.all(|group| group.len() == group_by.len()) && windows.as_ref().is_none_or(is_window)
    });
    let query = SumQuery {
        target,
        accepted_to: parameters.moment("accepted_to"),
        resources: None,
        length,
        windows: Vec::new(),
        group_by,
        after,
        limit: parameters.limit(),
    };
    (query, windows)
}

fn too_wide(detail: &str) -> Problem {
    Problem::new(&problems::QUERY_TOO_WIDE, detail)
}

/// The problem of windows that cut a usage.
fn cut_usage(cut: CutUsage) -> Problem {
    let dimension = cut.dimension;
    let detail = match cut.fits {
        Some((before, after)) => format!(
            "A usage of one {dimension} is cut by from or to. The nearest times that fit are {before} and {after}."
        ),
        None => format!(
            "A usage of one {dimension} is cut by the windows. Ask for windows that are at least as long."
        ),
    };
    Problem::new(&problems::CUT_USAGE, detail)
}

fn read_group_by(text: &str) -> Option<Vec<&'static str>> {
    let mut names = Vec::new();
    for part in text.split(',') {
        let name = Target::FIELDS.into_iter().find(|name| *name == part)?;
        if names.contains(&name) {
            return None;
        }
        names.push(name);
    }
    Some(names)
}

fn shown_sum(row: &SumRow, names: &[&'static str], units: &Units) -> api::Sum {
    let values = row.group.iter().map(|id| Value::from(id.as_str()));
    let amounts = row.amounts.iter().map(|(measure, amount)| api::Amount {
        measure: measure.to_string(),
        amount: amount.number(),
        unit: units.of(measure.as_str()).map(ToString::to_string),
    });
    api::Sum {
        window: api::Interval {
            start: row.window.start,
            end: row.window.end,
        },
        group: names.iter().map(ToString::to_string).zip(values).collect(),
        usages: row.usages,
        duration: row.duration.number(),
        measures: amounts.collect(),
    }
}

#[utoipa::path(
    get, path = "/v1/unconfirmed", operation_id = "list_unconfirmed", tag = "Operating",
    summary = "Usages that the upstream has accepted, and that are not found to count",
    description = "Those that were accepted first come first. The list is empty where SAMPLER_CONFIRM is off.",
    params(
        OfTarget,
        ("missing" = Option<bool>, Query, description = "`true`: only those that do not count."),
        PageParams,
    ),
    responses((status = 200, description = "A page of usages.", body = api::List<api::Unconfirmed>)),
)]
pub(crate) async fn unconfirmed(caller: Caller) -> Result<Paged<api::Unconfirmed>, Problem> {
    let mut parameters = caller.parameters();
    let mut query = WatchQuery {
        target: parameters.target(),
        resources: None,
        missing: parameters.only_true("missing"),
        after: parameters.cursor(),
        limit: parameters.limit(),
    };
    parameters.finish()?;
    let resource = query.target.get("resource_id").cloned();
    let page = caller.read_list(resource, |store, resources| async move {
        query.resources = resources;
        store.unconfirmed(&query).await
    });
    let page = page.await?;
    Ok(parameters.page(page.watches.iter().map(shown_watch), page.next))
}

#[utoipa::path(
    post, path = "/v1/unconfirmed/{usage}/resend", operation_id = "resend_usage", tag = "Operating",
    summary = "Send a usage again that does not count",
    description = "A worker sends the same bytes again. The upstream is asked for the usage from then on, as after the first time.",
    params(("usage" = String, Path, description = "The id of the usage.")),
    request_body(content = api::Reason, content_type = "application/json"),
    responses((status = 202, description = "A worker sends it.", body = api::Unconfirmed)),
)]
pub(crate) async fn resend(
    caller: Caller,
    usage: IdPath,
    request: Request<Body>,
) -> Result<(StatusCode, Json<api::Unconfirmed>), Problem> {
    let asked = caller.admit_action(request, reason).await?;
    let watch = caller.missing(usage).await?;
    let shown = shown_watch(&watch);
    let again = api::Unconfirmed {
        error: None,
        ..shown.clone()
    };
    let subject = format!("/v1/unconfirmed/{}", watch.usage_guid);
    let states = [to_value(&shown), to_value(again)].map(Result::unwrap_or_default);
    let record = AuditRecord {
        span: Some(watch.span.to_string()),
        ..caller.record("usage.resend", subject, asked.reason, states)
    };
    let parts = &caller.receiver.parts;
    let now = parts.clock.now();
    let marking = async {
        let marked = parts.operating.resend_missing(&watch.usage_guid, now).await;
        // A worker finds the mark within seconds. One that is there already stays as it is.
        marked.map(|is_new| is_new || watch.is_resent)
    };
    caller.perform(record, marking, not_missing).await?;
    Ok((StatusCode::ACCEPTED, Json(shown)))
}

impl Caller {
    /// The usage of an address, if it does not count.
    async fn missing(&self, usage: IdPath) -> Result<Watch, Problem> {
        let id = usage.ok().map(|Path(id)| id);
        let id = id.filter(|id| id.chars().count() <= ID_MAX);
        let id = id.ok_or_else(no_such_usage)?;
        let watch = self.read(|store| async move { store.watch(&id).await });
        let watch = watch.await?.ok_or_else(no_such_usage)?;
        if watch.missing.is_none() {
            return Err(not_missing());
        }
        Ok(watch)
    }
}

fn no_such_usage() -> Problem {
    let detail = "No usage of this id waits to be found: it counts, or SAMPLER_CONFIRM is off, or there never was \
                  one.";
    Problem::new(&problems::NO_SUCH_USAGE, detail)
}

fn not_missing() -> Problem {
    let detail = "Only a usage that is missing upstream can be sent again. Nothing was done.";
    Problem::new(&problems::NOT_RESENDABLE, detail)
}

fn shown_watch(watch: &Watch) -> api::Unconfirmed {
    let missing = watch.missing.as_ref();
    api::Unconfirmed {
        usage: watch.usage_guid.clone(),
        span: watch.span.to_string(),
        target: watch.target.clone().into(),
        interval: watch.interval.into(),
        duration: watch.interval.duration(),
        error: missing.map(|it| it.error.clone()),
        since: missing.map_or(watch.accepted_at, |it| it.since),
    }
}
