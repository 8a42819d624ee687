//! The sums of usages, and CSV to take away.

use std::collections::BTreeSet;

use axum::response::Response;
use sampler_api::units::Hourly;
use sampler_api::{Amount, Sum};
use sampler_domain::Timestamp;

use crate::api::Refusal;
use crate::csv;
use crate::page::render;
use crate::parameters::{IDS, label};
use crate::show::{self, Html};
use crate::view::{Field, ListPage, Table};
use crate::visit::{Listed, Visit};

const SUMS: &str = "/v1/usages";

const WINDOWS: [&str; 3] = ["month", "day", "hour"];

/// `GET /console/usage`.
pub(crate) async fn show(visit: Visit) -> Result<Response, Refusal> {
    if visit.asks_for_file() {
        return Ok(file(&csv::all::<Sum>(&visit, SUMS).await?));
    }
    let is_asked = !visit.asks_for_time_alone();
    let listed = if is_asked {
        visit.listed::<Sum>(SUMS).await?
    } else {
        Listed::default()
    };
    let measures = columns(listed.items.as_deref().unwrap_or_default());
    let mut notes = Vec::new();
    if is_asked {
        notes.extend(formulas(&measures));
    } else {
        let note = "Enter an organization, a resource or an instance. A usage belongs to the window \
                    that its middle is in.";
        notes.push(note.to_owned());
    }
    let page = ListPage::new(&visit, "Usage", fields(&visit), listed, |sums| {
        table(&sums, &measures)
    });
    let page = ListPage {
        notes,
        file: is_asked.then(|| visit.file()),
        ..page
    };
    Ok(render(page.status(), &page))
}

fn fields(visit: &Visit) -> Vec<Field> {
    let mut fields: Vec<Field> = IDS
        .iter()
        .chain(&["from", "to"])
        .map(|name| Field::new(visit, name))
        .collect();
    // An address may name several groups.
    let given = visit.value("group_by");
    let mut groups = IDS.to_vec();
    groups.extend((given.contains(',')).then_some(given));
    fields.push(Field::choice(visit, "window", "all", &WINDOWS));
    fields.push(Field::choice(visit, "group_by", "nothing", &groups));
    fields
}

/// A measure of the rows.
struct Measured {
    name: String,
    unit: Option<String>,
    /// How its amounts are shown by the hour, where it has a unit.
    hourly: Option<Hourly>,
}

impl Measured {
    /// The names of its columns: of the exact amount, and of the one by the hour.
    fn names(&self) -> Vec<String> {
        let unit = self.unit.as_ref().map(|unit| format!(" {unit}"));
        let exact = format!("{}{} \u{d7} ms", self.name, unit.unwrap_or_default());
        let hourly = self.hourly.as_ref();
        let hourly = hourly.map(|hourly| format!("{} {}", self.name, hourly.name));
        [exact].into_iter().chain(hourly).collect()
    }

    /// The exact amount, and the one by the hour.
    fn amounts(&self, sum: &Sum) -> Vec<String> {
        let amount = sum.measures.iter().find(|it| it.measure == self.name);
        let hourly = || amount.and_then(Amount::by_the_hour).unwrap_or_default();
        let hourly = self.hourly.as_ref().map(|_| hourly());
        [sum.amount(&self.name)].into_iter().chain(hourly).collect()
    }
}

/// The measures that any of the rows has.
fn columns(sums: &[Sum]) -> Vec<Measured> {
    let mut measures: Vec<Measured> = Vec::new();
    for amount in sums.iter().flat_map(|sum| &sum.measures) {
        if !measures.iter().any(|it| it.name == amount.measure) {
            measures.push(Measured {
                name: amount.measure.clone(),
                unit: amount.unit.clone(),
                hourly: amount.hourly(),
            });
        }
    }
    measures
}

/// How the amounts by the hour follow from the exact ones, each once.
fn formulas(measures: &[Measured]) -> BTreeSet<String> {
    let hourly = measures.iter().filter_map(|it| it.hourly.as_ref());
    hourly.map(|it| it.formula.clone()).collect()
}

/// The fields that rows are grouped by.
fn groups(sums: &[Sum]) -> Vec<String> {
    let groups = sums.first().map(|sum| sum.group.keys().cloned().collect());
    groups.unwrap_or_default()
}

fn table(sums: &[Sum], measures: &[Measured]) -> Table {
    let groups = groups(sums);
    let names: Vec<String> = measures.iter().flat_map(Measured::names).collect();
    let mut table = Table::new("Sums", "usage-row", "From|To");
    let groups_of = groups.iter().map(|group| label(group));
    let names = names.iter().map(String::as_str);
    for column in groups_of.chain(["Usages", "Duration"]).chain(names) {
        table.column(column);
    }
    for sum in sums {
        let mut cells = vec![
            bound(sum.window.start, "beginning"),
            bound(sum.window.end, "no end"),
        ];
        cells.extend(groups.iter().map(|group| show::id(sum.field(group))));
        cells.push(show::number(sum.usages));
        let duration = sum.duration();
        let length = sum.millis().map(show::length);
        cells.push(length.unwrap_or_else(|| show::exact(&duration)));
        let amounts = measures.iter().flat_map(|it| it.amounts(sum));
        cells.extend(amounts.map(|amount| show::exact(&amount)));
        table.row(cells);
    }
    table
}

/// A time, unless it is as good as none.
fn bound(at: Timestamp, none: &str) -> Html {
    if at == Timestamp::MIN || at == Timestamp::MAX {
        return show::faint(none);
    }
    show::at(at)
}

fn file(sums: &[Sum]) -> Response {
    let (groups, measures) = (groups(sums), columns(sums));
    let names: Vec<String> = measures.iter().flat_map(Measured::names).collect();
    let mut head = vec!["window_start", "window_end"];
    head.extend(groups.iter().map(String::as_str));
    head.extend(["usages", "duration_ms"]);
    head.extend(names.iter().map(String::as_str));
    let rows = sums.iter().map(|sum| {
        let mut cells = vec![sum.window.start.to_string(), sum.window.end.to_string()];
        cells.extend(groups.iter().map(|group| sum.field(group).to_owned()));
        cells.extend([sum.usages.to_string(), sum.duration()]);
        cells.extend(measures.iter().flat_map(|it| it.amounts(sum)));
        cells
    });
    csv::file("usage", &head, rows)
}
