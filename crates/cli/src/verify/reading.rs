//! Reads what the API says was billed, and has it checked, span by span.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_verify::api::{Entry, Span};
use sampler_verify::words::counted;
use sampler_verify::{History, Policy, Report, Row, SpanCheck, Target, Used, matching};

use super::Scope;
use crate::api::{Api, ApiError, Query};
use crate::output::Progress;

/// The programs work while we read. Spans and usages that do not fit are read again, up to this many times and with
/// this pause in between, before there is a finding.
const ROUNDS: usize = 4;
const PAUSE: Duration = Duration::from_millis(1_500);
/// The ids, at least one of which must be in a query.
const INDEXED: [&str; 3] = ["organization_id", "resource_id", "resource_instance_id"];

pub(super) struct Run<'a> {
    pub(super) api: &'a Api,
    pub(super) policy: Policy,
    pub(super) at_once: usize,
}

impl Run<'_> {
    pub(super) async fn report(
        &self,
        history: History,
        scope: &Scope,
        strict: bool,
    ) -> Result<Report, ApiError> {
        let used = &history.used;
        let mut spans = self.spans(scope.queries(used)).await?;
        // A list that leaves out a span must be distinguished from a span that does not exist. Other spans of the
        // instances may be out of scope.
        spans.extend(self.spans(scope.missing(used, &spans)).await?);
        let spans: Vec<Span> = spans.into_values().collect();
        let (pairs, left) = matching::pairs(used, &spans);
        let known: HashSet<_> = used.iter().map(|used| instance_of(&used.target)).collect();
        let pairs = spans.into_iter().zip(pairs).filter(|(span, used)| {
            !scope.known_only || used.is_some() || known.contains(&instance_of(&span.target))
        });
        let mut rows = self.rows(pairs.collect()).await?;
        let left = left.into_iter().filter(|used| scope.overlaps(used));
        rows.extend(left.map(|used| Row::without_span(used, self.policy.now)));
        Ok(Report::of(rows, history.contradictions, strict))
    }

    /// The spans of several queries, each once.
    async fn spans(&self, queries: Vec<Query>) -> Result<BTreeMap<String, Span>, ApiError> {
        let mut spans = BTreeMap::new();
        for query in queries {
            let take =
                |page: Vec<Span>| spans.extend(page.into_iter().map(|it| (it.id.clone(), it)));
            self.api.each_page(&["v1", "spans"], query, take).await?;
        }
        Ok(spans)
    }

    /// Checks spans. What does not fit is read again, and believed in the end.
    async fn rows(&self, mut left: Vec<(Span, Option<&Used>)>) -> Result<Vec<Row>, ApiError> {
        let progress = Progress::to(Some(left.len() as u64));
        let (mut rows, mut usages) = (Vec::new(), 0);
        for round in 0..=ROUNDS {
            if round > 0 && !left.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
            let checks = stream::iter(std::mem::take(&mut left));
            let checks = checks.map(|(span, used)| self.check(span, used, round));
            let mut checks = std::pin::pin!(checks.buffered(self.at_once));
            while let Some(checked) = checks.next().await {
                match checked? {
                    (row, None) => {
                        usages += row.usages;
                        rows.push(row);
                        let more = format!(", {}", counted(usages, "usage"));
                        progress.show(rows.len() as u64, "spans", &more);
                    }
                    (_, Some(again)) => left.push(again),
                }
            }
        }
        progress.finish();
        Ok(rows)
    }

    /// Checks a span, as it is now; with the span where that must be read again.
    async fn check<'a>(
        &self,
        span: Span,
        used: Option<&'a Used>,
        round: usize,
    ) -> Result<(Row, Option<(Span, Option<&'a Used>)>), ApiError> {
        let fresh = match round {
            0 => Some(span.clone()),
            _ => self.api.span(&span.id).await?,
        };
        // A complete span no longer changes: reading it twice is enough.
        let is_settled = round > 0
            && (fresh.is_none() || span.state == "complete" && fresh.as_ref() == Some(&span));
        let span = fresh.unwrap_or(span);
        let row = self.row(&span, used).await?;
        let is_final = row.fits() || is_settled || round == ROUNDS;
        Ok((row, (!is_final).then_some((span, used))))
    }

    /// Reads the usages of a span page by page.
    async fn row(&self, span: &Span, used: Option<&Used>) -> Result<Row, ApiError> {
        let mut check = SpanCheck::new(span, used, &self.policy);
        let take = |page: Vec<Entry>| {
            for entry in &page {
                check.entry(entry);
            }
        };
        let path = ["v1", "spans", &span.id, "usages"];
        match self.api.each_page(&path, Query::new(), take).await {
            Err(error) if error.status() == Some(404) => Ok(Row::removed(span, used)),
            read => read.map(|()| check.finish()),
        }
    }
}

/// The ids that distinguish an instance from others, in the order of [`INDEXED`].
fn instance_of(target: &Target) -> [String; 3] {
    let [organization, _, _, resource, _, instance] = target.ids().map(str::to_owned);
    [organization, resource, instance]
}

impl Scope {
    /// The queries for the API: by the ids that were given, and where none of these has an index, by each resource of
    /// the events.
    fn queries(&self, used: &[Used]) -> Vec<Query> {
        let mut given = Query::new();
        self.target.add_to(&mut given);
        self.period.add_to(&mut given);
        if given.iter().any(|(name, _)| INDEXED.contains(name)) {
            return vec![given];
        }
        let resources: BTreeSet<&String> =
            used.iter().map(|used| &used.target.resource_id).collect();
        let of_resource =
            |resource: &String| [vec![("resource_id", resource.clone())], given.clone()].concat();
        resources.into_iter().map(of_resource).collect()
    }

    /// The queries for the instances of usages whose spans were in no list.
    fn missing(&self, used: &[Used], spans: &BTreeMap<String, Span>) -> Vec<Query> {
        let seen = spans.values().map(|span| (&span.target, span.start));
        let seen: HashSet<_> = seen.collect();
        let left = used.iter().filter(|used| self.overlaps(used));
        let left = left.filter(|used| !seen.contains(&(&used.target, used.start)));
        let instances: BTreeSet<_> = left.map(|used| instance_of(&used.target)).collect();
        let query = |ids| INDEXED.into_iter().zip(ids).collect();
        instances.into_iter().map(query).collect()
    }

    /// Whether the ids of a target are in scope.
    pub(super) fn holds(&self, target: &Target) -> bool {
        let mut pairs = self.target.ids().into_iter().zip(target.ids());
        pairs.all(|((_, given), id)| given.is_none_or(|given| given == id))
    }

    /// Whether a usage is in the time in scope.
    fn overlaps(&self, used: &Used) -> bool {
        let (from, to) = (self.period.from, self.period.to);
        let ends_before = used.end.zip(from).is_some_and(|(end, from)| end <= from);
        !ends_before && to.is_none_or(|to| used.start < to)
    }
}
