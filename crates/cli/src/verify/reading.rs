//! Reads what the API says was billed, and has it checked, span by span.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_verify::api::{Entry, Span};
use sampler_verify::words::counted;
use sampler_verify::{History, Policy, Report, Row, SpanCheck, Target, Used, matching};

use super::Scope;
use crate::api::{Api, ApiError, Query};
use crate::progress::Progress;

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
        let missing = scope.missing(used, &spans);
        spans.extend(self.spans(missing).await?);
        let spans: Vec<Span> = spans.into_values().collect();
        let places = matching::pairs(used, &spans);
        let known: HashSet<_> = used.iter().map(|used| instance_of(&used.target)).collect();
        let pairs = spans.into_iter().zip(&places);
        let pairs = pairs.filter(|(span, place)| {
            place.is_some() || !scope.known_only || known.contains(&instance_of(&span.target))
        });
        let pairs = pairs.map(|(span, place)| (span, place.map(|place| &used[place])));
        let mut rows = self.rows(pairs.collect()).await?;
        let left = matching::left(used, &places).filter(|used| scope.overlaps(used));
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
            let checks = stream::iter(std::mem::take(&mut left)).map(async |(span, used)| {
                let (span, is_settled) = match round {
                    0 => (span, false),
                    _ => self.read_again(span).await?,
                };
                let row = self.row(&span, used).await?;
                let is_final = row.fits() || is_settled || round == ROUNDS;
                Ok::<_, ApiError>((span, used, row, is_final))
            });
            let mut checks = std::pin::pin!(checks.buffered(self.at_once));
            while let Some(checked) = checks.next().await {
                let (span, used, row, is_final) = checked?;
                if !is_final {
                    left.push((span, used));
                    continue;
                }
                usages += row.usages;
                rows.push(row);
                let more = format!(", {}", counted(usages, "usage"));
                progress.show(rows.len() as u64, "spans", &more);
            }
        }
        progress.finish();
        Ok(rows)
    }

    /// A span as it is now. A complete one no longer changes: reading it twice is enough.
    async fn read_again(&self, span: Span) -> Result<(Span, bool), ApiError> {
        Ok(match self.api.span(&span.id).await? {
            Some(fresh) => {
                let is_settled = fresh == span && span.state == "complete";
                (fresh, is_settled)
            }
            None => (span, true),
        })
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
        let resources = used.iter().map(|used| &*used.target.resource_id);
        let resources: BTreeSet<&str> = resources.collect();
        let queries = resources.into_iter().map(|resource| {
            let resource = ("resource_id", resource.to_owned());
            [vec![resource], given.clone()].concat()
        });
        queries.collect()
    }

    /// The queries for the instances of usages whose spans were in no list.
    fn missing(&self, used: &[Used], spans: &BTreeMap<String, Span>) -> Vec<Query> {
        let seen: HashSet<_> = spans
            .values()
            .map(|span| (&span.target, span.start))
            .collect();
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
        let ends_before = used
            .end
            .is_some_and(|end| from.is_some_and(|from| end <= from));
        !ends_before && to.is_none_or(|to| used.start < to)
    }
}
