//! Dry runs: what would become of events, and what would be posted because of them. Nothing is kept.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use sampler_domain::{Forecast, Span, Timestamp, Usage};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use serde::Serialize;
use utoipa::ToSchema;

use super::events::View;
use crate::admission;
use crate::batch::{Item, Layout};
use crate::form::Form;
use crate::openapi::types;
use crate::reading::Parameters;
use crate::{Receiver, body, problems};

/// The most usages that are shown for one event.
const USAGES_MAX: usize = 1_000;

/// The most bytes that all usages of one answer take.
const BYTES_MAX: usize = 4 << 20;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct DryRun {
    /// Windows that end by then are shown.
    until: Option<Timestamp>,
}

/// What would become of an event.
#[derive(Serialize, ToSchema)]
#[schema(as = DryRun)]
pub(super) struct Would {
    #[serde(rename = "would")]
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    usages: Option<Vec<Usage>>,
    /// There are more usages than are shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<types::Problem>)]
    problem: Option<Problem>,
}

impl DryRun {
    /// What the query asks for; nothing where events are to be kept. The addresses that an original
    /// serves, too, do not look at other parameters.
    pub(super) fn of(uri: &Uri, ignores_others: bool) -> Result<Option<Self>, Problem> {
        let mut parameters = Parameters::of(uri);
        let expected = "It must be true or false.";
        let is_dry = parameters.parsed("dry_run", expected, |text| text.parse::<bool>().ok());
        let until = parameters.moment("until");
        if is_dry != Some(true) && until.is_some() {
            parameters.complain("until", "It has a meaning with dry_run=true alone.");
        }
        if is_dry == Some(true) || !ignores_others {
            parameters.finish()?;
        } else {
            parameters.finish_taken()?;
        }
        Ok((is_dry == Some(true)).then_some(Self { until }))
    }
}

impl Would {
    fn refused(problem: Problem) -> Self {
        Self {
            status: problem.status().as_u16(),
            replayed: None,
            usages: None,
            more: false,
            problem: Some(problem),
        }
    }
}

/// A dry run that is under way.
struct Rehearsal<'r> {
    receiver: &'r Receiver,
    grant: &'r Grant,
    view: View<'r>,
    now: Timestamp,
    until: Timestamp,
    /// How many bytes of usages may still be shown.
    bytes: usize,
}

impl Receiver {
    /// What would become of one event.
    pub(super) async fn rehearse_one(
        &self,
        dry_run: DryRun,
        grant: &Grant,
        body: &[u8],
        form: Form,
    ) -> Result<Response, Problem> {
        let _permit = self.admit_reading(grant).await?;
        let mut rehearsal = self.rehearsal(dry_run, grant)?;
        let would = rehearsal.rehearse(body, form).await?;
        // What is no JSON is refused as ever.
        match would.problem {
            Some(problem) if *problem.kind() == problems::MALFORMED_JSON => Err(problem),
            _ => Ok(Json(would).into_response()),
        }
    }

    /// What would become of the events of a batch: each finds what those before it leave behind.
    pub(super) async fn rehearse_all(
        &self,
        dry_run: DryRun,
        grant: &Grant,
        layout: Layout,
        items: &[Item<'_>],
    ) -> Result<Vec<Would>, Problem> {
        let _permit = self.admit_reading(grant).await?;
        let mut rehearsal = self.rehearsal(dry_run, grant)?;
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            all.push(rehearsal.rehearse(item.bytes, Form::of(layout)).await?);
        }
        Ok(all)
    }

    fn rehearsal<'r>(
        &'r self,
        dry_run: DryRun,
        grant: &'r Grant,
    ) -> Result<Rehearsal<'r>, Problem> {
        self.require_readable()?;
        if !self.options.knows_granularity {
            let detail = "This receiver was not told the granularity (SAMPLER_DIMENSION), so it \
                          cannot know what would be posted.";
            return Err(Problem::new(&problems::DRY_RUN_UNAVAILABLE, detail));
        }
        let now = self.parts.clock.now();
        Ok(Rehearsal {
            receiver: self,
            grant,
            view: View::to_read(self),
            now,
            until: dry_run.until.unwrap_or(now),
            bytes: BYTES_MAX,
        })
    }
}

impl Rehearsal<'_> {
    /// What would become of an event.
    ///
    /// # Errors
    /// 503 where that cannot be found out.
    async fn rehearse(&mut self, body: &[u8], form: Form) -> Result<Would, Problem> {
        match self.try_to_rehearse(body, form).await {
            Ok(would) => Ok(would),
            Err(problem) if problem.status().is_server_error() => Err(problem),
            Err(problem) => Ok(Would::refused(problem)),
        }
    }

    async fn try_to_rehearse(&mut self, body: &[u8], form: Form) -> Result<Would, Problem> {
        let max = self.receiver.options.limits.payload;
        if body.len() > max {
            return Err(body::too_large(max));
        }
        let sender = self.receiver.sender(self.grant);
        let weight = admission::weight(body);
        let large = self.receiver.admission.acquire_large(sender, weight).await;
        let _large = large.map_err(|reason| self.receiver.turned_away(reason))?;
        let (event, _) = self.receiver.read(self.grant, body, form)?;
        let foreseen = self.view.foresee(&event, self.grant, self.now).await?;
        let (mut usages, mut more) = (Vec::new(), false);
        for span in foreseen.spans {
            more |= self.forecast(span, &mut usages);
        }
        Ok(Would {
            status: StatusCode::CREATED.as_u16(),
            replayed: Some(foreseen.is_replayed),
            usages: Some(usages),
            more,
            problem: None,
        })
    }

    /// Adds what would be posted for a span; says whether there is more than can be shown.
    fn forecast(&mut self, span: Span, usages: &mut Vec<Usage>) -> bool {
        let policy = &self.receiver.options.policy;
        for usage in Forecast::new(span, self.until, policy) {
            let bytes = serde_json::to_vec(&usage).map_or(0, |written| written.len());
            if usages.len() == USAGES_MAX || bytes > self.bytes {
                return true;
            }
            self.bytes -= bytes;
            usages.push(usage);
        }
        false
    }
}
