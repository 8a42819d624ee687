//! What the API lets clients ask for, and what it may cost.

use bson::oid::ObjectId;
use sampler_domain::{ClientId, Id, Measures, SpanId, SpanState, WindowLength};
use sampler_store::{
    AuditQuery, BacklogQuery, CauseQuery, Events, Operating, Reading, SpanQuery, SpansBy,
    StoreError, SumQuery, TargetFilter,
};
use sampler_store_testing::support::{at, id};

use super::collections::{
    ACTED_ON, ASKED, CAUSES, DAYS, HOUR, INSTANCES, OF_FIRST, SUSPENDED, Size,
};
use super::collections::{asked, causes, span_id, usage_id};

/// Spans on a page, and entries.
const PAGE: usize = 100;
const ENTRIES: usize = 1_000;

/// Keys that a page of a list with conditions may read: a window, and up to where ids are cut.
const WINDOW: i64 = 10_000 + 1_000;

/// Days that a large sum is about.
const SOME_DAYS: i64 = 10;

/// What is asked of the store.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Spans(SpanQuery),
    Span(String),
    Usages(Option<i64>),
    UsagesFromEnd,
    Newest,
    Usage(String),
    Sums(SumQuery),
    Audit(AuditQuery),
    FindSpans(SpansBy),
    Causes(CauseQuery),
    Backlog,
}

/// A question with what it may cost: so many keys and documents at the most, whatever the size.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// As in the address.
    pub(crate) name: String,
    pub(crate) question: Question,
    pub(crate) keys: i64,
    pub(crate) documents: i64,
    /// Whether the cost may differ where there is more: what is asked for grows, or the page ends
    /// after a second.
    pub(crate) varies: bool,
}

impl Case {
    fn varying(mut self) -> Self {
        self.varies = true;
        self
    }
}

impl Question {
    /// Asks; says how many items there are on the page.
    pub(crate) async fn ask(
        &self,
        store: &(impl Events + Reading + Operating),
    ) -> Result<usize, StoreError> {
        Ok(match self {
            // Two pages, as long as there may be more.
            Self::Spans(query) => {
                let first = store.spans(query).await?;
                let second = match first.next {
                    Some(after) => {
                        let after = Some(after);
                        let query = SpanQuery {
                            after,
                            ..query.clone()
                        };
                        store.spans(&query).await?.spans.len()
                    }
                    None => 0,
                };
                first.spans.len() + second
            }
            Self::Span(id) => store.span(id, None).await?.into_iter().count(),
            Self::Usages(after) => {
                let span = ObjectId::parse_str(span_id(0)).unwrap();
                let span = SpanId::ObjectId(span.bytes());
                let page = store.usages(&span, &asked(0), *after, ENTRIES).await?;
                assert_eq!(page.unreadable, 0);
                page.entries.len()
            }
            Self::UsagesFromEnd => {
                let span = ObjectId::parse_str(span_id(0)).unwrap();
                let span = SpanId::ObjectId(span.bytes());
                let target = asked(0);
                let page = store.usages_from_end(&span, &target, None, ENTRIES);
                page.await?.entries.len()
            }
            Self::Newest => store.newest_spans(PAGE).await?.len(),
            Self::Usage(id) => store.usage(id).await?.into_iter().count(),
            Self::Sums(query) => store.sums(query).await?.rows.len(),
            Self::Audit(query) => store.audit(query).await?.records.len(),
            Self::FindSpans(by) => store.find_spans(&asked(ACTED_ON), by).await?.len(),
            Self::Causes(query) => store.causes(query).await?.len(),
            Self::Backlog => {
                let query = BacklogQuery {
                    now: at(0),
                    closing: None,
                };
                usize::try_from(store.count_backlog(&query).await?.due).unwrap()
            }
        })
    }
}

fn case(name: &str, question: Question, keys: i64, documents: i64) -> Case {
    let name = name.to_owned();
    Case {
        name,
        question,
        keys,
        documents,
        varies: false,
    }
}

fn filter(conditions: &[(&str, &str)]) -> TargetFilter {
    let mut filter = TargetFilter::default();
    for (field, value) in conditions {
        assert!(filter.set(field, Id::from_store(*value)), "{field}");
    }
    filter
}

fn spans(conditions: &[(&str, &str)], change: impl FnOnce(&mut SpanQuery)) -> Question {
    let mut query = SpanQuery {
        target: filter(conditions),
        limit: PAGE,
        ..SpanQuery::default()
    };
    change(&mut query);
    Question::Spans(query)
}

fn plain(_: &mut SpanQuery) {}

const ORGANIZATION: (&str, &str) = ("organization_id", "asked");
const INSTANCE: (&str, &str) = ("resource_instance_id", "asked-7");
const POSTGRES: (&str, &str) = ("resource_id", "postgres");

fn in_state(state: SpanState) -> impl FnOnce(&mut SpanQuery) {
    move |query| query.state = Some(state)
}

/// Lists of spans, and single ones.
pub(crate) fn of_spans() -> Vec<Case> {
    let mut cases = Vec::from(of_index_alone());
    cases.extend(of_an_instance());
    cases.extend(with_conditions());
    cases.extend(compared_within_a_window());
    cases.extend(single());
    cases
}

/// Pages that cost what they show.
fn of_index_alone() -> [Case; 4] {
    let page = |name, question| case(name, question, 2 * 102, 2 * 101);
    let to = |query: &mut SpanQuery| query.to = Some(at(-DAYS * 12 * HOUR));
    let resource = spans(&[("resource_id", "asked")], plain);
    let of_half = spans(&[POSTGRES], plain);
    [
        page("/v1/spans?organization_id", spans(&[ORGANIZATION], plain)),
        page("/v1/spans?resource_id", resource),
        page("/v1/spans?resource_id, of half of all", of_half).varying(),
        page("/v1/spans?resource_id&to", spans(&[POSTGRES], to)).varying(),
    ]
}

fn of_an_instance() -> [Case; 3] {
    let target = asked(7);
    let all = target.fields().map(|(name, id)| (name, id.as_str()));
    let each = ASKED / INSTANCES;
    let of = |name, question| case(name, question, 2 + each, each);
    let open = spans(&[INSTANCE], in_state(SpanState::Open));
    [
        of("/v1/spans?resource_instance_id", spans(&[INSTANCE], plain)),
        of("/v1/spans?resource_instance_id&state=open", open),
        of("/v1/spans? all six fields", spans(&all, plain)),
    ]
}

/// Conditions that are compared with all that the organization has.
fn with_conditions() -> [Case; 2] {
    let of = |name, question| case(name, question, 2 * (2 * ASKED + 2), 2 * ASKED);
    let from = |query: &mut SpanQuery| query.from = Some(at(-24 * HOUR));
    let open = spans(&[ORGANIZATION], in_state(SpanState::Open));
    [
        of("/v1/spans?organization_id&state=open", open),
        of(
            "/v1/spans?organization_id&from",
            spans(&[ORGANIZATION], from),
        ),
    ]
}

/// Conditions that few of very many spans meet.
fn compared_within_a_window() -> [Case; 7] {
    let of_half = |name, conditions: &[(&str, &str)], change: fn(&mut SpanQuery)| {
        let all: Vec<_> = [POSTGRES].iter().chain(conditions).copied().collect();
        case(name, spans(&all, change), 4 * WINDOW, 2 * WINDOW).varying()
    };
    // The condition of a partial index has the server fetch what its keys would say.
    let suspended = |name, question| case(name, question, 4 * WINDOW, 4 * WINDOW);
    let of_cause = |query: &mut SpanQuery| {
        query.state = Some(SpanState::Suspended);
        query.cause = causes().next().map(|cause| cause.id());
    };
    let all = spans(&[], in_state(SpanState::Suspended));
    let rare = "/v1/spans?resource_id&plan_id, one of thousands of half of all";
    let none = "/v1/spans?resource_id&space_id, none of half of all";
    // Found by the resource: what others have in the organization is not read.
    let of_scope = |query: &mut SpanQuery| query.resources = Some(vec![id("postgres")]);
    let of_scope = spans(&[ORGANIZATION], of_scope);
    let scoped = "/v1/spans?organization_id, with scopes of a resource that it has not";
    [
        of_half(
            "/v1/spans?resource_id&state=open, of half of all",
            &[],
            |query| {
                query.state = Some(SpanState::Open);
            },
        ),
        of_half("/v1/spans?resource_id&from, of half of all", &[], |query| {
            query.from = Some(at(HOUR));
        }),
        of_half(rare, &[("plan_id", "rare")], plain),
        of_half(none, &[("space_id", "nobody")], plain),
        case(scoped, of_scope, 4 * WINDOW, 2 * WINDOW).varying(),
        suspended("/v1/spans?state=suspended", all),
        suspended("/v1/spans?state=suspended&cause", spans(&[], of_cause)),
    ]
}

fn single() -> [Case; 4] {
    let find_spans = |name, by, keys| case(name, Question::FindSpans(by), keys, 2);
    let (started, stopped) = (
        SpansBy::StartedBy(id("start-7"), Measures::default()),
        SpansBy::StoppedBy(id("stop-107")),
    );
    [
        case("/v1/spans/{id}", Question::Span(span_id(ASKED - 1)), 3, 1),
        find_spans("the span that an event started", started, 2),
        find_spans("the span that an event stopped", stopped, 2),
        find_spans("the open span of a target", SpansBy::NotEndedBy(at(0)), 8),
    ]
}

fn sums(conditions: &[(&str, &str)], length: WindowLength, group_by: &[&'static str]) -> SumQuery {
    let (from, to) = (at(-DAYS * 24 * HOUR), at(0));
    // At most 366 windows.
    let from = if length == WindowLength::Hour {
        at(-SOME_DAYS * 24 * HOUR)
    } else {
        from
    };
    SumQuery {
        states: SumQuery::BILLED.to_vec(),
        target: filter(conditions),
        resources: None,
        length,
        windows: length.windows(from, to, 366).unwrap(),
        group_by: group_by.to_vec(),
        as_of: None,
        after: None,
        limit: 1_000,
    }
}

/// Sums and the ledger. What is asked for has all usages of the spans that are asked for.
pub(crate) fn of_usages(size: Size) -> Vec<Case> {
    let usages = ASKED * size.usages_of_each + OF_FIRST;
    let organization = [("organization_id", "asked")];
    let resource = [("resource_id", "asked")];
    // The first span is of the first instance.
    let instance = [("resource_instance_id", "asked-7")];
    let of_instance = ASKED / INSTANCES * size.usages_of_each;
    let all = WindowLength::All;
    let as_of = SumQuery {
        as_of: Some(at(-24 * HOUR)),
        ..sums(&organization, all, &[])
    };
    let mut of_nobody = resource.to_vec();
    of_nobody.push(("plan_id", "nobody"));
    // One key where the range of a command ends; a page asks for some windows at a time.
    let case_of = |name: &str, query: SumQuery, usages| {
        let commands = i64::try_from(query.windows.len()).unwrap();
        let case = case(name, Question::Sums(query), usages + commands, usages);
        if commands > 1 { case.varying() } else { case }
    };
    let grouped = |fields: &[&'static str]| sums(&resource, WindowLength::Day, fields);
    vec![
        case_of(
            "/v1/usages?organization_id&window=all",
            sums(&organization, all, &[]),
            usages,
        ),
        case_of("/v1/usages?organization_id&window=all&as_of", as_of, usages),
        case_of(
            "/v1/usages?resource_id&window=hour",
            sums(&resource, WindowLength::Hour, &[]),
            usages,
        ),
        case_of(
            "/v1/usages?resource_id&window=day&group_by=plan_id",
            grouped(&["plan_id"]),
            usages,
        ),
        case_of(
            "/v1/usages?resource_id&window=day&group_by=resource_instance_id",
            grouped(&["resource_instance_id"]),
            usages,
        ),
        case_of(
            "/v1/usages?resource_id&plan_id, none",
            sums(&of_nobody, all, &[]),
            usages,
        ),
        case_of(
            "/v1/usages?resource_instance_id&window=month",
            sums(&instance, WindowLength::Month, &[]),
            of_instance,
        ),
        case(
            "/v1/spans/{id}/usages, of 10,000",
            Question::Usages(None),
            1_001,
            1_001,
        ),
        case(
            "/v1/spans/{id}/usages, a page in their middle",
            Question::Usages(Some(100_000_000 + OF_FIRST / 2)),
            1_001,
            1_001,
        ),
        case(
            "/v1/spans/{id}/usages?order=newest, of 10,000",
            Question::UsagesFromEnd,
            1_001,
            1_001,
        ),
        case("/v1/spans?order=received", Question::Newest, 101, 101),
        case("a usage by its id", Question::Usage(usage_id(7)), 1, 1),
    ]
}

fn audit(change: impl FnOnce(&mut AuditQuery)) -> Question {
    let mut query = AuditQuery {
        from: None,
        to: None,
        who: None,
        span: None,
        after: None,
        limit: PAGE,
    };
    change(&mut query);
    Question::Audit(query)
}

/// What operators ask for.
pub(crate) fn of_operators() -> Vec<Case> {
    let who = |query: &mut AuditQuery| query.who = ClientId::new("asked");
    let span = |query: &mut AuditQuery| query.span = Some(span_id(ACTED_ON));
    let page = |name, question| case(name, question, 102, 101);
    vec![
        page("/v1/audit", audit(|_| {})).varying(),
        page(
            "/v1/audit?from&to",
            audit(|query| (query.from, query.to) = (Some(at(-48 * HOUR)), Some(at(-24 * HOUR)))),
        )
        .varying(),
        page("/v1/audit?who", audit(who)),
        page("/v1/audit?span", audit(span)),
        page(
            "/v1/audit?span&who",
            audit(|query| {
                who(query);
                span(query);
            }),
        ),
        // The spans are counted in the index, by two commands for all causes.
        case(
            "/v1/suspended",
            Question::Causes(CauseQuery {
                resources: None,
                of_each: ENTRIES,
                limit: ENTRIES,
            }),
            SUSPENDED + 2 * CAUSES,
            2 * CAUSES,
        ),
        // It reads the keys of all spans that are due, and the spans that have failed.
        case(
            "/v1/backlog, counted again",
            Question::Backlog,
            120_000,
            60_000,
        )
        .varying(),
    ]
}

/// Sums of half of all usages, which are as dear as there are usages.
pub(crate) fn large_sums() -> Vec<(String, Question)> {
    let postgres = [("resource_id", "postgres")];
    let sums_of = |name: &str, query| (name.to_owned(), Question::Sums(query));
    let of_day = SumQuery {
        windows: WindowLength::Day
            .windows(at(-24 * HOUR), at(0), 366)
            .unwrap(),
        ..sums(&postgres, WindowLength::Day, &[])
    };
    vec![
        sums_of("of half of all, one day", of_day),
        sums_of(
            "of half of all, by hour, a page",
            sums(&postgres, WindowLength::Hour, &[]),
        ),
        sums_of(
            "of half of all, by day, a page",
            sums(&postgres, WindowLength::Day, &[]),
        ),
        sums_of(
            "of half of all, in one window",
            sums(&postgres, WindowLength::All, &[]),
        ),
    ]
}
