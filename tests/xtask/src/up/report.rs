//! The table: what was used, what was billed, and the difference.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use chrono::DateTime;
use sampler_cli::table::table;
use sampler_testkit::abacus::StandInAbacus;

use super::attribution::{Bill, Row, attribute};
use super::send::Sent;
use super::spans::{Key, State};

/// A day in ms.
const DAY: u64 = 86_400_000;
/// How many rows without a difference are shown.
const ROWS_SHOWN: usize = 30;
/// How many rows with a difference, and events that were refused, are shown.
const FAULTS_SHOWN: usize = 50;

/// One span.
#[derive(Clone, Debug)]
struct Line {
    target: String,
    start: String,
    end: String,
    used: i128,
    bill: Bill,
    /// Why it is wrong, if it is so for another reason than the difference.
    note: &'static str,
}

/// What is billed for all spans together, of one measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    used: i128,
    billed: i128,
}

/// What came of a replay.
#[derive(Debug)]
pub(super) struct Report {
    lines: Vec<Line>,
    totals: BTreeMap<String, Total>,
    refused: Vec<String>,
    unattributed: usize,
    put_aside: usize,
}

impl Report {
    pub(super) fn new(sent: &Sent, states: &HashMap<Key, State>, abacus: &StandInAbacus) -> Self {
        let (bills, unattributed) = attribute(&sent.rows, &abacus.counted());
        let mut totals = BTreeMap::new();
        let mut lines = Vec::with_capacity(bills.len());
        for (row, bill) in sent.rows.iter().zip(bills) {
            let state = states.get(&(row.target.clone(), row.start, row.end));
            let line = Line::new(row, state, bill);
            add_totals(&mut totals, row, &line);
            lines.push(line);
        }
        let put_aside = abacus.put_aside().len();
        Self {
            lines,
            totals,
            refused: sent.refused.clone(),
            unattributed,
            put_aside,
        }
    }

    /// Whether everything was taken, is complete, and was billed as it was used.
    pub(super) fn is_right(&self) -> bool {
        let totals_right = self.totals.values().all(|total| total.used == total.billed);
        let lines_right = self.lines.iter().all(Line::is_right);
        totals_right && lines_right && self.refused.is_empty() && self.unattributed == 0
    }

    fn is_shown(&self, number: usize) -> bool {
        let line = &self.lines[number];
        let wrong = || {
            self.lines[..number]
                .iter()
                .filter(|line| !line.is_right())
                .count()
        };
        number < ROWS_SHOWN || (!line.is_right() && wrong() < FAULTS_SHOWN)
    }
}

impl Line {
    fn new(row: &Row, state: Option<&State>, bill: Bill) -> Self {
        let sampled_to = state.map_or(row.start, |state| state.sampled_to);
        let until = row.end.unwrap_or(sampled_to);
        let note = match (state, row.end) {
            (None, _) => "not in the database",
            (
                Some(State {
                    complete: false, ..
                }),
                Some(_),
            ) => "not complete",
            _ => "",
        };
        let [.., resource, plan, instance] = &row.target.0;
        Self {
            target: format!("{resource}/{plan}/{instance}"),
            start: in_words(row.start),
            end: row
                .end
                .map_or_else(|| format!("open ({})", in_words(sampled_to)), in_words),
            used: i128::from(until - row.start),
            bill,
            note,
        }
    }

    fn difference(&self) -> i128 {
        self.bill.duration - self.used
    }

    fn is_right(&self) -> bool {
        self.difference() == 0 && self.note.is_empty()
    }

    fn cells(&self) -> [String; 10] {
        [
            self.target.clone(),
            self.start.clone(),
            self.end.clone(),
            length_in_words(self.used),
            self.used.to_string(),
            self.bill.duration.to_string(),
            self.difference().to_string(),
            (self.bill.forwards + self.bill.backwards).to_string(),
            self.bill.backwards.to_string(),
            self.note.to_owned(),
        ]
    }
}

/// Adds a span to the totals: its duration, and its duration times each integer quantity.
fn add_totals(totals: &mut BTreeMap<String, Total>, row: &Row, line: &Line) {
    let mut used = vec![("duration", line.used)];
    for measure in row.measures.as_array().into_iter().flatten() {
        if let (Some(name), Some(quantity)) =
            (measure["measure"].as_str(), measure["quantity"].as_i64())
        {
            used.push((name, line.used * i128::from(quantity)));
        }
    }
    for (name, amount) in used {
        totals.entry(name.to_owned()).or_default().used += amount;
    }
    for (name, amount) in &line.bill.amounts {
        totals.entry(name.clone()).or_default().billed += amount;
    }
}

/// A moment in UTC, as people read it.
pub(super) fn in_words(millis: i64) -> String {
    let moment = DateTime::from_timestamp_millis(millis);
    moment.map_or_else(
        || millis.to_string(),
        |moment| moment.format("%F %T%.3f").to_string(),
    )
}

/// A length of time, given in ms, as people read it: in days and less, which are as long each time.
fn length_in_words(millis: i128) -> String {
    let Ok(length) = u64::try_from(millis) else {
        return millis.to_string();
    };
    let (days, rest) = (length / DAY, Duration::from_millis(length % DAY));
    let rest = humantime::format_duration(rest);
    match days {
        0 => rest.to_string(),
        1 => format!("1day {rest}"),
        _ => format!("{days}days {rest}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "target",
            "start (UTC)",
            "end (UTC)",
            "used",
            "used ms",
            "billed ms",
            "difference",
            "usages",
            "negative",
            "",
        ];
        let shown: Vec<usize> = (0..self.lines.len())
            .filter(|line| self.is_shown(*line))
            .collect();
        let rows = shown.iter().map(|line| self.lines[*line].cells());
        writeln!(f, "{}", table(header, rows, &[0, 1, 2, 9]))?;
        let rest = self.lines.len() - shown.len();
        if rest > 0 {
            let wrong = self.lines.iter().filter(|line| !line.is_right()).count();
            writeln!(
                f,
                "... and {rest} more; {wrong} of all {} differ",
                self.lines.len()
            )?;
        }
        writeln!(f)?;
        let header = ["over all spans", "used", "billed", "difference"];
        let total = |(name, Total { used, billed }): (&String, &Total)| {
            [
                name.clone(),
                used.to_string(),
                billed.to_string(),
                (billed - used).to_string(),
            ]
        };
        writeln!(f, "{}", table(header, self.totals.iter().map(total), &[0]))?;
        self.write_faults(f)
    }
}

impl Report {
    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for refused in self.refused.iter().take(FAULTS_SHOWN) {
            writeln!(f, "not taken: {refused}")?;
        }
        if self.refused.len() > FAULTS_SHOWN {
            writeln!(f, "not taken: {} in all", self.refused.len())?;
        }
        if self.unattributed > 0 {
            writeln!(
                f,
                "{} usages belong to none of these spans",
                self.unattributed
            )?;
        }
        if self.put_aside > 0 {
            writeln!(f, "{} usages were set aside by Abacus", self.put_aside)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_in_days_of_24_hours() {
        assert_eq!(length_in_words(2_986_200_000), "34days 13h 30m");
        assert_eq!(length_in_words(94_830_400), "1day 2h 20m 30s 400ms");
        assert_eq!(length_in_words(12_341), "12s 341ms");
        assert_eq!(length_in_words(-1), "-1");
    }

    fn line(used: i128, billed: i128, note: &'static str) -> Line {
        let bill = Bill {
            duration: billed,
            forwards: 2,
            backwards: 1,
            ..Bill::default()
        };
        let text = String::new;
        Line {
            target: "r/p/i".to_owned(),
            start: text(),
            end: text(),
            used,
            bill,
            note,
        }
    }

    fn report(lines: Vec<Line>) -> Report {
        let (refused, totals) = (Vec::new(), BTreeMap::new());
        Report {
            lines,
            totals,
            refused,
            unattributed: 0,
            put_aside: 0,
        }
    }

    #[test]
    fn columns_stand_below_each_other() {
        let text = report(vec![line(7, 7, ""), line(1000, 1, "not complete")]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "target  start (UTC)  end (UTC)  used  used ms  billed ms  difference  usages  negative"
        );
        assert_eq!(
            lines[1],
            "r/p/i                            7ms        7          7           0       3         1"
        );
        let wrong = "r/p/i                             1s     1000          1        -999       3         1  not complete";
        assert_eq!(lines[2], wrong);
    }

    #[test]
    fn is_right_only_without_any_fault() {
        assert!(report(vec![line(7, 7, "")]).is_right());
        assert!(!report(vec![line(7, 7, ""), line(7, 8, "")]).is_right());
        assert!(!report(vec![line(7, 7, "not complete")]).is_right());
        assert!(
            !Report {
                unattributed: 1,
                ..report(Vec::new())
            }
            .is_right()
        );
        assert!(
            !Report {
                refused: vec![String::new()],
                ..report(Vec::new())
            }
            .is_right()
        );
        let total = BTreeMap::from([("memory".to_owned(), Total { used: 1, billed: 2 })]);
        assert!(
            !Report {
                totals: total,
                ..report(Vec::new())
            }
            .is_right()
        );
    }

    #[test]
    fn many_rows_are_cut_but_not_the_wrong_ones() {
        let mut lines = vec![line(7, 7, ""); 100];
        lines[90] = line(7, 8, "");
        let text = report(lines).to_string();
        assert_eq!(text.matches("r/p/i").count(), ROWS_SHOWN + 1, "{text}");
        assert!(
            text.contains("... and 69 more; 1 of all 100 differ"),
            "{text}"
        );
    }
}
