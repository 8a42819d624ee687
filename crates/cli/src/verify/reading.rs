//! Reads what the API says was billed, and has it checked, span by span.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_verify::api::Span;
use sampler_verify::check::Amounts;
use sampler_verify::words::counted;
use sampler_verify::{
    Finding, FindingKind, Matcher, Policy, Report, SpanCheck, Target, Used, Verdict,
};

use super::Scope;
use crate::api::{Api, ApiError, Position, Query};
use crate::progress::Progress;

/// The programs work while we read. Spans and usages that do not fit are read again, up to this many
/// times and with this pause in between, before there is a finding.
const ROUNDS: usize = 4;
const PAUSE: Duration = Duration::from_millis(1_500);

/// The ids, at least one of which must be in a query.
const INDEXED: [&str; 3] = ["organization_id", "resource_id", "resource_instance_id"];

/// A span, and the place of its usage.
type Pair = (Span, Option<usize>);

pub(super) struct Run<'a> {
    api: &'a Api,
    policy: Policy,
    at_once: usize,
    matcher: Matcher,
    report: Report,
    /// The ids of the spans that were listed.
    listed: HashSet<String>,
    /// Spans that no event explains, unless by being like one.
    unexplained: Vec<Span>,
    /// Spans that are to be read again.
    doubtful: Vec<Pair>,
    /// How many spans and usages were checked.
    checked: (u64, u64),
    progress: Progress,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        api: &'a Api,
        policy: Policy,
        at_once: usize,
        used: Vec<Used>,
        report: Report,
    ) -> Self {
        Self {
            api,
            policy,
            at_once,
            checked: (0, 0),
            // There should be a span for each usage.
            progress: Progress::to(Some(used.len() as u64)),
            matcher: Matcher::new(used),
            report,
            listed: HashSet::new(),
            unexplained: Vec::new(),
            doubtful: Vec::new(),
        }
    }

    pub(super) async fn read(mut self, scope: &Scope) -> Result<Report, ApiError> {
        for query in scope.queries(&self.matcher) {
            let unexplained = self.list(&query).await?;
            self.unexplained.extend(unexplained);
        }
        self.find_missing(scope).await?;
        let mut unexplained = std::mem::take(&mut self.unexplained);
        if scope.known_only {
            let known = self.instances();
            unexplained.retain(|span| known.contains(&instance_of(&span.target)));
        }
        let similar = unexplained
            .into_iter()
            .map(|span| {
                let place = self.matcher.take_similar(&span);
                (span, place)
            })
            .collect();
        self.check(similar).await?;
        self.settle().await?;
        for place in self.matcher.left() {
            let used = self.matcher.used(place);
            if scope.overlaps(used) {
                self.report.add_without_span(used, self.policy.now);
            }
        }
        self.progress.finish();
        Ok(self.report)
    }

    /// Lists spans, and checks those that an event explains. Returns the others.
    async fn list(&mut self, query: &Query) -> Result<Vec<Span>, ApiError> {
        let mut position = Position::default();
        let mut unexplained = Vec::new();
        loop {
            let page = self.api.spans(query, &position).await?;
            let count = page.items.len();
            let mut explained = Vec::new();
            for span in page.items {
                if !self.listed.insert(span.id.clone()) {
                    continue;
                }
                match self.matcher.take(&span) {
                    Some(place) => explained.push((span, Some(place))),
                    None => unexplained.push(span),
                }
            }
            self.check(explained).await?;
            if !position.advance(count, page.cursor)? {
                return Ok(unexplained);
            }
        }
    }

    /// Asks for the spans that were in no list: they may have come since, and a list that leaves out
    /// a span must be distinguished from a span that does not exist. Other spans of the instances
    /// may be out of scope.
    async fn find_missing(&mut self, scope: &Scope) -> Result<(), ApiError> {
        let left = self.matcher.left().into_iter();
        let instances: BTreeSet<[String; 3]> = left
            .map(|place| self.matcher.used(place))
            .filter(|used| scope.overlaps(used))
            .map(|used| instance_of(&used.target))
            .collect();
        for ids in instances {
            let query: Query = INDEXED.into_iter().zip(ids).collect();
            self.list(&query).await?;
        }
        Ok(())
    }

    fn instances(&self) -> HashSet<[String; 3]> {
        let used = (0..self.matcher.len()).map(|place| self.matcher.used(place));
        used.map(|used| instance_of(&used.target)).collect()
    }

    /// Reads again what did not fit, and believes it in the end.
    async fn settle(&mut self) -> Result<(), ApiError> {
        for round in 1..=ROUNDS {
            let pairs = std::mem::take(&mut self.doubtful);
            if pairs.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
            let is_last = round == ROUNDS;
            let api = self.api;
            let fresh = stream::iter(pairs).map(async |(span, place)| {
                let fresh = api.span(&span.id).await?;
                Ok::<_, ApiError>((span, place, fresh))
            });
            let mut fresh = std::pin::pin!(fresh.buffered(self.at_once));
            let mut again = Vec::new();
            while let Some(found) = fresh.next().await {
                let (span, place, fresh) = found?;
                match fresh {
                    // A complete span no longer changes: reading it twice is enough.
                    Some(fresh) => {
                        let is_settled = is_last || (fresh == span && span.state == "complete");
                        again.push((fresh, place, is_settled));
                    }
                    None => self.add_removed(&span, place),
                }
            }
            self.check_again(again).await?;
        }
        Ok(())
    }

    async fn check(&mut self, pairs: Vec<Pair>) -> Result<(), ApiError> {
        let pairs = pairs.into_iter().map(|(span, place)| (span, place, false));
        self.check_again(pairs.collect()).await
    }

    /// Reads the usages of spans, several at a time. Spans that do not fit are kept for later,
    /// except in the last round.
    async fn check_again(
        &mut self,
        spans: Vec<(Span, Option<usize>, bool)>,
    ) -> Result<(), ApiError> {
        let (api, policy, matcher) = (self.api, &self.policy, &self.matcher);
        let checks = stream::iter(spans).map(async |(span, place, is_settled)| {
            let used = place.map(|place| matcher.used(place));
            let verdict = judge(api, &span, used, policy).await?;
            Ok::<_, ApiError>((span, place, is_settled, verdict))
        });
        let mut checks = Box::pin(checks.buffered(self.at_once));
        let mut removed = Vec::new();
        while let Some(checked) = checks.next().await {
            let (span, place, is_settled, verdict) = checked?;
            match verdict {
                Some(verdict) if verdict.may_settle() && !is_settled => {
                    self.doubtful.push((span, place));
                }
                Some(verdict) => {
                    self.checked.0 += 1;
                    self.checked.1 += verdict.amounts.usages;
                    let (spans, usages) = self.checked;
                    let usages = format!(", {}", counted(usages, "usage"));
                    self.progress.show(spans, spans, "spans", &usages);
                    let used = place.map(|place| matcher.used(place));
                    self.report.add(&span, used, verdict);
                }
                None => removed.push((span, place)),
            }
        }
        drop(checks);
        for (span, place) in removed {
            self.add_removed(&span, place);
        }
        Ok(())
    }

    /// A span that the clean-up removed meanwhile can no longer be checked.
    fn add_removed(&mut self, span: &Span, place: Option<usize>) {
        let finding = Finding::new(
            FindingKind::Removed,
            "the span was removed while it was read",
        );
        let verdict = Verdict {
            amounts: Amounts::default(),
            findings: vec![finding],
            more: 0,
        };
        let used = place.map(|place| self.matcher.used(place));
        self.report.add(span, used, verdict);
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

/// Reads the usages of a span page by page; `None` where it was removed.
async fn judge(
    api: &Api,
    span: &Span,
    used: Option<&Used>,
    policy: &Policy,
) -> Result<Option<Verdict>, ApiError> {
    let mut check = SpanCheck::new(span, used, policy);
    let mut position = Position::default();
    loop {
        let Some(page) = api.usages(&span.id, &position).await? else {
            return Ok(None);
        };
        for entry in &page.items {
            check.entry(entry);
        }
        if !position.advance(page.items.len(), page.cursor)? {
            return Ok(Some(check.finish()));
        }
    }
}

impl Scope {
    /// The queries for the API: by the ids that were given, and where none of these has an index, by each
    /// resource of the events.
    fn queries(&self, matcher: &Matcher) -> Vec<Query> {
        let given: Query = self
            .ids()
            .into_iter()
            .filter_map(|(name, id)| Some((name, id.clone()?)))
            .collect();
        let is_narrow = given.iter().any(|(name, _)| INDEXED.contains(name));
        let mut queries = if is_narrow {
            vec![given]
        } else {
            let used = (0..matcher.len()).map(|place| matcher.used(place));
            let resources: BTreeSet<&str> =
                used.map(|used| used.target.resource_id.as_str()).collect();
            let queries = resources.into_iter().map(|resource| {
                let resource = ("resource_id", resource.to_owned());
                [vec![resource], given.clone()].concat()
            });
            queries.collect()
        };
        for query in &mut queries {
            let moments = [("from", self.from), ("to", self.to)].into_iter();
            query.extend(moments.filter_map(|(name, at)| Some((name, at?.to_string()))));
        }
        queries
    }

    fn ids(&self) -> [(&'static str, &Option<String>); 6] {
        let ids = [
            &self.organization_id,
            &self.space_id,
            &self.consumer_id,
            &self.resource_id,
            &self.plan_id,
            &self.resource_instance_id,
        ];
        let mut named = Target::FIELDS.into_iter().zip(ids);
        std::array::from_fn(|_| named.next().expect("six ids"))
    }

    /// Whether the ids of a target are in scope.
    pub(super) fn holds(&self, target: &Target) -> bool {
        let mut pairs = self.ids().into_iter().zip(target.ids());
        pairs.all(|((_, given), id)| given.as_ref().is_none_or(|given| given == id))
    }

    /// Whether a usage is in the time in scope.
    fn overlaps(&self, used: &Used) -> bool {
        let ends_before = matches!((used.end, self.from), (Some(end), Some(from)) if end <= from);
        !ends_before && self.to.is_none_or(|to| used.start < to)
    }
}
