//! `backlog`, and `control`: how much there is to do, and how much is admitted.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{Api, Request};
use crate::failure::Failure;
use crate::listing::Common;
use crate::output::{print, printable};
use crate::show::{moment, pairs, print_json, text};
use crate::suspended::Act;

const PATH: [&str; 2] = ["v1", "control"];

/// Shows how much sampling is behind
#[derive(Debug, Args)]
pub(crate) struct BacklogArguments {
    #[command(flatten)]
    common: Common,
}

/// Shows or sets how many starts are admitted, and whether sampling is paused
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
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
struct SetArguments {
    /// The percentage of new starts that are admitted; 0 drains
    #[arg(long, value_name = "PERCENT", group = "change", value_parser = percent)]
    rate: Option<f64>,
    /// The same for one resource; both multiply. Without a percentage, the resource has none of its own
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
    act: Act,
}

pub(crate) async fn backlog(arguments: BacklogArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let (backlog, _) = api.single(&["v1", "backlog"]).await?;
    if arguments.common.json {
        print_json(&backlog)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = vec![
        ("spans due", text(&backlog, "/due")),
        ("oldest since", moment(&backlog, "/oldest")),
        ("span-seconds", text(&backlog, "/span_seconds")),
        ("suspended", text(&backlog, "/suspended")),
        ("usages/s", text(&backlog, "/rate")),
    ];
    if backlog["closing"].is_object() {
        lines.push(("closing month", text(&backlog, "/closing/month")));
        lines.push(("  spans left", text(&backlog, "/closing/left")));
        lines.push(("  closes at", moment(&backlog, "/closing/closes_at")));
        lines.push(("  done at", moment(&backlog, "/closing/done_at")));
    }
    print(&pairs(&lines))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn control(arguments: ControlArguments) -> Result<ExitCode, Failure> {
    let Some(ControlCommand::Set(set)) = arguments.command else {
        let api = Api::new(&arguments.common.connection)?;
        let (control, _) = api.single(&PATH).await?;
        return show(&arguments.common, &control);
    };
    let api = Api::new(&set.act.common.connection)?;
    let (mut control, etag) = api.single(&PATH).await?;
    set.change(&mut control);
    control["reason"] = json!(set.act.reason);
    let request = Request::act(Method::PUT, &PATH, &control).if_match(etag);
    let answer = api.call(&request).await?;
    // The control as it is now. If the answer does not have it, it is read.
    let now = if answer.body.is_empty() {
        api.single(&PATH).await?.0
    } else {
        answer.read(&PATH)?
    };
    show(&set.act.common, &now)
}

impl SetArguments {
    fn change(&self, control: &mut Value) {
        let mut set = |group: &str, name: &str, value: Option<Value>| {
            if let Some(value) = value {
                control[group][name] = value;
            }
        };
        set("starts", "rate", self.rate.map(written));
        set("sampling", "paused", self.paused.map(Value::from));
        set("controller", "enabled", self.controller.map(Value::from));
        set(
            "controller",
            "target_seconds",
            self.target_seconds.map(written),
        );
        for (name, gain) in [("kp", self.kp), ("ki", self.ki), ("kd", self.kd)] {
            set("controller", name, gain.map(written));
        }
        for (resource, rate) in &self.resource {
            let resources = &mut control["starts"]["resources"];
            if !resources.is_object() {
                *resources = json!({});
            }
            match (rate, resources.as_object_mut()) {
                (Some(rate), _) => resources[resource] = written(*rate),
                (None, Some(resources)) => drop(resources.shift_remove(resource)),
                (None, None) => {}
            }
        }
    }
}

/// A whole number without a fraction.
fn written(number: f64) -> Value {
    let text = number.to_string();
    text.parse::<i64>()
        .map_or_else(|_| json!(number), |whole| json!(whole))
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "it is no number from 0 on".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = number(text).ok().filter(|percent| *percent <= 100.0);
    percent.ok_or_else(|| "it is no percentage from 0 to 100".to_owned())
}

fn resource_rate(text: &str) -> Result<(String, Option<f64>), String> {
    // A resource may have the sign in its name.
    match text.rsplit_once('=') {
        Some((resource, rate)) => Ok((resource.to_owned(), Some(percent(rate)?))),
        None => Ok((text.to_owned(), None)),
    }
}

fn show(common: &Common, control: &Value) -> Result<ExitCode, Failure> {
    if common.json {
        print_json(control)?;
        return Ok(ExitCode::SUCCESS);
    }
    let resources = control
        .pointer("/starts/resources")
        .and_then(Value::as_object);
    let one = |(resource, rate): (&String, &Value)| format!("{} {rate} %", printable(resource));
    let resources: Vec<String> = resources.into_iter().flatten().map(one).collect();
    let is = |place: &str, yes: &str, no: &str| match control.pointer(place) {
        Some(Value::Bool(true)) => yes.to_owned(),
        Some(Value::Bool(false)) => no.to_owned(),
        _ => text(control, place),
    };
    let mut lines = vec![(
        "starts admitted",
        format!("{} %", text(control, "/starts/rate")),
    )];
    if !resources.is_empty() {
        lines.push(("  by resource", resources.join(", ")));
    }
    lines.push(("sampling", is("/sampling/paused", "paused", "runs")));
    lines.push(("controller", is("/controller/enabled", "on", "off")));
    let [seconds, kp, ki, kd] = [
        "/controller/target_seconds",
        "/controller/kp",
        "/controller/ki",
        "/controller/kd",
    ]
    .map(|place| text(control, place));
    lines.push(("  target", format!("{seconds} s, gains {kp}, {ki}, {kd}")));
    print(&pairs(&lines))?;
    Ok(ExitCode::SUCCESS)
}
