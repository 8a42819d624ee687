//! Sums of usages of the ledger.
//!
//! The server groups entries by window, group and measures, and adds up their durations: integers
//! that stay exact. Quantities are multiplied here, in 128 bits ([`Amount`](sampler_domain::Amount)).
//! As the measures of a span do not change, there are few such parts for each row.
//!
//! An index makes each usage dearer, so those for sums are made by the first sum that needs them. They hold
//! the dimension of a usage before its time: so the check whether the windows would cut a usage reads no more
//! than the calendar around their bounds, and nothing where the bounds are of the calendar.
//!
//! A page asks for some windows at a time, in their order, so that a list of many windows continues
//! where its time ran out, and none is added up twice. The parts of a window come sorted by group: what
//! is behind the page is never sent.

use std::ops::Range;
use std::time::Duration;

use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::options::AggregateOptions;
use sampler_domain::{Granularity, Id, Measure, Measures, Timestamp, Window, WindowLength};
use sampler_store::{CutUsage, StoreError, SumPage, SumPosition, SumQuery, SumRow};
use serde::Deserialize;
use serde_json::Number;
use tokio::time::Instant;

use crate::call::{CallError, hint};
use crate::document::{moment, stored_measures};
use crate::index::sum_index;
use crate::{MongoStore, raw};

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
    /// The approximate memory of the rows.
    bytes: usize,
    has_more: bool,
}

pub(crate) async fn sums(
    store: &MongoStore,
    query: &SumQuery,
) -> Result<Result<SumPage, CutUsage>, StoreError> {
    let Some((field, _)) = query.target.narrowed_by() else {
        return Err(StoreError::refused("the query is too wide"));
    };
    // Usages of other resources are not even read: the time that this takes would reveal them.
    let field = match (field, &query.resources) {
        ("organization_id", Some(_)) => "resource_id",
        _ => field,
    };
    let mut added = store.added_up(query, field).await;
    if matches!(&added, Err(error) if error.is_no_hint()) {
        store.make_sum_index(field).await?;
        added = store.added_up(query, field).await;
    }
    match added {
        Ok(added) => Ok(added),
        Err(error) if error.is_beyond_limits() => Err(StoreError::Overloaded),
        // It was dropped again meanwhile.
        Err(error) if error.is_no_hint() => Err(StoreError::Preparing),
        Err(error) => Err(error.into()),
    }
}

impl MongoStore {
    async fn added_up(
        &self,
        query: &SumQuery,
        field: &str,
    ) -> Result<Result<SumPage, CutUsage>, CallError> {
        if let Some(cut) = self.cut_usage(query, field).await? {
            return Ok(Err(cut));
        }
        let (mut page, mut bytes) = (SumPage::default(), 0);
        let (began, start) = (Instant::now(), query.first_window());
        let (mut first, mut count) = (start, 1);
        while let Some(next) = query.windows.get(first) {
            let is_late = first > start && began.elapsed() > SumQuery::PAGE_TIME;
            if is_late || page.rows.len() >= query.limit || bytes > PAGE_BYTES {
                page.next = Some(start_of(*next));
                break;
            }
            let (asked, behind) = (Instant::now(), query.windows.len().min(first + count));
            let limit = query.limit - page.rows.len();
            match self.sums_in(query, field, first..behind, limit).await {
                Ok(rows) => {
                    bytes += rows.bytes;
                    page.rows.extend(rows.rows);
                    if rows.has_more {
                        page.next = page.rows.last().map(SumRow::position);
                        break;
                    }
                }
                // The next page begins with this window alone.
                Err(error) if error.is_beyond_limits() && first > start => {
                    page.next = Some(start_of(*next));
                    break;
                }
                Err(error) => return Err(error),
            }
            if asked.elapsed() < QUICK {
                count *= GROWTH;
            }
            first = behind;
        }
        Ok(Ok(page))
    }

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
        let pipeline = pipeline(query, &windows, after.map(Vec::as_slice));
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
                if !rows.add(parts.current())? {
                    break;
                }
            }
            Ok::<_, CallError>(rows)
        };
        self.usages.run(read).await
    }
}

impl MongoStore {
    /// A usage that the windows would cut, if there is one.
    async fn cut_usage(
        &self,
        query: &SumQuery,
        field: &str,
    ) -> Result<Option<CutUsage>, CallError> {
        let (Some(first), Some(last)) = (query.windows.first(), query.windows.last()) else {
            return Ok(None);
        };
        if query.windows.len() > 1 {
            for dimension in longer_than(query.length) {
                let mut filter = of_dimension(query, *dimension, first.start, last.end);
                filter.insert("$expr", crosses_window(query.length));
                if self.has_entry(filter, field).await? {
                    let (dimension, fits) = (*dimension, None);
                    return Ok(Some(CutUsage { dimension, fits }));
                }
            }
        }
        for bound in [first.start, last.end] {
            for dimension in Granularity::ALL {
                let from = dimension.window_of(bound);
                let to = dimension.boundary_after(bound).unwrap_or(Timestamp::MAX);
                if from == bound {
                    continue;
                }
                let mut filter = of_dimension(query, dimension, from, to);
                filter.insert("$or", holding(bound));
                if self.has_entry(filter, field).await? {
                    let fits = Some((from, to));
                    return Ok(Some(CutUsage { dimension, fits }));
                }
            }
        }
        Ok(None)
    }

    async fn has_entry(&self, filter: Document, field: &str) -> Result<bool, CallError> {
        let mut options = self.usages.find_options(1, doc! {}, sum_index(field).name);
        options.projection = Some(doc! { "_id": 1 });
        Ok(!self.usages.fetch(filter, options).await?.is_empty())
    }
}

/// The dimensions that are longer than windows of a length.
fn longer_than(length: WindowLength) -> &'static [Granularity] {
    match length {
        WindowLength::Hour => &[Granularity::Day, Granularity::Month],
        WindowLength::Day => &[Granularity::Month],
        WindowLength::Month | WindowLength::All => &[],
    }
}

/// The condition on entries of a dimension whose timestamps are within these times.
fn of_dimension(
    query: &SumQuery,
    dimension: Granularity,
    from: Timestamp,
    to: Timestamp,
) -> Document {
    let mut filter = of_targets(query);
    filter.insert("dimension", dimension.name());
    filter.insert(
        "timestamp",
        doc! { "$gte": moment(from), "$lt": moment(to) },
    );
    filter
}

/// The condition that a time is within the interval of an entry, which may lead backwards.
fn holding(time: Timestamp) -> [Document; 2] {
    let (below, above) = (doc! { "$lt": moment(time) }, doc! { "$gt": moment(time) });
    [
        doc! { "interval.start": &below, "interval.end": &above },
        doc! { "interval.start": above, "interval.end": below },
    ]
}

/// Whether an interval begins in one window and ends in another, as an expression.
fn crosses_window(length: WindowLength) -> Document {
    let ends = ["$interval.start", "$interval.end"];
    let last = doc! { "$subtract": [{ "$max": ends.to_vec() }, 1] };
    let windows = [
        window_of(length, doc! { "$min": ends.to_vec() }.into()),
        window_of(length, last.into()),
    ];
    doc! { "$ne": windows.to_vec() }
}

fn start_of(window: Window) -> SumPosition {
    SumPosition {
        window: window.start,
        group: None,
    }
}

/// The stages that add up what is in these windows, behind a group where there is one.
fn pipeline(query: &SumQuery, windows: &[Window], after: Option<&[Id]>) -> Vec<Document> {
    let fields = query.group_by.iter().map(|name| format!("$target.{name}"));
    let window = window_of(query.length, "$timestamp".into());
    let sum = doc! {
        "_id": { "key": { "window": window, "group": group(fields) }, "measures": measures() },
        "usages": { "$sum": 1_i64 },
        "duration": { "$sum": "$duration" },
    };
    let mut stages = vec![
        doc! { "$match": condition(query, windows) },
        doc! { "$group": sum },
    ];
    if let Some(after) = after {
        let after = group_of(after);
        stages.push(doc! { "$match": { "_id.key.group": { "$gt": after } } });
    }
    stages.push(doc! { "$sort": { "_id.key": 1 } });
    stages
}

/// The condition on entries that are asked for, whatever their time.
fn of_targets(query: &SumQuery) -> Document {
    let mut condition = Document::new();
    for (name, id) in query.target.conditions() {
        condition.insert(format!("target.{name}"), id.as_str());
    }
    if let Some(resources) = &query.resources {
        let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
        condition.insert("$and", [doc! { "target.resource_id": { "$in": ids } }]);
    }
    if let Some(to) = query.accepted_to {
        condition.insert("accepted_at", doc! { "$lte": moment(to) });
    }
    condition
}

/// The condition on entries that are asked for.
fn condition(query: &SumQuery, windows: &[Window]) -> Document {
    let from = windows.first().map_or(Timestamp::MIN, |first| first.start);
    let to = windows.last().map_or(Timestamp::MIN, |last| last.end);
    let mut condition = of_targets(query);
    condition.insert("dimension", doc! { "$in": Granularity::NAMES.to_vec() });
    condition.insert(
        "timestamp",
        doc! { "$gte": moment(from), "$lt": moment(to) },
    );
    condition
}

/// The boundary of the calendar before a time.
fn window_of(length: WindowLength, time: Bson) -> Bson {
    match length {
        WindowLength::Hour => every(3_600_000, &time),
        WindowLength::Day => every(86_400_000, &time),
        WindowLength::Month => {
            let month = doc! { "$dateTrunc": { "date": { "$toDate": time }, "unit": "month" } };
            doc! { "$toLong": month }.into()
        }
        WindowLength::All => doc! { "$literal": 0_i64 }.into(),
    }
}

/// The multiple of so many ms before a time.
fn every(millis: i64, time: &Bson) -> Bson {
    let behind = doc! { "$mod": [time, millis] };
    doc! { "$subtract": [time, behind] }.into()
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
    doc! { "$map": { "input": "$measured_usage", "as": "it", "in": measure } }
}

/// A part of a row, as the server sends it.
#[derive(Deserialize)]
struct Part {
    #[serde(rename = "_id")]
    id: PartId,
    usages: i64,
    duration: Number,
}

#[derive(Deserialize)]
struct PartId {
    key: PartKey,
    #[serde(deserialize_with = "stored_measures")]
    measures: Measures,
}

#[derive(Deserialize)]
struct PartKey {
    window: i64,
    group: Document,
}

impl Part {
    /// The group, by the fields that were grouped by.
    fn group(&self, fields: usize) -> Result<Vec<Id>, raw::Unreadable> {
        let values = (0..fields).map(|number| {
            let value = self.id.key.group.get_str(number_name(number));
            value.map(Id::from_store).map_err(raw::unreadable)
        });
        values.collect()
    }
}

impl Collected {
    fn new(windows: Vec<Window>, fields: usize, limit: usize) -> Self {
        Self {
            windows,
            fields,
            limit,
            rows: Vec::new(),
            bytes: 0,
            has_more: false,
        }
    }

    /// Adds a part, which belongs to the last row or to one behind it. Returns whether there was room.
    fn add(&mut self, raw: &RawDocument) -> Result<bool, CallError> {
        let part: Part = raw::read(raw).map_err(Error::from)?;
        let group = part.group(self.fields).map_err(Error::from)?;
        let from = part.id.key.window;
        let is_before = |window: &Window| window.end.as_millis() <= from;
        let Some(window) = self.windows.get(self.windows.partition_point(is_before)) else {
            return Ok(true);
        };
        let last = self.rows.last();
        if last.is_none_or(|row| row.window != *window || row.group != group) {
            if self.rows.len() == self.limit || self.bytes > PAGE_BYTES {
                self.has_more = true;
                return Ok(false);
            }
            let ids = group.iter().map(|id| id.as_str().len());
            self.bytes += ITEM_BYTES + ids.sum::<usize>();
            self.rows.push(SumRow::new(*window, group));
        }
        let row = self.rows.last_mut().expect("there is one now");
        row.add_usages(part.usages.unsigned_abs(), &part.duration);
        for Measure { measure, quantity } in part.id.measures.as_slice() {
            if !row.amounts.contains_key(measure) {
                self.bytes += ITEM_BYTES + measure.as_str().len();
            }
            row.add_measure(measure.clone(), quantity.as_json(), &part.duration);
        }
        if self.bytes > PAGE_BYTES + ROW_BYTES_MAX {
            return Err(CallError::TooLarge);
        }
        Ok(true)
    }
}
