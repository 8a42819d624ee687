//! The identity of this instance on its platform, from the environment that Cloud Foundry sets.
//!
//! Nothing depends on it but the interface to listen on and what the log says, so a platform that says it in
//! another way is a warning, never a reason not to start.

use serde_json::Value;

/// Where Cloud Foundry describes the app.
const APPLICATION: &str = "VCAP_APPLICATION";

/// The identity of this instance. All is absent if there is no platform.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// What the platform says of the app; null if that cannot be read.
    app: Value,
    index: Option<String>,
    /// Whether it says anything.
    is_there: bool,
}

impl Identity {
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let said = variable(APPLICATION).filter(|text| !text.is_empty());
        let app = said
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        Self {
            app: app.filter(Value::is_object).unwrap_or_default(),
            index: variable("CF_INSTANCE_INDEX"),
            is_there: said.is_some(),
        }
    }

    /// Whether a platform runs this program, and leads requests to it.
    pub fn is_on_platform(&self) -> bool {
        self.is_there
    }

    /// The number of this instance, where the platform numbers instances.
    pub fn index(&self) -> Option<&str> {
        self.index.as_deref()
    }

    /// Logs all there is to say, once, at the start of a program. The names are those of OpenTelemetry's
    /// conventions.
    pub fn announce(&self, program: &str, version: &str) {
        let said = |name: &str| self.app.get(name).and_then(Value::as_str);
        tracing::info!(
            service.name = program,
            service.version = version,
            cloudfoundry.org.name = said("organization_name"),
            cloudfoundry.space.name = said("space_name"),
            cloudfoundry.app.name = said("application_name"),
            cloudfoundry.app.id = said("application_id"),
            cloudfoundry.app.version = said("application_version"),
            cloudfoundry.app.instance.id = self.index(),
            "starting"
        );
        if self.is_there && self.app.is_null() {
            // Nothing of it is repeated: it is not what it should be.
            tracing::warn!(
                code = "platform.unreadable",
                "what the platform says of this app cannot be read"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Identity {
        Identity::of(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn is_what_cloud_foundry_says() {
        let app = r#"{"application_name": "sampler-receiver", "limits": {"mem": 128}}"#;
        let identity = of(&[("VCAP_APPLICATION", app), ("CF_INSTANCE_INDEX", "3")]);
        assert!(identity.is_on_platform());
        assert_eq!(identity.index(), Some("3"));
        assert_eq!(identity.app["application_name"], "sampler-receiver");
    }

    #[test]
    fn is_nobody_without_a_platform_and_somebody_where_it_cannot_be_read() {
        assert_eq!(of(&[]), Identity::default());
        assert_eq!(of(&[("VCAP_APPLICATION", "")]), Identity::default());
        for malformed in ["s3cr3t", r#"["s3cr3t"]"#, r#"{"s3cr3t"#] {
            let identity = of(&[("VCAP_APPLICATION", malformed)]);
            assert!(identity.is_on_platform() && identity.app.is_null());
        }
    }
}
