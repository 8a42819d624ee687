//! Clients that would fill the log: each kind of line comes a few times a minute.

use sampler_testkit::Program;
use sampler_testkit::program::Launch;
use serde_json::json;

use crate::landscape::{Landscape, until_ready};

/// Nothing listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Requests of a flood, and the most lines of one kind that they may cause.
const REQUESTS: usize = 300;
const LINES: usize = 20;

/// How many lines have this code.
fn lines_with(receiver: &Program, code: &str) -> usize {
    let logs = receiver.logs();
    logs.iter().filter(|line| line["code"] == code).count()
}

fn with_console(launch: Launch) -> Launch {
    launch
        .env("SECURED", "true")
        .env("HEALTHCHECK_SECURED", "false")
        .env("AUTH_SERVER", NOWHERE)
        .env("CLIENT_ID", "sampler")
        .env("CLIENT_SECRET", "of the program")
        .env("SAMPLER_CONSOLE_CLIENT_ID", "console")
        .env("SAMPLER_CONSOLE_CLIENT_SECRET", "of the console")
        .env("SAMPLER_CONSOLE_KEY", "k".repeat(32))
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_cannot_fill_the_log_while_the_token_server_is_away() {
    let world = Landscape::new("flood_sign_in").await;
    let receiver = with_console(world.receiver()).start().await.unwrap();
    let page = format!("{}/console/sign-in", receiver.base_url());
    for _ in 0..REQUESTS {
        let answer = world.http.get(&page).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 503);
    }
    receiver.sigterm().unwrap();
    receiver.until_logged("stopped", 1).await;
    assert_eq!(lines_with(&receiver, "console.sign_in_failed"), LINES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_cannot_fill_the_log_with_mappings_that_fail() {
    let world = Landscape::new("flood_mappings").await;
    let receiver = world.receiver().env("PROVISIONING_URL", NOWHERE);
    let receiver = receiver.start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let mapping = json!({ "resource_id": "postgres", "plan_id": "large", "metering_plan": "m",
        "rating_plan": "r", "pricing_plan": "p" });
    for _ in 0..REQUESTS {
        let answer = world.post(&receiver, "/v1/mappings", &mapping).await;
        assert_eq!(answer.status().as_u16(), 502);
    }
    receiver.sigterm().unwrap();
    receiver.until_logged("stopped", 1).await;
    assert_eq!(lines_with(&receiver, "mapping.failed"), LINES);
    assert_eq!(receiver.logs_of("refused").len(), LINES);
}
