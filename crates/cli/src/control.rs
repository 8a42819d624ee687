//! `backlog`, and `control`: how much there is to do, and how much is admitted.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use sampler_api::Control;
use serde_json::Value;

use crate::actions::ActionArguments;
use crate::api::{Answer, Api, Query};
use crate::failure::Failure;
use crate::show::{facts, show};

const PATH: [&str; 2] = ["v1", "control"];

/// Shows how much sampling is behind
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler backlog
  sampler backlog --json")]
pub(crate) struct BacklogArguments {}

/// Shows or sets how many starts are admitted, and whether sampling is paused
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler control
  sampler control set --rate 50 --reason \"the upstream is slow today\"")]
pub(crate) struct ControlArguments {
    #[command(subcommand)]
    command: Option<ControlCommand>,
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
    #[arg(long, value_name = "PERCENT", group = "change")]
    rate: Option<f64>,
    /// The same for one resource; the two rates multiply. Without a percentage, its own rate is removed
    #[arg(long, value_name = "ID[=PERCENT]", group = "change", value_parser = resource_rate)]
    resource: Vec<(String, Option<f64>)>,
    /// Whether sampling is paused
    #[arg(long, value_name = "BOOL", group = "change")]
    paused: Option<bool>,
    /// Whether the controller adjusts the rate
    #[arg(long, value_name = "BOOL", group = "change")]
    controller: Option<bool>,
    /// The time that the backlog may need, in seconds, for the controller
    #[arg(long, value_name = "SECONDS", group = "change")]
    target_seconds: Option<f64>,
    /// The proportional gain of the controller
    #[arg(long, value_name = "K", group = "change")]
    kp: Option<f64>,
    /// The integral gain of the controller
    #[arg(long, value_name = "K", group = "change")]
    ki: Option<f64>,
    /// The derivative gain of the controller
    #[arg(long, value_name = "K", group = "change")]
    kd: Option<f64>,
    #[command(flatten)]
    act: ActionArguments,
}

pub(crate) async fn backlog(api: &Api) -> Result<ExitCode, Failure> {
    shown(&api.get(&["v1", "backlog"], &Query::new()).await?)
}

pub(crate) async fn control(arguments: ControlArguments, api: &Api) -> Result<ExitCode, Failure> {
    let now = api.get(&PATH, &Query::new()).await?;
    let Some(ControlCommand::Set(set)) = arguments.command else {
        return shown(&now);
    };
    let mut control: Control = now.read()?;
    set.change(&mut control);
    let body = control.with_reason(set.act.reason);
    let etag = now.header("etag");
    shown(&api.act(Method::PUT, &PATH, &body, etag).await?)
}

fn shown(answer: &Answer) -> Result<ExitCode, Failure> {
    let document: Value = answer.read()?;
    show(&document, || facts(&document))?;
    Ok(ExitCode::SUCCESS)
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

/// A resource may have the sign in its name.
fn resource_rate(text: &str) -> Result<(String, Option<f64>), String> {
    let Some((resource, rate)) = text.rsplit_once('=') else {
        return Ok((text.to_owned(), None));
    };
    let rate = rate.parse().map_err(|_| "it is not a percentage")?;
    Ok((resource.to_owned(), Some(rate)))
}
