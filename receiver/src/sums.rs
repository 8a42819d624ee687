//! The sums of usages, by windows and groups.

use std::sync::Arc;

use axum::extract::State;
use sampler_api as api;
use sampler_domain::{Target, Timestamp, Units, Window, WindowLength};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{CutUsage, StoreError, SumPage, SumPosition, SumQuery, SumRow};
use serde_json::Value;

use crate::admission::Kind;
use crate::events::client;
use crate::failures::Task;
use crate::openapi::{Accepted, OfTarget, PageParams, Time};
use crate::parameters::Parameters;
use crate::reading::{Paged, restrict, to_its_end};
use crate::{Receiver, problems};

/// Windows of one query.
const WINDOWS_MAX: usize = 366;

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
pub(crate) async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    mut parameters: Parameters,
) -> Result<Paged<api::Sum>, Problem> {
    let asked = SumParameters::read(&mut parameters);
    let next = parameters.finish()?;
    let mut query = asked.query()?;
    if !restrict(&mut query.resources, &query.target, &grant) {
        return Ok(Paged::whole(Vec::new()));
    }
    let group_by = query.group_by.clone();
    let page = receiver.add_up(&grant, query).await?;
    let units = &receiver.settings.reading.units();
    let rows = page.rows.iter();
    let items = rows.map(|row| shown(row, &group_by, units)).collect();
    Ok(Paged::new(items, &next, page.next.as_ref()))
}

impl Receiver {
    async fn add_up(&self, grant: &Grant, query: SumQuery) -> Result<SumPage, Problem> {
        self.require_prepared()?;
        let turn = self.turn(Kind::Sum, client(grant, ""), 1).await?;
        let permits = [turn, self.admit_reading(grant).await?];
        let queries = Arc::clone(&self.parts.reading);
        let page = to_its_end(permits, async move { queries.sums(&query).await });
        let page = page.await.map_err(|failure| match failure {
            // Not 503: the same query again would take as long.
            StoreError::Overloaded => too_wide(
                "The usages of one window are too many to be added up in time. Ask for a shorter \
                 window, or for less time with from and to; or name more fields of the target.",
            ),
            failure => self.failed(Task::Read, &failure),
        });
        page?.map_err(cut_usage)
    }
}

struct SumParameters {
    query: SumQuery,
    /// `None` if there are too many.
    windows: Option<Vec<Window>>,
}

impl SumParameters {
    fn read(parameters: &mut Parameters) -> Self {
        let target = parameters.target();
        let names = WindowLength::NAMES.join(", ");
        let expected = format!("It must be one of {names}.");
        let length = parameters
            .parsed("window", &expected, WindowLength::from_name)
            .unwrap_or_default();
        let (from, to) = parameters.time();
        let (from, to) = (from.unwrap_or(Timestamp::MIN), to.unwrap_or(Timestamp::MAX));
        let windows = length.windows(from, to, WINDOWS_MAX);
        let names = Target::FIELDS.join(", ");
        let expected = format!("It must name one or more of {names}, each once.");
        let group_by = parameters
            .parsed("group_by", &expected, read_group_by)
            .unwrap_or_default();
        let after = parameters.cursor_if(|after: &SumPosition| {
            let has_groups = after
                .group
                .as_ref()
                .is_none_or(|group| group.len() == group_by.len());
            let has_window = windows
                .as_ref()
                .is_none_or(|all| all.iter().any(|window| window.start == after.window));
            has_groups && has_window
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
        Self { query, windows }
    }

    /// The query, unless too much would have to be read for it.
    fn query(self) -> Result<SumQuery, Problem> {
        if self.query.target.narrowed_by().is_none() {
            return Err(too_wide(
                "The query reads too many usages. Add organization_id, resource_id or \
                 resource_instance_id.",
            ));
        }
        let windows = self.windows.ok_or_else(|| {
            too_wide(
                "There are more than 366 windows. Give from and to, less time between them, or a \
                 longer window.",
            )
        })?;
        Ok(SumQuery {
            windows,
            ..self.query
        })
    }
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

fn shown(row: &SumRow, names: &[&'static str], units: &Units) -> api::Sum {
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
