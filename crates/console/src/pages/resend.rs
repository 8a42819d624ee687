//! A usage that was skipped or set aside, sent again: confirmed on a page of its own.

use sampler_api::{List, Problem, Span, Usage};
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use percent_encoding::utf8_percent_encode;
use serde_json::{Value, json};

use super::actions::{ActPage, can_be_confirmed_again, not_allowed};
use super::spans;
use crate::api::{Query, Refusal, SEGMENT, address};
use crate::form::{Form, in_a_form};
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::{Console, parameters, show};

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
    fn new((span, usage): (String, String), uri: &Uri) -> Self {
        let at = parameters::value(&parameters::read(uri), "at").to_owned();
        Self { span, usage, at }
    }

    fn back(&self) -> String {
        let usage = utf8_percent_encode(&self.usage, SEGMENT);
        format!("{}#u-{usage}", spans::page_of(&self.span))
    }
}

/// `GET /console/spans/{id}/usages/{usage}/resend`.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
    Path(path): Path<(String, String)>,
    uri: Uri,
) -> Response {
    match page(&console, &session, &Subject::new(path, &uri)).await {
        Ok(page) => render(StatusCode::OK, &page),
        Err(response) => response,
    }
}

/// `POST /console/spans/{id}/usages/{usage}/resend`.
pub(crate) async fn carry_out(
    State(console): State<Arc<Console>>,
    Path(path): Path<(String, String)>,
    uri: Uri,
    request: Request,
) -> Response {
    let form = match Form::read(&console, request).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let subject = Subject::new(path, &uri);
    let reason = form.value("reason").to_owned();
    let usage = utf8_percent_encode(&subject.usage, SEGMENT);
    let path = format!("/v1/usages/{usage}/resend");
    let body = json!({ "reason": reason });
    let grant = form.session.grant();
    let Err(refusal) = console.api.post::<Value>(grant, &path, "", &body).await else {
        return Redirect::to(&subject.back()).into_response();
    };
    let frame = Frame::new(&console, &form.session, "Spans");
    if !can_be_confirmed_again(&refusal) {
        return refused(frame, refusal);
    }
    match page(&console, &form.session, &subject).await {
        Ok(page) => {
            let problem = Some(in_a_form(*refusal.problem));
            let page = ActPage {
                reason,
                problem,
                ..page
            };
            render(refusal.status, &page)
        }
        Err(_) => refused(frame, refusal),
    }
}

/// The page in the present state, or the page that says why there is none.
async fn page(
    console: &Arc<Console>,
    session: &Session,
    subject: &Subject,
) -> Result<ActPage, Response> {
    let frame = || Frame::new(console, session, "Spans");
    if !session.is_admin() {
        return Err(not_allowed(frame()));
    }
    let found = find(console, session, subject).await;
    let (span, usage) = found.map_err(|refusal| refused(frame(), refusal))?;
    let facts = vec![
        ("Organization", span.target.organization_id),
        ("Resource", span.target.resource_id),
        ("Plan", span.target.plan_id),
        ("Instance", span.target.resource_instance_id),
        ("Usage", usage.id.clone()),
    ];
    Ok(ActPage {
        frame: frame(),
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

async fn find(
    console: &Console,
    session: &Session,
    subject: &Subject,
) -> Result<(Span, Usage), Refusal> {
    let (api, grant) = (&console.api, session.grant());
    let path = format!("/v1/spans/{}", utf8_percent_encode(&subject.span, SEGMENT));
    let span = api.get::<Span>(grant, &path, &[]).await?.body;
    let mut query: Query = vec![("limit".to_owned(), USAGES.to_owned())];
    if let Ok(at) = subject.at.parse::<i64>() {
        query.push(("from".to_owned(), at.to_string()));
        query.push(("to".to_owned(), at.saturating_add(1).to_string()));
    }
    let path = format!("{path}/usages");
    for _ in 0..READS_MAX {
        let page = api.get::<List<Usage>>(grant, &path, &query).await?;
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
    Problem {
        title: "The usage cannot be sent again".to_owned(),
        detail,
        ..Problem::default()
    }
}
