//! `span`: one span, with its proof and its usages. Spans by their id, or by the name of their instance.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{Proof, Span};
use sampler_verify::words::counted;
use serde_json::{Value, json};

use crate::api::{Answer, Api, ApiError, Query};
use crate::event::SpanSeen;
use crate::failure::Failure;
use crate::listing::Period;
use crate::moment::FORMS;
use crate::output::printable;
use crate::show::{exit_code, facts, length_in_words, show, table_of};

const USAGES: &str = "id interval/start interval/end duration status accepted_at";
const RANGES: &str = "start end back_to unanswered error";
/// How many ids are shown to choose from.
const SHOWN_MAX: usize = 20;

/// Shows one span: its proof, its usages
#[derive(Debug, Args)]
#[command(after_help = format!("\
A late stop shows as usages of negative duration, from where sampling was to where it should have ended.
--from and --to keep usages whose timestamp is between them.
{FORMS}

Examples:
  sampler span orders-db
  sampler span 6b0067e75a449b4a91561b99 --usages 100"))]
pub(crate) struct Arguments {
    /// The id of the span, as in `sampler spans`, or an instance that has one span
    #[arg(value_name = "SPAN|INSTANCE")]
    span: String,
    /// How many usages are shown, the last ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    usages: usize,
    #[command(flatten)]
    period: Period,
}

pub(crate) async fn run(arguments: Arguments, api: &Api) -> Result<ExitCode, Failure> {
    let answer = one(api, &arguments.span).await?;
    let (span, document): (Span, Value) = (answer.read()?, answer.read()?);
    let mut query = Query::new();
    arguments.period.add_to(&mut query);
    let path = ["v1", "spans", &span.id, "usages"];
    let (usages, _) = api.items::<Value>(&path, &query, usize::MAX).await?;
    show(&json!({ "span": document, "usages": usages }), || {
        in_words(&span, document.clone(), &usages, arguments.usages)
    })?;
    Ok(exit_code(!span.proof.is_broken()))
}

/// The span of this id, or else the only span of the instance of this name.
pub(crate) async fn one(api: &Api, given: &str) -> Result<Answer, Failure> {
    find(api, given, |_| true).await
}

/// The same; of an instance, the only span that has no end yet.
pub(crate) async fn open(api: &Api, given: &str) -> Result<SpanSeen, Failure> {
    let found = find(api, given, |span| span["end"].is_null()).await?;
    Ok(found.read()?)
}

async fn find(api: &Api, given: &str, is_meant: fn(&Value) -> bool) -> Result<Answer, Failure> {
    let error = match api.get(&["v1", "spans", given], &Query::new()).await {
        Err(error) if error.is_of_nothing() => error,
        answered => return Ok(answered?),
    };
    let query = vec![("resource_instance_id", given.to_owned())];
    let path = ["v1", "spans"];
    let (mut spans, _) = api.items::<Value>(&path, &query, usize::MAX).await?;
    let shown = printable(given);
    if spans.is_empty() {
        let message = format!(
            "there is no span with the id {shown}, and none of an instance with this name, or the token does \
             not allow reading it"
        );
        return Err(ApiError { message, ..error }.into());
    }
    spans.retain(is_meant);
    let ids: Vec<&str> = spans.iter().filter_map(|it| it["id"].as_str()).collect();
    let list = format!("sampler spans --resource-instance-id {shown}");
    match ids[..] {
        [id] => Ok(api.get(&["v1", "spans", id], &Query::new()).await?),
        [] => Err(Failure::Input(format!(
            "the instance {shown} has no open span: {list}"
        ))),
        _ => {
            let (count, first) = (ids.len(), ids.len().min(SHOWN_MAX));
            Err(Failure::Input(format!(
                "{shown} is the name of an instance with {count} spans; give the id of one, of `{list}`: {}",
                printable(&ids[..first].join(", "))
            )))
        }
    }
}

fn in_words(span: &Span, mut document: Value, usages: &[Value], shown: usize) -> String {
    let mut take = |name| {
        let members = document.as_object_mut();
        members.and_then(|members| members.shift_remove(name))
    };
    take("proof");
    let [skipped, again] = ["excluded", "again"].map(|name| ranges(take(name)));
    let (facts, proof) = (facts(&document), proof_in_words(&span.proof));
    let mut words = format!("{facts}\nproof: {proof}\n\n");
    if span.delivery.unanswered {
        words += "a post of the planned usage had no answer: the upstream may count it\n\n";
    }
    for (name, ranges) in [("skipped", skipped), ("sent again", again)] {
        if !ranges.is_empty() {
            let _ = writeln!(words, "{name}:\n{}", table_of(&ranges, RANGES, ""));
        }
    }
    let hidden = usages.len().saturating_sub(shown);
    words += &table_of(&usages[hidden..], USAGES, "No usages.");
    if hidden > 0 {
        let (earlier, all) = (counted(hidden, "earlier usage"), usages.len());
        let _ = writeln!(words, "... and {earlier}: --usages {all}");
    }
    words
}

fn ranges(value: Option<Value>) -> Vec<Value> {
    let ranges = value.and_then(|value| value.as_array().cloned());
    ranges.unwrap_or_default()
}

/// The proof in one line.
pub(crate) fn proof_in_words(proof: &Proof) -> String {
    let [used, billed, skipped] = [proof.used, proof.billed, proof.skipped].map(length_in_words);
    let mut words = format!("used {used} = billed {billed} + skipped {skipped}");
    if proof.unanswered != 0 {
        let unanswered = length_in_words(proof.unanswered);
        let _ = write!(
            words,
            " (the upstream may count {unanswered} of it: a post had no answer)"
        );
    }
    if proof.unsampled != 0 {
        let what = if proof.unsampled > 0 {
            "not billed yet"
        } else {
            "to be taken back"
        };
        let unsampled = length_in_words(proof.unsampled.saturating_abs());
        let _ = write!(words, "; {what} {unsampled}");
    }
    if let (Some(usages), Some(ledger), Some(difference)) =
        (proof.usages, proof.ledger, proof.difference)
    {
        let (usages, ledger) = (counted(usages, "usage"), length_in_words(ledger));
        let name = if proof.is_broken() {
            "DIFFERENCE"
        } else {
            "difference"
        };
        let _ = write!(
            words,
            "; the ledger has {usages} of {ledger}, {name} {difference} ms"
        );
    }
    words
}
