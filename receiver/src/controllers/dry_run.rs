//! Dry runs: the decisions about events, and the usages that would be posted because of them. Nothing
//! is kept.

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

/// The query of a dry run.
#[derive(Clone, Copy, Debug)]
pub(super) struct DryRunQuery {
    /// Windows that end by then are shown.
    until: Option<Timestamp>,
}

/// The answer to an event in a dry run.
#[derive(Serialize, ToSchema)]
#[schema(as = DryRun)]
pub(super) struct DryRunAnswer {
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

impl DryRunQuery {
    /// The dry run that a request asks for; `None` if its events are to be kept. Other parameters are
    /// errors, unless `ignores_others`: an original ignores all parameters at its addresses.
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
            // What was meant as a dry run must not take effect.
            parameters.complain_of("dry_run", is_misspelt_dry_run);
            parameters.finish_taken()?;
        }
        Ok((is_dry == Some(true)).then_some(Self { until }))
    }
}

fn is_misspelt_dry_run(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphabetic);
    let letters: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    letters == "dryrun"
}

impl DryRunAnswer {
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

/// A dry run in progress.
struct DryRun<'r> {
    receiver: &'r Receiver,
    grant: &'r Grant,
    view: View<'r>,
    now: Timestamp,
    until: Timestamp,
    /// How many bytes of usages may still be shown.
    bytes: usize,
}

impl Receiver {
    /// Answers a dry run of one event.
    pub(super) async fn dry_run_one(
        &self,
        query: DryRunQuery,
        grant: &Grant,
        body: &[u8],
        form: Form,
    ) -> Result<Response, Problem> {
        let _permit = self.admit_reading(grant).await?;
        let mut dry_run = self.begin_dry_run(query, grant)?;
        let answer = dry_run.answer(body, form).await?;
        // A body that is not JSON is refused as without a dry run.
        match answer.problem {
            Some(problem) if *problem.kind() == problems::MALFORMED_JSON => Err(problem),
            _ => Ok(Json(answer).into_response()),
        }
    }

    /// Answers a dry run of a batch. Each event meets the effects of the events before it.
    pub(super) async fn dry_run_all(
        &self,
        query: DryRunQuery,
        grant: &Grant,
        layout: Layout,
        items: &[Item<'_>],
    ) -> Result<Vec<DryRunAnswer>, Problem> {
        let _permit = self.admit_reading(grant).await?;
        let mut dry_run = self.begin_dry_run(query, grant)?;
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            all.push(dry_run.answer(item.bytes, Form::of(layout)).await?);
        }
        Ok(all)
    }

    fn begin_dry_run<'r>(
        &'r self,
        query: DryRunQuery,
        grant: &'r Grant,
    ) -> Result<DryRun<'r>, Problem> {
        self.require_readable()?;
        if !self.options.knows_granularity {
            let detail = "This receiver was not told the granularity (SAMPLER_DIMENSION), so it \
                          cannot know what would be posted.";
            return Err(Problem::new(&problems::DRY_RUN_UNAVAILABLE, detail));
        }
        let now = self.parts.clock.now();
        Ok(DryRun {
            receiver: self,
            grant,
            view: View::to_read(self),
            now,
            until: query.until.unwrap_or(now),
            bytes: BYTES_MAX,
        })
    }
}

impl DryRun<'_> {
    /// The answer to an event.
    ///
    /// # Errors
    /// 503 if it cannot be found out.
    async fn answer(&mut self, body: &[u8], form: Form) -> Result<DryRunAnswer, Problem> {
        match self.decide(body, form).await {
            Ok(answer) => Ok(answer),
            Err(problem) if problem.status().is_server_error() => Err(problem),
            Err(problem) => Ok(DryRunAnswer::refused(problem)),
        }
    }

    async fn decide(&mut self, body: &[u8], form: Form) -> Result<DryRunAnswer, Problem> {
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
        Ok(DryRunAnswer {
            status: StatusCode::CREATED.as_u16(),
            replayed: Some(foreseen.is_replayed),
            usages: Some(usages),
            more,
            problem: None,
        })
    }

    /// Adds the usages that would be posted for a span. Returns whether there are more than can be
    /// shown.
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
