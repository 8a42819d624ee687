//! Sums of usages of the ledger.
//!
//! The server groups entries by window, group and measures, and adds up their durations: integers
//! that stay exact. Quantities are multiplied here, in 128 bits ([`Amount`](sampler_domain::Amount)).
//! As the measures of a span do not change, there are few such parts for each row.
//!
//! An index makes each usage dearer, so those for sums are made by the first sum that needs them.
//!
//! A page asks for some windows at a time, in their order, so that a list of many windows continues
//! where its time ran out, and none is added up twice. The parts of a window come sorted by group: what
//! is behind the page is never sent.

use std::ops::Range;
use std::time::Duration;

use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::AggregateOptions;
use sampler_domain::{Id, Timestamp, Window, WindowLength};
use sampler_store::{StoreError, SumPage, SumPosition, SumQuery, SumRow};
use serde_json::{Number, Value};
use tokio::time::Instant;

use crate::call::{CallError, hint};
use crate::document::{has_failed, moment, read_measure, to_json};
use crate::index::sum_index;
use crate::unreadable::decoded;
use crate::{MongoStore, codes};

/// If a command took less than `QUICK`, the next one asks for `GROWTH` times as many windows.
const QUICK: Duration = Duration::from_millis(50);
const GROWTH: usize = 4;

/// The approximate bytes of the rows on a page, and the most bytes of a single row.
const PAGE_BYTES: usize = 4 << 20;
const ROW_BYTES_MAX: usize = 16 << 20;

/// The memory of a row, and of each of its measures, beside the texts.
const ITEM_BYTES: usize = 128;

/// Parts that the server sends at once.
const BATCH_SIZE: u32 = 101;

/// The rows of some windows.
struct Collected {
    windows: Vec<Window>,
    fields: usize,
    limit: usize,
    rows: Vec<SumRow>,
    /// The approximate memory of the rows, and of the last one.
    bytes: usize,
    last_bytes: usize,
    has_more: bool,
    /// Whether a row has more measures than an answer may hold.
    is_too_large: bool,
}

pub(crate) async fn sums(store: &MongoStore, query: &SumQuery) -> Result<SumPage, StoreError> {
    let Some((field, _)) = query.target.narrowed_by() else {
        return Err(StoreError::Refused("the query is too wide".into()));
    };
    // Usages of other resources are not even read: the time that this takes would reveal them.
    let field = match (field, &query.resources) {
        ("organization_id", Some(_)) => "resource_id",
        _ => field,
    };
    let (mut page, mut bytes) = (SumPage::default(), 0);
    let (began, start) = (Instant::now(), query.first_window());
    let (mut first, mut count) = (start, 1);
    let mut has_made_index = false;
    while let Some(next) = query.windows.get(first) {
        let is_late = first > start && began.elapsed() > SumQuery::PAGE_TIME;
        if is_late || page.rows.len() >= query.limit || bytes > PAGE_BYTES {
            page.next = Some(start_of(*next));
            break;
        }
        let (asked, behind) = (Instant::now(), query.windows.len().min(first + count));
        let limit = query.limit - page.rows.len();
        match store.sums_in(query, field, first..behind, limit).await {
            Ok(rows) if rows.is_too_large => return Err(StoreError::Overloaded),
            Ok(rows) => {
                bytes += rows.bytes;
                page.rows.extend(rows.rows);
                if rows.has_more {
                    page.next = page.rows.last().map(SumRow::position);
                    break;
                }
            }
            Err(error) if error.is_no_hint() => {
                // It was dropped again meanwhile.
                if has_made_index {
                    return Err(StoreError::Preparing);
                }
                store.make_sum_index(field).await?;
                has_made_index = true;
                continue;
            }
            Err(error) if !is_beyond_limits(&error) => return Err(error.into()),
            // The next page begins with this window alone.
            Err(_) if first > start => {
                page.next = Some(start_of(*next));
                break;
            }
            Err(_) => return Err(StoreError::Overloaded),
        }
        if asked.elapsed() < QUICK {
            count *= GROWTH;
        }
        first = behind;
    }
    Ok(page)
}

impl MongoStore {
    /// The rows of some windows, up to a limit.
    async fn sums_in(
        &self,
        query: &SumQuery,
        field: &str,
        windows: Range<usize>,
        limit: usize,
    ) -> Result<Collected, CallError> {
        let is_first = windows.start == query.first_window();
        let windows = query.windows.get(windows).unwrap_or_default().to_vec();
        let group = query.after.as_ref().and_then(|after| after.group.as_ref());
        // The first window is asked for alone.
        let after = group.filter(|group| is_first && !group.is_empty());
        let spans = self.link.collection.name();
        let pipeline = pipeline(query, &windows, after.map(Vec::as_slice), spans);
        let options = AggregateOptions::builder()
            .hint(hint(sum_index(field).name))
            .max_time(self.usages.time_limit)
            .batch_size(BATCH_SIZE)
            .allow_disk_use(false)
            .build();
        let usages = self.usages.collection.clone();
        let mut rows = Collected::new(windows, query.group_by.len(), limit);
        let read = async move {
            let mut parts = usages.aggregate(pipeline).with_options(options).await?;
            while parts.advance().await? {
                if !rows.add(parts.current()) {
                    break;
                }
            }
            Ok::<_, Error>(rows)
        };
        self.usages.run(read).await
    }
}

fn start_of(window: Window) -> SumPosition {
    SumPosition {
        window: window.start,
        group: None,
    }
}

fn is_beyond_limits(error: &CallError) -> bool {
    match error {
        CallError::Driver(error) => match error.kind.as_ref() {
            ErrorKind::Command(error) => codes::is_beyond_limits(error.code),
            _ => false,
        },
        CallError::TimedOut(_) => true,
        _ => false,
    }
}

/// The stages that add up what is in these windows, behind a group where there is one.
fn pipeline(
    query: &SumQuery,
    windows: &[Window],
    after: Option<&[Id]>,
    spans: &str,
) -> Vec<Document> {
    let fields = query.group_by.iter().map(|name| format!("$target.{name}"));
    let group = doc! {
        "_id": {
            "key": { "window": window_of(query.length), "group": group(fields) },
            "measures": measures(),
        },
        "usages": { "$sum": 1 },
        "duration": { "$sum": "$duration" },
    };
    let mut stages = vec![doc! { "$match": condition(query, windows) }];
    if query.has_refused() {
        let pipeline = refused(query, windows);
        stages.push(doc! { "$unionWith": { "coll": spans, "pipeline": pipeline } });
    }
    stages.push(doc! { "$group": group });
    if let Some(after) = after {
        let after = group_of(after);
        stages.push(doc! { "$match": { "_id.key.group": { "$gt": after } } });
    }
    stages.push(doc! { "$sort": { "_id.key": 1 } });
    stages
}

/// The stages that make entries of the refused usages that spans have planned.
fn refused(query: &SumQuery, windows: &[Window]) -> Vec<Document> {
    let mut condition = of_targets(query);
    condition.insert("processing.complete", false);
    condition.insert("processing.planned_interval", doc! { "$type": "object" });
    condition.insert("processing.failed_version", doc! { "$exists": true });
    condition.insert("processing.refused_at", doc! { "$type": "number" });
    condition.insert("$expr", has_failed());
    let (start, end) = (
        "$processing.planned_interval.start",
        "$processing.planned_interval.end",
    );
    let middle = doc! { "$floor": { "$divide": [{ "$add": [start, end] }, 2] } };
    let entry = doc! {
        "target": 1,
        "measured_usage": 1,
        "timestamp": { "$toLong": middle },
        "duration": { "$toLong": { "$subtract": [end, start] } },
    };
    vec![
        doc! { "$match": condition },
        doc! { "$project": entry },
        doc! { "$match": within(windows) },
    ]
}

/// The condition on timestamps in these windows.
fn within(windows: &[Window]) -> Document {
    let from = windows.first().map_or(Timestamp::MIN, |first| first.start);
    let to = windows.last().map_or(Timestamp::MIN, |last| last.end);
    doc! { "timestamp": { "$gte": moment(from), "$lt": moment(to) } }
}

fn of_targets(query: &SumQuery) -> Document {
    let mut condition = Document::new();
    for (name, id) in query.target.conditions() {
        condition.insert(format!("target.{name}"), id.as_str());
    }
    if let Some(resources) = &query.resources {
        let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
        condition.insert("$and", [doc! { "target.resource_id": { "$in": ids } }]);
    }
    condition
}

/// The condition on entries that are asked for.
fn condition(query: &SumQuery, windows: &[Window]) -> Document {
    let mut condition = within(windows);
    condition.extend(of_targets(query));
    let states: Vec<&str> = query.states.iter().map(|state| state.name()).collect();
    condition.insert("state", doc! { "$in": states });
    condition
}

/// The boundary of the calendar before a timestamp.
fn window_of(length: WindowLength) -> Bson {
    match length {
        WindowLength::Hour => every(3_600_000),
        WindowLength::Day => every(86_400_000),
        WindowLength::Month => {
            let date = doc! { "$toDate": "$timestamp" };
            let month = doc! { "$dateTrunc": { "date": date, "unit": "month" } };
            doc! { "$toLong": month }.into()
        }
        WindowLength::All => doc! { "$literal": 0_i64 }.into(),
    }
}

/// The multiple of so many ms before a timestamp.
fn every(millis: i64) -> Bson {
    let behind = doc! { "$mod": ["$timestamp", millis] };
    doc! { "$subtract": ["$timestamp", behind] }.into()
}

/// A document with these values, which are compared one after the other.
fn group(values: impl IntoIterator<Item = String>) -> Document {
    let numbered = (0..).map(number_name);
    numbered.zip(values.into_iter().map(Bson::String)).collect()
}

/// The group of these ids, whatever they begin with.
fn group_of(ids: &[Id]) -> Document {
    group(ids.iter().map(|id| id.as_str().to_owned()))
}

fn number_name(number: usize) -> String {
    format!("value{number}")
}

/// The measures that can be added up. Large texts and lists are left out, so that they are not
/// sent.
fn measures() -> Document {
    let is_number = doc! { "$isNumber": "$$it.quantity" };
    let measure = doc! {
        "measure": "$$it.measure",
        "quantity": { "$cond": [is_number, "$$it.quantity", Bson::Null] },
    };
    let all = doc! { "$map": { "input": "$measured_usage", "as": "it", "in": measure } };
    doc! { "$cond": [{ "$isArray": "$measured_usage" }, all, Bson::Null] }
}

struct Part {
    window: i64,
    group: Vec<Id>,
    measures: Vec<(Id, Value)>,
    usages: u64,
    duration: Number,
}

impl Part {
    /// The part that a document holds; none where entries have no readable target.
    fn read(raw: &RawDocument, fields: usize) -> Option<Self> {
        let document = decoded(raw).ok()?;
        let id = document.get_document("_id").ok()?;
        let key = id.get_document("key").ok()?;
        let values = key.get_document("group").ok()?;
        let group = (0..fields).map(|number| values.get_str(number_name(number)).ok());
        let measures = id.get_array("measures").map(Vec::as_slice);
        Some(Self {
            window: to_json(key.get("window")?).as_f64().map(whole)?,
            group: group
                .map(|id| id.map(Id::from_store))
                .collect::<Option<_>>()?,
            measures: measures
                .unwrap_or_default()
                .iter()
                .filter_map(read_measure)
                .collect(),
            usages: to_json(document.get("usages")?).as_u64()?,
            duration: to_json(document.get("duration")?).as_number()?.clone(),
        })
    }
}

/// Moments are exact as doubles.
#[expect(clippy::cast_possible_truncation, reason = "it is whole")]
fn whole(moment: f64) -> i64 {
    moment as i64
}

impl Collected {
    fn new(windows: Vec<Window>, fields: usize, limit: usize) -> Self {
        Self {
            windows,
            fields,
            limit,
            rows: Vec::new(),
            bytes: 0,
            last_bytes: 0,
            has_more: false,
            is_too_large: false,
        }
    }

    /// Adds a part, which belongs to the last row or to one behind it. Returns whether there was room.
    fn add(&mut self, raw: &RawDocument) -> bool {
        let Some(part) = Part::read(raw, self.fields) else {
            return true;
        };
        let windows = &self.windows;
        let behind = windows.partition_point(|window| window.end.as_millis() <= part.window);
        let Some(window) = windows.get(behind).copied() else {
            return true;
        };
        let last = self.rows.last();
        if last.is_none_or(|row| row.window != window || row.group != part.group) {
            let is_full = self.rows.len() == self.limit || self.bytes > PAGE_BYTES;
            if is_full {
                self.has_more = true;
                return false;
            }
            let ids = part.group.iter().map(|id| id.as_str().len());
            self.bytes += ITEM_BYTES + ids.sum::<usize>();
            self.last_bytes = 0;
            self.rows.push(SumRow::new(window, part.group));
        }
        let Some(row) = self.rows.last_mut() else {
            return true;
        };
        row.add_usages(part.usages, &part.duration);
        for (measure, quantity) in part.measures {
            if !row.amounts.contains_key(&measure) {
                let bytes = ITEM_BYTES + measure.as_str().len();
                self.bytes += bytes;
                self.last_bytes += bytes;
            }
            row.add_measure(measure, &quantity, &part.duration);
        }
        self.is_too_large = self.last_bytes > ROW_BYTES_MAX;
        !self.is_too_large
    }
}
