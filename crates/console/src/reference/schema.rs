//! The schemas of requests and answers.

use serde_json::Value;

use super::{name_of, requires, text};

/// A schema that has a name.
pub(super) struct Schema {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) fields: Vec<Field>,
    /// Its kind, if it has no fields.
    pub(super) kind: SchemaKind,
}

pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: SchemaKind,
    pub(super) is_required: bool,
    pub(super) description: String,
}

/// The kind of a value: words, and the schemas that they name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SchemaKind(pub(super) Vec<Part>);

#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Word(String),
    Schema(String),
}

impl SchemaKind {
    pub(super) fn of(schema: &Value) -> Self {
        if let Some(name) = name_of(schema) {
            return Self(vec![Part::Schema(name.to_owned())]);
        }
        let variants = ["oneOf", "anyOf", "allOf"].map(|name| schema[name].as_array());
        if let Some(variants) = variants.into_iter().flatten().next() {
            return Self::any_of(variants.iter().map(Self::of));
        }
        if let Some(values) = schema["enum"].as_array() {
            let values = values.iter().map(|value| Self::word(&value.to_string()));
            return Self::any_of(values);
        }
        match &schema["type"] {
            Value::Array(types) => {
                let types = types.iter().filter_map(Value::as_str);
                Self::any_of(types.map(|one| Self::typed(one, schema)))
            }
            Value::String(one) => Self::typed(one, schema),
            _ => Self::word("anything"),
        }
    }

    fn typed(name: &str, schema: &Value) -> Self {
        match name {
            "array" => Self::word("list of ").with(Self::of(&schema["items"])),
            "object" if schema["additionalProperties"].is_object() => {
                Self::word("object of ").with(Self::of(&schema["additionalProperties"]))
            }
            "string" if schema["format"] == "uuid" => Self::word("UUID"),
            other => Self::word(other),
        }
    }

    fn word(word: &str) -> Self {
        Self(vec![Part::Word(word.to_owned())])
    }

    fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// With null last, and each once.
    fn any_of(kinds: impl Iterator<Item = Self>) -> Self {
        let mut all: Vec<Self> = Vec::new();
        for kind in kinds {
            if !all.contains(&kind) {
                all.push(kind);
            }
        }
        all.sort_by_key(|kind| *kind == Self::word("null"));
        let mut parts = Self::default();
        for (index, kind) in all.into_iter().enumerate() {
            if index > 0 {
                parts = parts.with(Self::word(" or "));
            }
            parts = parts.with(kind);
        }
        parts
    }
}

pub(super) fn schemas(document: &Value) -> Vec<Schema> {
    let all = document["components"]["schemas"]
        .as_object()
        .into_iter()
        .flatten();
    all.map(|(name, schema)| Schema {
        name: name.clone(),
        description: text(schema, "description").to_owned(),
        fields: fields(schema),
        kind: SchemaKind::of(schema),
    })
    .collect()
}

fn fields(schema: &Value) -> Vec<Field> {
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields
        .map(|(name, field)| Field {
            name: name.clone(),
            kind: SchemaKind::of(field),
            is_required: requires(schema, name),
            description: text(field, "description").to_owned(),
        })
        .collect()
}
