//! A usage that was skipped or set aside, sent again: confirmed on a page of its own.

use axum::extract::Path;
use axum::response::Response;
use http::{Method, StatusCode};
use percent_encoding::utf8_percent_encode;
use sampler_api::{List, Problem, Span, Usage};
use serde_json::json;

use super::actions::{ActPage, answer, facts_of, not_allowed};
use super::spans;
use crate::api::{Query, Refusal, SEGMENT, address, problem};
use crate::form::SubmittedForm;
use crate::page::{refused, render};
use crate::visit::Visit;
use crate::{parameters, show};

/// Usages that are read at a time to find one, and how often. The API looks at many for one answer
/// where a time is given.
const USAGES: &str = "1000";
const READS_MAX: usize = 20;

/// The page that confirms that this usage of a span is sent again. The time of the usage gives
/// its position in the ledger.
pub(crate) fn page_of(span: &str, usage: &Usage) -> String {
    page_at(span, &usage.id, &usage.timestamp.as_millis().to_string())
}

fn page_at(span: &str, usage: &str, at: &str) -> String {
    let usage = utf8_percent_encode(usage, SEGMENT);
    let path = format!("{}/usages/{usage}/resend", spans::page_of(span));
    address(&path, &[("at".to_owned(), at.to_owned())])
}

/// Which usage, as the address says it.
struct Subject {
    span: String,
    usage: String,
    at: String,
}

impl Subject {
    fn new((span, usage): (String, String), visit: &Visit) -> Self {
        let at = visit.value("at").to_owned();
        Self { span, usage, at }
    }

    fn back(&self) -> String {
        let usage = utf8_percent_encode(&self.usage, SEGMENT);
        format!("{}#u-{usage}", spans::page_of(&self.span))
    }
}

/// `GET /console/spans/{id}/usages/{usage}/resend`.
pub(crate) async fn show(Path(path): Path<(String, String)>, visit: Visit) -> Response {
    match page(&visit, &Subject::new(path, &visit)).await {
        Ok(page) => render(StatusCode::OK, &page),
        Err(response) => response,
    }
}

/// `POST /console/spans/{id}/usages/{usage}/resend`.
pub(crate) async fn carry_out(Path(path): Path<(String, String)>, form: SubmittedForm) -> Response {
    let subject = Subject::new(path, &form.visit);
    let usage = utf8_percent_encode(&subject.usage, SEGMENT);
    let path = format!("/v1/usages/{usage}/resend");
    let body = json!({ "reason": form.value("reason") });
    let done = form.act(Method::POST, &path, "", &body).await;
    let page = page(&form.visit, &subject);
    answer(&form, "Spans", &subject.back(), done, page).await
}

/// The page in the present state, or the page that says why there is none.
async fn page(visit: &Visit, subject: &Subject) -> Result<ActPage, Response> {
    let frame = visit.frame("Spans");
    if !visit.session.is_admin() {
        return Err(not_allowed(frame));
    }
    let (span, usage) = match find(visit, subject).await {
        Ok(found) => found,
        Err(refusal) => return Err(refused(frame, refusal)),
    };
    let mut facts = facts_of(&span.target);
    facts.push(("Usage", usage.id.clone()));
    Ok(ActPage {
        frame,
        title: "Resend a usage",
        effect: effect(&usage),
        facts,
        button: "Resend 1 usage".to_owned(),
        action: page_at(&subject.span, &subject.usage, &subject.at),
        back: subject.back(),
        tag: String::new(),
        usage_id: String::new(),
        reason: String::new(),
        problem: (!usage.is_resendable()).then(|| not_resendable(&usage)),
    })
}

async fn find(visit: &Visit, subject: &Subject) -> Result<(Span, Usage), Refusal> {
    let path = format!("/v1/spans/{}", utf8_percent_encode(&subject.span, SEGMENT));
    let span = visit.get::<Span>(&path, &[]).await?.body;
    let mut query: Query = vec![("limit".to_owned(), USAGES.to_owned())];
    if let Ok(at) = subject.at.parse::<i64>() {
        query.push(("from".to_owned(), at.to_string()));
        query.push(("to".to_owned(), at.saturating_add(1).to_string()));
    }
    let path = format!("{path}/usages");
    for _ in 0..READS_MAX {
        let page = visit.get::<List<Usage>>(&path, &query).await?;
        let mut usages = page.body.items.into_iter();
        if let Some(usage) = usages.find(|usage| usage.id == subject.usage) {
            return Ok((span, usage));
        }
        let Some(cursor) = page.cursor else {
            break;
        };
        query = parameters::with(&query, "cursor", Some(&cursor));
    }
    let detail = "The ledger keeps a usage until it expires.";
    Err(Refusal::not_there("There is no such usage", detail))
}

/// The effect of sending it again, in full sentences.
fn effect(usage: &Usage) -> Vec<String> {
    let (start, end) = (usage.interval.start, usage.interval.end);
    let direction = if usage.is_backward() {
        "It then takes back what was billed too much."
    } else {
        "It is billed then."
    };
    let words = format!(
        "Resend 1 usage of {}: {} {} to {} {}. {direction}",
        show::in_words(usage.duration),
        show::date(start),
        show::clock(start),
        show::date(end),
        show::clock(end),
    );
    let error = usage.error.as_deref().unwrap_or("no error is known");
    let before = match usage.state.as_str() {
        "skipped" => "It was skipped.".to_owned(),
        "set_aside" => format!("The upstream has set it aside: {error}."),
        _ => String::new(),
    };
    let all = [words, before];
    all.into_iter().filter(|line| !line.is_empty()).collect()
}

fn not_resendable(usage: &Usage) -> Problem {
    let detail = if usage.withheld {
        "It takes back a usage that does not count. Send that usage again: this one follows it."
            .to_owned()
    } else {
        let state = crate::timeline::words_of(&usage.state);
        format!("Only a usage that is skipped or set aside can be sent again. This one is {state}.")
    };
    problem("The usage cannot be sent again", &detail)
}
