//! Control: the rate of starts, the pause, the controller.

use askama::Template;
use axum::response::{IntoResponse, Redirect, Response};
use http::{Method, StatusCode};
use sampler_api::{Act, Control, Problem};
use serde_json::{Map, Value, json};

use crate::form::{SubmittedForm, in_a_form, problem_of_field};
use crate::page::{Frame, refused, render};
use crate::visit::Visit;
use crate::{api::Refusal, show};

const CONTROL: &str = "/v1/control";
const PAGE: &str = "/console/control";

/// An entity tag that no control has: those are numbers.
const NO_TAG: &str = "\"none\"";

/// The number of earlier changes that are shown.
const HISTORY: usize = 10;

#[derive(Template)]
#[template(path = "control.html")]
struct ControlPage {
    frame: Frame,
    fields: Fields,
    tag: String,
    problem: Option<Problem>,
    /// The changes by a form that was sent and is to be confirmed.
    changes: Vec<String>,
    history: Vec<Act>,
}

/// The fields of the form, as texts.
#[derive(Clone, Default, PartialEq)]
struct Fields {
    rate: String,
    /// A resource and its rate in each line.
    resources: String,
    is_paused: bool,
    is_controlled: bool,
    target_seconds: String,
    kp: String,
    ki: String,
    kd: String,
    reason: String,
}

/// The lines of a text in one.
fn tidy(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn or_none(text: &str) -> String {
    if text.is_empty() {
        "none".to_owned()
    } else {
        tidy(text)
    }
}

impl Fields {
    fn of(control: &Control) -> Self {
        Self {
            rate: control.starts.rate.to_string(),
            resources: control
                .starts
                .resources
                .iter()
                .map(|(id, rate)| format!("{id} = {rate}\n"))
                .collect::<Vec<String>>()
                .concat(),
            is_paused: control.sampling.paused,
            is_controlled: control.controller.enabled,
            target_seconds: control.controller.target_seconds.to_string(),
            kp: control.controller.kp.to_string(),
            ki: control.controller.ki.to_string(),
            kd: control.controller.kd.to_string(),
            reason: String::new(),
        }
    }

    fn sent(form: &SubmittedForm) -> Self {
        Self {
            rate: form.trimmed("rate"),
            resources: form.value("resources").to_owned(),
            is_paused: form.value("paused") == "true",
            is_controlled: form.value("enabled") == "true",
            target_seconds: form.trimmed("target_seconds"),
            kp: form.trimmed("kp"),
            ki: form.trimmed("ki"),
            kd: form.trimmed("kd"),
            reason: form.trimmed("reason"),
        }
    }

    /// The body of the request that sets them; none where a line names no resource and rate.
    fn body(&self) -> Option<Value> {
        let mut resources = Map::new();
        for line in self
            .resources
            .lines()
            .filter(|line| !line.trim().is_empty())
        {
            let (id, rate) = line.rsplit_once('=')?;
            resources.insert(id.trim().to_owned(), number(rate));
        }
        Some(json!({
            "starts": { "rate": number(&self.rate), "resources": resources },
            "sampling": { "paused": self.is_paused },
            "controller": {
                "enabled": self.is_controlled, "target_seconds": number(&self.target_seconds),
                "kp": number(&self.kp), "ki": number(&self.ki), "kd": number(&self.kd),
            },
            "reason": self.reason,
        }))
    }

    /// The differences, in words.
    fn changes(&self, before: &Self) -> Vec<String> {
        let pairs = [
            ("Starts that are admitted, %", &before.rate, &self.rate),
            (
                "Target of the controller, s",
                &before.target_seconds,
                &self.target_seconds,
            ),
            ("kp", &before.kp, &self.kp),
            ("ki", &before.ki, &self.ki),
            ("kd", &before.kd, &self.kd),
        ];
        let mut changes: Vec<String> = pairs
            .into_iter()
            .filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| format!("{name}: {before} \u{2192} {after}"))
            .collect();
        if tidy(&self.resources) != tidy(&before.resources) {
            let (old, new) = (or_none(&before.resources), or_none(&self.resources));
            changes.push(format!("Rates of resources: {old} \u{2192} {new}"));
        }
        let flips = [
            (
                before.is_paused,
                self.is_paused,
                "Sampling is paused",
                "Sampling resumes",
            ),
            (
                before.is_controlled,
                self.is_controlled,
                "The controller is on",
                "The controller is off",
            ),
        ];
        let flipped = flips
            .into_iter()
            .filter(|(before, after, ..)| before != after);
        changes
            .extend(flipped.map(|(_, is_on, on, off)| (if is_on { on } else { off }).to_owned()));
        changes
    }
}

/// A number as JSON. A text that is not a number stays a text, and the API names it.
fn number(text: &str) -> Value {
    serde_json::from_str::<serde_json::Number>(text.trim())
        .map_or_else(|_| Value::String(text.trim().to_owned()), Value::Number)
}

/// `GET /console/control`.
pub(crate) async fn show(visit: Visit) -> Response {
    let frame = visit.frame("Control");
    match read(&visit).await {
        Ok((fields, tag, history)) => {
            let page = ControlPage {
                frame,
                fields,
                tag,
                problem: None,
                changes: Vec::new(),
                history,
            };
            render(StatusCode::OK, &page)
        }
        Err(refusal) => refused(frame, refusal),
    }
}

async fn read(visit: &Visit) -> Result<(Fields, String, Vec<Act>), Refusal> {
    let control = visit.get::<Control>(CONTROL, &[]).await?;
    let acts = visit.first::<Act>("/v1/audit", &[]).await?;
    let of_control = acts.into_iter().filter(|act| act.subject == CONTROL);
    let tag = control.tag.unwrap_or_default();
    Ok((
        Fields::of(&control.body),
        tag,
        of_control.take(HISTORY).collect(),
    ))
}

/// `POST /console/control`: shows what would change, and then sets it.
pub(crate) async fn set(form: SubmittedForm) -> Response {
    let frame = form.visit.frame("Control");
    let (before, _, history) = match read(&form.visit).await {
        Ok(read) => read,
        Err(refusal) => return refused(frame, refusal),
    };
    let fields = Fields::sent(&form);
    let mut page = ControlPage {
        frame,
        changes: Vec::new(),
        tag: form.value("tag").to_owned(),
        problem: None,
        history,
        fields,
    };
    let Some(body) = page.fields.body() else {
        page.problem = Some(problem_of_field(
            "resources",
            "Each line must be a resource, an equals sign and a rate.",
        ));
        return render(StatusCode::BAD_REQUEST, &page);
    };
    if form.value("confirmed") != "true" {
        if let Some(refusal) = refusal_of(&form, &body).await {
            if !refusal.status.is_client_error() {
                return refused(page.frame, refusal);
            }
            page.problem = Some(in_a_form(*refusal.problem));
            return render(refusal.status, &page);
        }
        page.changes = page.fields.changes(&before);
        if page.changes.is_empty() {
            page.problem = Some(problem_of_field("control", "Nothing would change."));
        }
        return render(StatusCode::OK, &page);
    }
    match form.act(Method::PUT, CONTROL, &page.tag, &body).await {
        Ok(()) => Redirect::to(PAGE).into_response(),
        Err(refusal) if refusal.status.is_client_error() => {
            page.problem = Some(in_a_form(*refusal.problem));
            render(refusal.status, &page)
        }
        Err(refusal) => refused(page.frame, refusal),
    }
}

/// The refusal of the API before anything is confirmed: it reads the body before it compares the tag,
/// and no control has this tag.
async fn refusal_of(form: &SubmittedForm, body: &Value) -> Option<Refusal> {
    let asked = form.act(Method::PUT, CONTROL, NO_TAG, body);
    let refusal = asked.await.err()?;
    (refusal.status != StatusCode::PRECONDITION_FAILED).then_some(refusal)
}
