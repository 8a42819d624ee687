//! What the API lets clients ask for, and what it may cost.

use bson::oid::ObjectId;
use sampler_domain::{ClientId, Granularities, Granularity, Id, SpanId, SpanState, WindowLength};
use sampler_store::contract::support::{at, id};
use sampler_store::{
    AuditQuery, BacklogQuery, Backlogs, Lookup, Queries, SpanQuery, StoreError, SumQuery,
    TargetFilter,
};

use super::collections::{ACTED_ON, ASKED, CAUSES, DAYS, HOUR, INSTANCES, OF_FIRST, Size};
use super::collections::{asked, causes, span_id, usage_id};

/// Spans on a page, and entries.
const PAGE: usize = 100;
const ENTRIES: usize = 1_000;

/// Keys that a page of a list with conditions may read: a window, and up to where ids are cut.
const WINDOW: i64 = 10_000 + 1_000;

/// One key for each partition, where its range ends.
const PARTITIONS: i64 = 2 * 64;

/// Spans of a cause that are counted for `/v1/suspended` are all, here.
const COUNTED: i64 = super::collections::SUSPENDED + CAUSES;

/// Days that a large sum is about.
const SOME_DAYS: i64 = 10;

/// What is asked of the store.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Spans(SpanQuery),
    Span(String),
    Usages(Option<i64>),
    Usage(String),
    Sums(SumQuery),
    Suspended,
    Audit(AuditQuery),
    LookUp(Lookup),
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
    pub(crate) async fn ask(&self, store: &(impl Queries + Backlogs)) -> Result<usize, StoreError> {
        Ok(match self {
            Self::Spans(query) => store.spans(query).await?.spans.len(),
            Self::Span(id) => store.span(id, None).await?.into_iter().count(),
            Self::Usages(after) => {
                let span = ObjectId::parse_str(span_id(0)).unwrap();
                let span = SpanId::ObjectId(span.bytes());
                let page = store.usages(&span, &asked(0), *after, ENTRIES).await?;
                assert_eq!(page.unreadable, 0);
                page.entries.len()
            }
            Self::Usage(id) => store.usage(id).await?.into_iter().count(),
            Self::Sums(query) => store.sums(query).await?.rows.len(),
            Self::Suspended => store.suspended(None).await?.len(),
            Self::Audit(query) => store.audit(query).await?.records.len(),
            Self::LookUp(by) => store.look_up(&asked(ACTED_ON), by).await?.len(),
            Self::Backlog => {
                let query = BacklogQuery {
                    now: at(0),
                    closing: None,
                    granularities: Granularities::all(Granularity::Hour),
                };
                usize::try_from(store.count(&query).await?.due).unwrap()
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

/// Lists of spans, and single ones.
pub(crate) fn of_spans() -> Vec<Case> {
    let organization = ("organization_id", "asked");
    let instance = ("resource_instance_id", "asked-7");
    let postgres = ("resource_id", "postgres");
    let target = asked(7);
    let all = target.fields().map(|(name, id)| (name, id.as_str()));
    let in_state = |state| move |query: &mut SpanQuery| query.state = Some(state);
    let of_cause = |query: &mut SpanQuery| {
        query.state = Some(SpanState::Suspended);
        query.cause = causes().next().map(|cause| cause.id());
    };
    let each = ASKED / INSTANCES;
    let (page, documents) = (102, 101);
    vec![
        case(
            "/v1/spans?organization_id",
            spans(&[organization], plain),
            page,
            documents,
        ),
        case(
            "/v1/spans?resource_id",
            spans(&[("resource_id", "asked")], plain),
            page,
            documents,
        ),
        case(
            "/v1/spans?resource_id, of half of all",
            spans(&[postgres], plain),
            page,
            documents,
        )
        .varying(),
        case(
            "/v1/spans?resource_id&to",
            spans(&[postgres], |query| query.to = Some(at(-DAYS * 12 * HOUR))),
            page,
            documents,
        )
        .varying(),
        case(
            "/v1/spans?resource_instance_id",
            spans(&[instance], plain),
            PARTITIONS + each,
            each,
        ),
        case(
            "/v1/spans? all six fields",
            spans(&all, plain),
            2 + each,
            each,
        ),
        case(
            "/v1/spans?resource_instance_id&state=open",
            spans(&[instance], in_state(SpanState::Open)),
            PARTITIONS + each,
            each,
        ),
        case(
            "/v1/spans?organization_id&state=open",
            spans(&[organization], in_state(SpanState::Open)),
            2 * ASKED + 2,
            ASKED,
        ),
        case(
            "/v1/spans?organization_id&from",
            spans(&[organization], |query| query.from = Some(at(-24 * HOUR))),
            2 * ASKED + 2,
            ASKED,
        ),
        case(
            "/v1/spans?resource_id&state=open, of half of all",
            spans(&[postgres], in_state(SpanState::Open)),
            2 * WINDOW,
            WINDOW,
        )
        .varying(),
        case(
            "/v1/spans?resource_id&plan_id, one of thousands of half of all",
            spans(&[postgres, ("plan_id", "rare")], plain),
            2 * WINDOW,
            WINDOW,
        )
        .varying(),
        case(
            "/v1/spans?resource_id&space_id, none of half of all",
            spans(&[postgres, ("space_id", "nobody")], plain),
            2 * WINDOW,
            WINDOW,
        )
        .varying(),
        case(
            "/v1/spans?resource_id&from, none of half of all",
            spans(&[postgres], |query| {
                query.from = Some(at(HOUR));
                query.state = Some(SpanState::Complete);
            }),
            2 * WINDOW,
            WINDOW,
        )
        .varying(),
        case(
            "/v1/spans?organization_id, with scopes of another resource",
            spans(&[organization], |query| {
                query.resources = Some(vec![id("postgres")])
            }),
            2 * ASKED + 2,
            ASKED,
        ),
        case(
            "/v1/spans?state=suspended",
            spans(&[], in_state(SpanState::Suspended)),
            // The condition of a partial index has the server fetch what its keys would say.
            2 * WINDOW,
            2 * WINDOW,
        ),
        case(
            "/v1/spans?state=suspended&cause",
            spans(&[], of_cause),
            2 * WINDOW,
            2 * WINDOW,
        ),
        case("/v1/spans/{id}", Question::Span(span_id(ASKED - 1)), 3, 1),
        case(
            "a start's search for its span",
            Question::LookUp(Lookup::StartedBy(id("start-7"))),
            2,
            1,
        ),
        case(
            "a stop's search for its span",
            Question::LookUp(Lookup::StoppedBy(id("stop-107"))),
            2,
            1,
        ),
        case(
            "a search for the open span",
            Question::LookUp(Lookup::NotEndedBy(at(0))),
            8,
            2,
        ),
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
        case("/v1/suspended", Question::Suspended, 2 * COUNTED, COUNTED),
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
        // It reads up to some 20,000 spans, and estimates the others.
        case(
            "/v1/backlog, counted anew",
            Question::Backlog,
            45_000,
            45_000,
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
