//! What Cloud Foundry says of this instance in its environment.
//!
//! Nothing depends on it but the interface to listen on and what the log says, so a platform that says it in
//! another way is a warning, never a reason not to start.

use serde_json::Value;

/// Logs who this is, once, at the start of a program. The names are those of OpenTelemetry's conventions. Returns
/// whether a platform runs this program, and leads requests to it.
pub fn announce(program: &str, version: &str, variable: impl Fn(&str) -> Option<String>) -> bool {
    let app = variable("VCAP_APPLICATION").filter(|text| !text.is_empty());
    let described: Value = app
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .filter(Value::is_object)
        .unwrap_or_default();
    let said = |name: &str| described.get(name).and_then(Value::as_str);
    tracing::info!(
        service.name = program,
        service.version = version,
        cloudfoundry.org.name = said("organization_name"),
        cloudfoundry.space.name = said("space_name"),
        cloudfoundry.app.name = said("application_name"),
        cloudfoundry.app.id = said("application_id"),
        cloudfoundry.app.version = said("application_version"),
        cloudfoundry.app.instance.id = variable("CF_INSTANCE_INDEX"),
        "starting"
    );
    if app.is_some() && described.is_null() {
        // Nothing of it is repeated: it is not what it should be.
        tracing::warn!(
            code = "platform.unreadable",
            "what the platform says of this app cannot be read"
        );
    }
    app.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_there_though_what_it_says_cannot_be_read() {
        let is_there = |app: &str| {
            announce("sampler-worker", "1", |name| {
                (name == "VCAP_APPLICATION").then(|| app.to_owned())
            })
        };
        for app in [
            r#"{"application_name": "sampler-receiver"}"#,
            "s3cr3t",
            r#"["s3cr3t"]"#,
        ] {
            assert!(is_there(app), "{app}");
        }
        assert!(!is_there("") && !announce("sampler-worker", "1", |_| None));
    }
}
