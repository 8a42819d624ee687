//! `mapping`: maps a plan to those of Abacus.

use std::process::ExitCode;

use clap::Args;
use sampler_api::Problem;
use serde::Serialize;
use serde_json::json;

use crate::api::{Api, JSON};
use crate::failure::Failure;
use crate::show::show;

/// Maps a plan to the metering, rating and pricing plans of Abacus, before its first instance starts
#[derive(Debug, Args, Serialize)]
#[command(after_help = "\
A mapping is never changed: a plan that is mapped stays as it is, and the command ends with 1.

Examples:
  sampler mapping --resource-id postgres --plan-id large \\
    --metering-plan standard --rating-plan standard --pricing-plan standard")]
pub(crate) struct Arguments {
    /// The resource
    #[arg(long, value_name = "ID")]
    resource_id: String,
    /// Its plan
    #[arg(long, value_name = "ID")]
    plan_id: String,
    /// The metering plan of Abacus
    #[arg(long, value_name = "ID")]
    metering_plan: String,
    /// The rating plan of Abacus
    #[arg(long, value_name = "ID")]
    rating_plan: String,
    /// The pricing plan of Abacus
    #[arg(long, value_name = "ID")]
    pricing_plan: String,
}

pub(crate) async fn run(arguments: Arguments, api: &Api) -> Result<ExitCode, Failure> {
    let body = json!(arguments).to_string();
    let (is_new, how) = match api.post(&["v1", "mappings"], JSON, body).await {
        Ok(_) => (true, "is mapped"),
        Err(error) if error.problem().map(Problem::name) == Some("mapping-exists") => {
            (false, "was mapped before, and stays as it is")
        }
        Err(error) => return Err(error.into()),
    };
    show(&json!({ "mapping": arguments, "made": is_new }), || {
        let (resource, plan) = (&arguments.resource_id, &arguments.plan_id);
        format!("The plan {plan} of {resource} {how}.\n")
    })?;
    Ok(ExitCode::from(u8::from(!is_new)))
}
