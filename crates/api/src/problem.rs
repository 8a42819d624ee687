//! Problem documents (RFC 9457).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A problem document (RFC 9457). Some kinds have further members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
// Gateways leave members out.
#[serde(default)]
pub struct Problem {
    /// The address of its text, relative to the API.
    #[schema(example = "/problems/invalid-event", required)]
    pub r#type: String,
    #[schema(required)]
    pub title: String,
    #[schema(minimum = 400, maximum = 599, required)]
    pub status: u16,
    /// The details of this occurrence, in full sentences.
    #[schema(required)]
    pub detail: String,
    /// The fields that are wrong, up to 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    #[serde(flatten)]
    #[schema(ignore)]
    pub members: Map<String, Value>,
}

impl Problem {
    /// Whether it is about an update whose stop is kept, and whose start is not known to be: the same request
    /// again completes it.
    pub fn has_stopped(&self) -> bool {
        self.members.get("stopped") == Some(&Value::Bool(true))
    }

    /// The last word of its type, such as `open-span`.
    pub fn name(&self) -> &str {
        self.r#type.rsplit('/').next().unwrap_or_default()
    }
}

/// A field, a header or a parameter that is wrong: one of the three names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FieldError {
    /// A JSON Pointer into the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "#/timestamp")]
    pub pointer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    #[schema(required)]
    pub detail: String,
}

impl FieldError {
    /// An error in the field at a JSON Pointer; `detail` is a full sentence.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: Some(pointer.into()),
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// An error in a header.
    pub fn of_header(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            header: Some(name.into()),
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// An error in a parameter of the query.
    pub fn of_parameter(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            parameter: Some(name.into()),
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// The name of what is wrong.
    pub fn place(&self) -> &str {
        let named = [&self.pointer, &self.parameter, &self.header];
        named.into_iter().flatten().next().map_or("", |it| it)
    }
}
