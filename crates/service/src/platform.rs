//! The identity of this instance on its platform, from the environment that Cloud Foundry sets.
//!
//! Nothing depends on it but what the log says, so a platform that says it in another way is a
//! warning, never a reason not to start. The names are those of OpenTelemetry's conventions.

use serde_json::{Map, Value};

use crate::settings::Variables;

/// The longest name or id that is taken over, in characters.
const LENGTH_MAX: usize = 200;

/// Where Cloud Foundry describes the app.
const APPLICATION: &str = "VCAP_APPLICATION";

/// The identity of this instance. All is absent if there is no platform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    organization: Option<String>,
    space: Option<String>,
    app: Option<String>,
    app_id: Option<String>,
    /// The id of the app's push, by which old and new instances differ during a push.
    app_version: Option<String>,
    process: Option<String>,
    index: Option<String>,
    instance: Option<String>,
    /// Whether it says anything.
    is_there: bool,
    /// The part that could not be understood.
    mistake: Option<String>,
}

impl Identity {
    pub fn of_this_process() -> Self {
        Self::of(&Variables::of_this_process())
    }

    pub fn of(variables: &Variables) -> Self {
        let (app, mistake) = match application(variables) {
            Ok(app) => (app, None),
            Err(mistake) => (Map::new(), Some(mistake)),
        };
        Self {
            organization: text(&app, "organization_name"),
            space: text(&app, "space_name"),
            app: text(&app, "application_name"),
            app_id: text(&app, "application_id"),
            app_version: text(&app, "application_version"),
            process: text(&app, "process_type"),
            index: variable(variables, "CF_INSTANCE_INDEX")
                .or_else(|| text(&app, "instance_index")),
            instance: variable(variables, "CF_INSTANCE_GUID").or_else(|| text(&app, "instance_id")),
            is_there: variables.get(APPLICATION).is_some(),
            mistake,
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

    /// The fields about the instance that every line of its log has.
    pub(crate) fn marks(&self) -> Map<String, Value> {
        let marks = [
            ("cloudfoundry.space.name", &self.space),
            ("cloudfoundry.app.name", &self.app),
            ("cloudfoundry.app.instance.id", &self.index),
            ("service.instance.id", &self.instance),
        ];
        let known = marks
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
        known.collect()
    }

    /// Logs all there is to say, once, at the start of a program.
    pub fn announce(&self, program: &str, version: &str) {
        tracing::info!(
            service.name = program,
            service.version = version,
            cloudfoundry.org.name = self.organization.as_deref(),
            cloudfoundry.app.id = self.app_id.as_deref(),
            cloudfoundry.app.version = self.app_version.as_deref(),
            cloudfoundry.process.type = self.process.as_deref(),
            "starting"
        );
        if let Some(mistake) = &self.mistake {
            tracing::warn!(
                code = "platform.unreadable",
                error = mistake,
                "what the platform says of this app cannot be read"
            );
        }
    }
}

/// The description of the app. A mistake in it says where it is, and repeats nothing of it.
fn application(variables: &Variables) -> Result<Map<String, Value>, String> {
    let Some(value) = variables.get(APPLICATION) else {
        return Ok(Map::new());
    };
    let text = value
        .to_str()
        .ok_or_else(|| format!("{APPLICATION}: expected UTF-8"))?;
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("{APPLICATION}: expected a JSON object (line {line}, column {column})")
    })
}

fn variable(variables: &Variables, name: &str) -> Option<String> {
    variables.get(name)?.to_str().and_then(short)
}

fn text(app: &Map<String, Value>, name: &str) -> Option<String> {
    match app.get(name)? {
        Value::String(text) => short(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Longer texts are not names, and would be on every line.
fn short(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.chars().count() <= LENGTH_MAX;
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Identity {
        Identity::of(&variables.iter().copied().collect())
    }

    #[test]
    fn is_what_cloud_foundry_says() {
        let app = json!({
            "application_name": "sampler-receiver", "application_id": "a-1",
            "application_version": "v-2", "space_name": "billing", "organization_name": "cloud",
            "process_type": "web", "instance_index": 7, "instance_id": "old", "limits": {"mem": 128},
        });
        let app = app.to_string();
        let identity = of(&[
            ("VCAP_APPLICATION", &app),
            ("CF_INSTANCE_INDEX", "3"),
            ("CF_INSTANCE_GUID", "c0ffee"),
        ]);
        let marks = json!({
            "cloudfoundry.space.name": "billing", "cloudfoundry.app.name": "sampler-receiver",
            "cloudfoundry.app.instance.id": "3", "service.instance.id": "c0ffee",
        });
        assert_eq!(Value::Object(identity.marks()), marks);
        assert_eq!(identity.app_version.as_deref(), Some("v-2"));
        assert_eq!(identity.mistake, None);
        let older = of(&[("VCAP_APPLICATION", &app)]);
        assert_eq!(older.marks()["cloudfoundry.app.instance.id"], "7");
    }

    #[test]
    fn is_nobody_without_a_platform() {
        assert_eq!(of(&[]), Identity::default());
        assert!(of(&[("VCAP_APPLICATION", "")]).marks().is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_told_and_not_repeated() {
        for malformed in ["s3cr3t", r#"["s3cr3t"]"#, r#"{"s3cr3t"#] {
            let identity = of(&[("VCAP_APPLICATION", malformed), ("CF_INSTANCE_INDEX", "1")]);
            let mistake = identity.mistake.clone().unwrap();
            assert!(
                mistake.starts_with("VCAP_APPLICATION: expected a JSON object"),
                "{mistake}"
            );
            assert!(!mistake.contains("s3cr3t"), "{mistake}");
            assert_eq!(identity.marks()["cloudfoundry.app.instance.id"], "1");
        }
        let odd = json!({ "application_name": {"a": 1}, "space_name": "x".repeat(201) });
        let identity = of(&[("VCAP_APPLICATION", &odd.to_string())]);
        assert_eq!((identity.marks().len(), identity.mistake), (0, None));
    }
}
