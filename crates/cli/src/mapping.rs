//! `mapping`: maps a plan to those of Abacus.

use std::process::ExitCode;

use clap::Args;
use sampler_api::{Mapping, Problem};
use serde_json::json;

use crate::api::{Api, Request};
use crate::failure::Failure;
use crate::listing::Common;
use crate::output::{print, printable};
use crate::show::print_json;

const PATH: [&str; 2] = ["v1", "mappings"];

/// Maps a plan to the metering, rating and pricing plans of Abacus, before its first instance starts
#[derive(Debug, Args)]
#[command(after_help = "\
A mapping is never changed: a plan that is mapped stays as it is, and the command ends with 1.

Examples:
  sampler mapping --resource-id postgres --plan-id large \\
    --metering-plan standard --rating-plan standard --pricing-plan standard

Exit codes: 0 the plan is mapped now, 1 it was mapped before, 2 the command line is wrong, 3 the API gives no
answer.")]
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
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let mapping = Mapping {
        resource_id: arguments.resource_id,
        plan_id: arguments.plan_id,
        metering_plan: arguments.metering_plan,
        rating_plan: arguments.rating_plan,
        pricing_plan: arguments.pricing_plan,
    };
    let is_new = match api.call(&Request::post(&PATH).json(&mapping)).await {
        Ok(_) => true,
        Err(error) if error.problem().map(Problem::name) == Some("mapping-exists") => false,
        Err(error) => return Err(error.into()),
    };
    let [resource, plan] = [&mapping.resource_id, &mapping.plan_id].map(|id| printable(id));
    let how = if is_new {
        "is mapped"
    } else {
        "was mapped before, and stays as it is"
    };
    if arguments.common.json {
        print_json(&json!({ "mapping": mapping, "made": is_new }))?;
    } else {
        print(&format!("The plan {plan} of {resource} {how}.\n"))?;
    }
    Ok(ExitCode::from(u8::from(!is_new)))
}
