//! Reads what the API says was billed, and has it checked, span by span.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_verify::api::{Entry, Span};
use sampler_verify::moment::Millis;
use sampler_verify::words::counted;
use sampler_verify::{
    Finding, FindingKind, History, Matcher, Policy, Report, SpanCheck, Target, Used, Verdict,
};

use super::Scope;
use crate::api::{Api, ApiError, Query};
use crate::progress::Progress;

/// The programs work while we read. Spans and usages that do not fit are read again, up to this many
/// times and with this pause in between, before there is a finding.
const ROUNDS: usize = 4;
const PAUSE: Duration = Duration::from_millis(1_500);

/// The ids, at least one of which must be in a query.
const INDEXED: [&str; 3] = ["organization_id", "resource_id", "resource_instance_id"];

/// A span, the place of its usage, and whether what is read of it now is believed.
type Pair = (Span, Option<usize>, bool);

pub(super) struct Run<'a> {
    pub(super) api: &'a Api,
    pub(super) policy: Policy,
    pub(super) at_once: usize,
}

impl Run<'_> {
    pub(super) async fn report(&self, history: History, scope: &Scope) -> Result<Report, ApiError> {
        let mut report = Report::new(history.contradictions);
        let mut matcher = Matcher::new(history.used);
        let mut spans = self.spans(scope.queries(&matcher)).await?;
        // A list that leaves out a span must be distinguished from a span that does not exist. Other spans of
        // the instances may be out of scope.
        let missing = scope.missing(matcher.all(), &spans);
        spans.extend(self.spans(missing).await?);
        let known = matcher.all().iter().map(|used| instance_of(&used.target));
        let known: Option<HashSet<[String; 3]>> = scope.known_only.then(|| known.collect());
        let mut pairs = matcher.pairs(spans.into_values().collect());
        pairs.retain(|(span, place)| {
            let is_known = known
                .as_ref()
                .is_none_or(|known| known.contains(&instance_of(&span.target)));
            place.is_some() || is_known
        });
        self.check_all(pairs, &matcher, &mut report).await?;
        for place in matcher.left() {
            let used = matcher.used(place);
            if scope.overlaps(used) {
                report.add_without_span(used, self.policy.now);
            }
        }
        Ok(report)
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

    /// Checks all spans. What does not fit is read again, and believed in the end.
    async fn check_all(
        &self,
        pairs: Vec<(Span, Option<usize>)>,
        matcher: &Matcher,
        report: &mut Report,
    ) -> Result<(), ApiError> {
        let mut progress = Progress::to(Some(pairs.len() as u64));
        let mut left: Vec<Pair> = pairs
            .into_iter()
            .map(|(span, place)| (span, place, false))
            .collect();
        let (mut spans, mut usages) = (0, 0);
        for round in 0..=ROUNDS {
            if round > 0 && !left.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
            let checks = stream::iter(std::mem::take(&mut left)).map(async |(span, place, _)| {
                let used = place.map(|place| matcher.used(place));
                let (span, is_settled) = match round {
                    0 => (span, false),
                    _ => self.read_again(span).await?,
                };
                let verdict = self.judge(&span, used).await?;
                Ok::<_, ApiError>((span, place, is_settled || round == ROUNDS, verdict))
            });
            let mut checks = std::pin::pin!(checks.buffered(self.at_once));
            while let Some(checked) = checks.next().await {
                let (span, place, is_settled, verdict) = checked?;
                if verdict.may_settle() && !is_settled {
                    left.push((span, place, false));
                    continue;
                }
                (spans, usages) = (spans + 1, usages + verdict.amounts.usages);
                progress.show(
                    spans,
                    spans,
                    "spans",
                    &format!(", {}", counted(usages, "usage")),
                );
                report.add(&span, place.map(|place| matcher.used(place)), verdict);
            }
        }
        progress.finish();
        Ok(())
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
    async fn judge(&self, span: &Span, used: Option<&Used>) -> Result<Verdict, ApiError> {
        let mut check = SpanCheck::new(span, used, &self.policy);
        let take = |page: Vec<Entry>| {
            for entry in &page {
                check.entry(entry);
            }
        };
        let path = ["v1", "spans", &span.id, "usages"];
        match self.api.each_page(&path, Query::new(), take).await {
            Err(error) if error.status() == Some(404) => {
                let what = "the span was removed while it was read";
                Ok(Verdict::of(Finding::new(FindingKind::Expired, what)))
            }
            read => read.map(|()| check.finish()),
        }
    }
}

/// The ids that distinguish an instance from others, in the order of [`INDEXED`].
fn instance_of(target: &Target) -> [String; 3] {
    [
        target.organization_id.clone(),
        target.resource_id.clone(),
        target.resource_instance_id.clone(),
    ]
}

impl Scope {
    /// The queries for the API: by the ids that were given, and where none of these has an index, by each
    /// resource of the events.
    fn queries(&self, matcher: &Matcher) -> Vec<Query> {
        let mut given = Query::new();
        self.target.add_to(&mut given);
        let is_narrow = given.iter().any(|(name, _)| INDEXED.contains(name));
        let mut queries = vec![given.clone()];
        if !is_narrow {
            let resources = matcher.all().iter().map(|used| &*used.target.resource_id);
            let resources: BTreeSet<&str> = resources.collect();
            let queries_of = resources.into_iter().map(|resource| {
                let resource = ("resource_id", resource.to_owned());
                [vec![resource], given.clone()].concat()
            });
            queries = queries_of.collect();
        }
        for query in &mut queries {
            self.period.add_to(query);
        }
        queries
    }

    /// The queries for the instances of usages whose spans were in no list.
    fn missing(&self, used: &[Used], spans: &BTreeMap<String, Span>) -> Vec<Query> {
        let seen = spans.values().map(|span| (&span.target, span.start));
        let seen: HashSet<(&Target, Millis)> = seen.collect();
        let is_missing =
            |used: &&Used| !seen.contains(&(&used.target, used.start)) && self.overlaps(used);
        let left = used.iter().filter(is_missing);
        let instances: BTreeSet<[String; 3]> = left.map(|used| instance_of(&used.target)).collect();
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
        let ends_before =
            matches!((used.end, self.period.from), (Some(end), Some(from)) if end <= from);
        !ends_before && self.period.to.is_none_or(|to| used.start < to)
    }
}
