//! `backlog`, and `control`: how much there is to do, and how much is admitted.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use sampler_api::Control;
use serde_json::Value;

use crate::actions::ActionArguments;
use crate::api::{Api, Request};
use crate::failure::Failure;
use crate::listing::Common;
use crate::output::printable;
use crate::show::{As, Column, facts, pairs, show_answer};

const PATH: [&str; 2] = ["v1", "control"];

const BACKLOG: [Column; 4] = [
    ("spans due", "", As::Words(due)),
    ("oldest since", "/oldest", As::Time),
    ("suspended", "/suspended", As::Number),
    ("usages/s", "/rate", As::Words(rate)),
];

const CLOSING: [Column; 3] = [
    ("closing month", "/closing/month", As::Text),
    ("  spans left", "/closing/left", As::Number),
    ("  closes at", "/closing/closes_at", As::Time),
];

/// Shows how much sampling is behind
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler backlog
  sampler backlog --json")]
pub(crate) struct BacklogArguments {
    #[command(flatten)]
    common: Common,
}

/// Shows or sets how many starts are admitted, and whether sampling is paused
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler control
  sampler control set --rate 50 --reason \"the upstream is slow today\"")]
pub(crate) struct ControlArguments {
    #[command(subcommand)]
    command: Option<ControlCommand>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum ControlCommand {
    Set(SetArguments),
}

/// Sets what is given, and leaves the rest as it is
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
#[command(after_help = "\
Examples:
  sampler control set --paused true --reason \"maintenance of the upstream until 15:00\"
  sampler control set --rate 100 --resource postgres=50 --reason \"gentle start\"
  sampler control set --resource postgres --reason \"back to the common rate\"")]
struct SetArguments {
    /// The percentage of new starts that are admitted; 0 drains
    #[arg(long, value_name = "PERCENT", group = "change", value_parser = percent)]
    rate: Option<f64>,
    /// The same for one resource; the two rates multiply. Without a percentage, its own rate is removed
    #[arg(long, value_name = "ID[=PERCENT]", group = "change", value_parser = resource_rate)]
    resource: Vec<(String, Option<f64>)>,
    /// Whether sampling is paused
    #[arg(long, value_name = "BOOL", group = "change")]
    paused: Option<bool>,
    /// Whether the controller sets the rate by itself
    #[arg(long, value_name = "BOOL", group = "change")]
    controller: Option<bool>,
    /// The time that the backlog may need, in seconds, for the controller
    #[arg(long, value_name = "SECONDS", group = "change", value_parser = number)]
    target_seconds: Option<f64>,
    /// The proportional gain of the controller
    #[arg(long, value_name = "K", group = "change", value_parser = number)]
    kp: Option<f64>,
    /// The integral gain of the controller
    #[arg(long, value_name = "K", group = "change", value_parser = number)]
    ki: Option<f64>,
    /// The derivative gain of the controller
    #[arg(long, value_name = "K", group = "change", value_parser = number)]
    kd: Option<f64>,
    #[command(flatten)]
    act: ActionArguments,
}

pub(crate) async fn backlog(arguments: BacklogArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let path = ["v1", "backlog"];
    let answer = api.single(&path).await?;
    show_answer(&arguments.common, &answer, &path, backlog_in_words)
}

fn backlog_in_words(backlog: &Value) -> String {
    let mut lines = facts(backlog, &BACKLOG);
    if !backlog["closing"].is_null() {
        lines.extend(facts(backlog, &CLOSING));
    }
    pairs(&lines)
}

fn due(backlog: &Value) -> String {
    let is_more = backlog["at_least"].as_bool() == Some(true);
    let at_least = if is_more { "at least " } else { "" };
    format!("{at_least}{}", backlog["due"])
}

fn rate(value: &Value) -> String {
    format!("{:.2}", value.as_f64().unwrap_or_default())
}

pub(crate) async fn control(arguments: ControlArguments) -> Result<ExitCode, Failure> {
    let Some(ControlCommand::Set(set)) = arguments.command else {
        let api = Api::new(&arguments.common.connection)?;
        let answer = api.single(&PATH).await?;
        return show_answer(&arguments.common, &answer, &PATH, control_in_words);
    };
    let api = Api::new(&set.act.common.connection)?;
    let before = api.single(&PATH).await?;
    let mut control: Control = before.read(&PATH)?;
    set.change(&mut control);
    let body = control.with_reason(set.act.reason.clone());
    let request = Request::act(Method::PUT, &PATH, &body).if_match(before.etag);
    let answer = api.call(&request).await?;
    show_answer(&set.act.common, &answer, &PATH, control_in_words)
}

impl SetArguments {
    fn change(&self, control: &mut Control) {
        set(&mut control.starts.rate, self.rate);
        set(&mut control.sampling.paused, self.paused);
        let controller = &mut control.controller;
        set(&mut controller.enabled, self.controller);
        set(&mut controller.target_seconds, self.target_seconds);
        set(&mut controller.kp, self.kp);
        set(&mut controller.ki, self.ki);
        set(&mut controller.kd, self.kd);
        for (resource, rate) in &self.resource {
            match rate {
                Some(rate) => control.starts.resources.insert(resource.clone(), *rate),
                None => control.starts.resources.remove(resource),
            };
        }
    }
}

fn set<T: Copy>(field: &mut T, value: Option<T>) {
    *field = value.unwrap_or(*field);
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "it is not a number from 0".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = number(text).ok().filter(|percent| *percent <= 100.0);
    percent.ok_or_else(|| "it is not a percentage from 0 to 100".to_owned())
}

fn resource_rate(text: &str) -> Result<(String, Option<f64>), String> {
    // A resource may have the sign in its name.
    match text.rsplit_once('=') {
        Some((resource, rate)) => Ok((resource.to_owned(), Some(percent(rate)?))),
        None => Ok((text.to_owned(), None)),
    }
}

fn either(condition: bool, yes: &str, no: &str) -> String {
    if condition { yes } else { no }.to_owned()
}

fn control_in_words(control: &Control) -> String {
    let resources: Vec<String> = control
        .starts
        .resources
        .iter()
        .map(|(resource, rate)| format!("{} {rate} %", printable(resource)))
        .collect();
    let mut lines = vec![("starts admitted", format!("{} %", control.starts.rate))];
    if !resources.is_empty() {
        lines.push(("  by resource", resources.join(", ")));
    }
    lines.push((
        "sampling",
        either(control.sampling.paused, "paused", "runs"),
    ));
    let controller = &control.controller;
    lines.push(("controller", either(controller.enabled, "on", "off")));
    let (seconds, kp, ki, kd) = (
        controller.target_seconds,
        controller.kp,
        controller.ki,
        controller.kd,
    );
    lines.push(("  target", format!("{seconds} s, gains {kp}, {ki}, {kd}")));
    pairs(&lines)
}
