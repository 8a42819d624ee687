//! Requests: their parameters and their answers.

use serde_json::Value;

use super::schema::SchemaKind;
use super::{example, text};

/// The beginning of a problem type.
const PROBLEMS: &str = "/problems/";

/// A request.
pub(super) struct Operation {
    pub(super) tag: String,
    /// `GET`.
    pub(super) method: String,
    pub(super) path: String,
    pub(super) anchor: String,
    pub(super) summary: String,
    pub(super) description: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) bodies: Vec<Body>,
    pub(super) answers: Vec<Answer>,
    /// The command that sends it with curl.
    pub(super) curl: String,
    /// Whether it needs a token.
    pub(super) is_protected: bool,
}

pub(super) struct Parameter {
    pub(super) name: String,
    /// `path`, `query` or `header`.
    pub(super) place: String,
    pub(super) kind: SchemaKind,
    pub(super) is_required: bool,
    pub(super) description: String,
    pub(super) example: String,
}

/// A body of one media type.
pub(super) struct Body {
    pub(super) media_type: String,
    pub(super) kind: SchemaKind,
    pub(super) example: String,
}

pub(super) struct Answer {
    pub(super) status: String,
    pub(super) description: String,
    /// The types of problems that it may be.
    pub(super) problems: Vec<String>,
    pub(super) bodies: Vec<Body>,
    pub(super) headers: Vec<String>,
}

pub(super) fn operations(document: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, item) in paths {
        for method in ["get", "post", "put", "delete", "options"] {
            if let Some(described) = item.get(method) {
                all.push(operation(document, path, method, described));
            }
        }
    }
    all
}

fn operation(document: &Value, path: &str, method: &str, described: &Value) -> Operation {
    let parameters: Vec<Parameter> = list(&described["parameters"]).map(parameter).collect();
    let bodies = bodies(document, &described["requestBody"]["content"]);
    let is_open = described["security"].as_array().is_some_and(Vec::is_empty);
    let mut operation = Operation {
        tag: described["tags"][0].as_str().unwrap_or_default().to_owned(),
        method: method.to_uppercase(),
        path: path.to_owned(),
        anchor: format!("{method}{}", path.replace(['/', '{', '}', '.'], "-")),
        summary: text(described, "summary").to_owned(),
        description: text(described, "description").to_owned(),
        answers: answers(document, &described["responses"]),
        parameters,
        bodies,
        curl: String::new(),
        is_protected: !is_open,
    };
    operation.curl = curl(&operation);
    operation
}

fn parameter(described: &Value) -> Parameter {
    let example = described
        .get("example")
        .or_else(|| described["schema"].get("example"))
        .or_else(|| described["schema"]["examples"].get(0))
        .map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
    Parameter {
        name: text(described, "name").to_owned(),
        place: text(described, "in").to_owned(),
        kind: SchemaKind::of(&described["schema"]),
        is_required: described["required"] == true,
        description: text(described, "description").to_owned(),
        example: example.unwrap_or_default(),
    }
}

fn bodies(document: &Value, content: &Value) -> Vec<Body> {
    let content = content.as_object().into_iter().flatten();
    let bodies = content.map(|(media_type, content)| {
        let schema = &content["schema"];
        let example = example::of(document, schema);
        let example = match (media_type.as_str(), &example) {
            (_, Value::Null) => String::new(),
            ("application/x-ndjson", _) => NDJSON.to_owned(),
            _ => serde_json::to_string_pretty(&example).unwrap_or_default(),
        };
        Body {
            media_type: media_type.clone(),
            kind: SchemaKind::of(schema),
            example,
        }
    });
    bodies.collect()
}

/// Lines say nothing of themselves in a schema.
const NDJSON: &str = "One JSON object a line.";

fn answers(document: &Value, described: &Value) -> Vec<Answer> {
    let described = described.as_object().into_iter().flatten();
    let answers = described.map(|(status, answer)| {
        let content = &answer["content"];
        let problems = problems(&content["application/problem+json"]["schema"]);
        let bodies = if problems.is_empty() {
            bodies(document, content)
        } else {
            Vec::new()
        };
        let headers = answer["headers"].as_object().into_iter().flatten();
        Answer {
            status: status.clone(),
            description: text(answer, "description").to_owned(),
            problems,
            bodies,
            headers: headers.map(|(name, _)| name.clone()).collect(),
        }
    });
    answers.collect()
}

fn problems(schema: &Value) -> Vec<String> {
    let kinds = list(&schema["allOf"]).flat_map(|part| list(&part["properties"]["type"]["enum"]));
    let slugs = kinds.filter_map(|uri| uri.as_str()?.strip_prefix(PROBLEMS));
    slugs.map(str::to_owned).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The command that sends the request with curl, with its required parts.
fn curl(operation: &Operation) -> String {
    let mut query = Vec::new();
    let mut lines = Vec::new();
    if operation.is_protected {
        lines.push("-H \"authorization: Bearer $TOKEN\"".to_owned());
    }
    for parameter in &operation.parameters {
        let example = &parameter.example;
        match parameter.place.as_str() {
            "query" if parameter.is_required || !example.is_empty() => {
                query.push(format!("{}={example}", parameter.name));
            }
            "header" if parameter.is_required => {
                lines.push(format!("-H '{}: \"…\"'", parameter.name.to_lowercase()));
            }
            _ => {}
        }
    }
    if let Some(body) = operation.bodies.first() {
        lines.push(format!("-H 'content-type: {}'", body.media_type));
        lines.push(format!("-d '{}'", body.example.replace('\'', "'\\''")));
    }
    let method = match operation.method.as_str() {
        "GET" | "POST" => String::new(),
        other => format!("-X {other} "),
    };
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    };
    let path = &operation.path;
    let mut text = format!("curl {method}\"$RECEIVER{path}{query}\"");
    for line in lines {
        text += " \\\n  ";
        text += &line;
    }
    text
}
