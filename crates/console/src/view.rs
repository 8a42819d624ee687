//! Tables and searches, which all pages show alike.

use askama::Template;
use http::StatusCode;
use sampler_api::Problem;

use crate::page::Frame;
use crate::parameters::{self, label};
use crate::show::Html;
use crate::visit::{Listed, Visit};

/// How the cells of a column look, the same on all pages. Narrow pages leave out what is `wide`.
fn class_of(column: &str) -> &'static str {
    match column {
        "Instance" | "When" | "Spans" => "main",
        "Billed" | "Not billed yet" | "Duration" | "Status" | "Usages" => "number",
        "Attempts" => "number wide",
        "Since" | "Changes" => "wide",
        "Usage" => "guid",
        "Id" => "guid wide",
        "Action" => "acts",
        // An amount of a measure.
        name if name.contains('\u{b7}') || name.contains('\u{d7}') => "number",
        _ => "",
    }
}

#[derive(Default)]
pub(crate) struct Row {
    /// The place that links within the page lead to.
    pub(crate) anchor: String,
    pub(crate) class: &'static str,
    pub(crate) cells: Vec<Html>,
}

/// A table. On a narrow page each row is a card.
pub(crate) struct Table {
    pub(crate) label: &'static str,
    /// By which tests find its rows.
    pub(crate) hook: &'static str,
    /// The names of the columns, and their classes.
    pub(crate) columns: Vec<(String, &'static str)>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// A table with these columns, which have bars between them.
    pub(crate) fn new(label: &'static str, hook: &'static str, columns: &str) -> Self {
        let columns = columns.split('|');
        Self {
            label,
            hook,
            columns: columns
                .map(|name| (name.to_owned(), class_of(name)))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a column.
    pub(crate) fn column(&mut self, name: &str) {
        self.columns.push((name.to_owned(), class_of(name)));
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Html>) {
        let cells = cells.into_iter().collect();
        self.rows.push(Row {
            cells,
            ..Row::default()
        });
    }
}

/// A field of a search.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) label: String,
    pub(crate) value: String,
    pub(crate) placeholder: &'static str,
    /// The values to choose from, behind their labels; none where any text can be entered.
    pub(crate) options: Vec<(String, String)>,
}

impl Field {
    pub(crate) fn new(visit: &Visit, name: &'static str) -> Self {
        let is_moment = parameters::is_moment(name);
        Self {
            name,
            label: label(name).to_owned(),
            value: if is_moment {
                parameters::local(&visit.query, name)
            } else {
                visit.value(name).to_owned()
            },
            placeholder: if is_moment { "2026-11-20T14:00" } else { "" },
            options: Vec::new(),
        }
    }

    /// A field with these values to choose from, after one that is none and has a name of its own.
    pub(crate) fn choice(visit: &Visit, name: &'static str, none: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|value| (*value).to_owned());
        let values = values.map(|value| (label(&value).to_owned(), value));
        let none = (none.to_owned(), String::new());
        Self {
            options: [none].into_iter().chain(values).collect(),
            ..Self::new(visit, name)
        }
    }
}

/// A page of a list, with its search.
#[derive(Template)]
#[template(path = "list.html")]
pub(crate) struct ListPage {
    pub(crate) frame: Frame,
    pub(crate) title: &'static str,
    pub(crate) fields: Vec<Field>,
    pub(crate) presets: Vec<(&'static str, String)>,
    pub(crate) problem: Option<Problem>,
    /// What is said above the table.
    pub(crate) notes: Vec<String>,
    pub(crate) table: Option<Table>,
    /// What is said where the table has no rows.
    pub(crate) empty: &'static str,
    pub(crate) next: Option<String>,
    pub(crate) file: Option<String>,
}

impl ListPage {
    pub(crate) fn new<T>(
        visit: &Visit,
        title: &'static str,
        fields: Vec<Field>,
        listed: Listed<T>,
        table: impl FnOnce(Vec<T>) -> Table,
    ) -> Self {
        let is_more = listed.next.is_some();
        Self {
            frame: visit.frame(),
            title,
            fields,
            presets: parameters::presets(&visit.query, visit.now()),
            problem: listed.problem,
            notes: Vec::new(),
            table: listed.items.map(table),
            empty: if is_more {
                "No match so far. There is more."
            } else {
                "No match."
            },
            next: listed.next,
            file: None,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self.problem {
            Some(_) => StatusCode::BAD_REQUEST,
            None => StatusCode::OK,
        }
    }
}
