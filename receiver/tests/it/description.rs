//! What the API says of itself, against which each answer is checked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Method, Request};
use sampler_testkit::boon::{Compiler, Draft, SchemaIndex, Schemas};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::answer::Answer;
use crate::world::World;

/// The document of this release.
pub(crate) struct Description {
    pub(crate) document: Value,
    compiled: Mutex<Compiled>,
}

/// Schemas that were needed so far, by their JSON Pointers.
#[derive(Default)]
struct Compiled {
    schemas: Schemas,
    by_pointer: HashMap<String, SchemaIndex>,
}

static DESCRIPTION: OnceCell<Arc<Description>> = OnceCell::const_new();

impl Description {
    /// What a receiver says.
    pub(crate) async fn of(world: &World) -> Arc<Self> {
        let read = async || {
            let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
            let answer = world.answer(request).await;
            assert_eq!(answer.status, 200);
            Arc::new(Self {
                document: serde_json::from_slice(&answer.body).unwrap(),
                compiled: Mutex::default(),
            })
        };
        Arc::clone(DESCRIPTION.get_or_init(read).await)
    }

    /// The methods and paths that it describes.
    pub(crate) fn operations(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap();
        let operations = paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            methods.map(move |method| (method.to_uppercase(), path.clone()))
        });
        operations.collect()
    }

    /// An answer is one of those that are described: its status, its media type and its body.
    #[track_caller]
    pub(crate) fn check(&self, method: &Method, path: &str, answer: &Answer) {
        if !path.starts_with("/v1/") {
            return;
        }
        let method = if method == Method::HEAD {
            "get".to_owned()
        } else {
            method.as_str().to_lowercase()
        };
        let Some(described) = self.template(path) else {
            assert_eq!(answer.status, 404, "{path} is not described: {answer:?}");
            return;
        };
        let pointer = format!("/paths/{}/{method}", escaped(&described));
        if self.document.pointer(&pointer).is_none() {
            assert_eq!(
                answer.status, 405,
                "{method} {path} is not described: {answer:?}"
            );
            return;
        }
        let pointer = format!("{pointer}/responses/{}", answer.status);
        let response = self.document.pointer(&pointer);
        let response = response.unwrap_or_else(|| panic!("{pointer} is not there: {answer:?}"));
        self.check_body(&pointer, response, answer);
    }

    fn check_body(&self, pointer: &str, response: &Value, answer: &Answer) {
        // A 201 has a body only where one is preferred.
        if answer.status == 201 && answer.body.is_empty() {
            return;
        }
        let Some(content) = response.get("content").and_then(Value::as_object) else {
            assert!(answer.body.is_empty(), "{pointer}: {answer:?}");
            return;
        };
        let media_type = answer.header("content-type").unwrap_or_default();
        let described = content.get(media_type);
        let described = described.unwrap_or_else(|| panic!("{pointer}: {media_type}: {answer:?}"));
        if answer.body.is_empty() || described.get("schema").is_none() {
            return;
        }
        let value = if media_type.contains("json") {
            serde_json::from_slice(&answer.body).unwrap()
        } else {
            json!(String::from_utf8_lossy(&answer.body))
        };
        let pointer = format!("{pointer}/content/{}/schema", escaped(media_type));
        let mut compiled = self.compiled.lock().unwrap();
        let index = compiled.by_pointer.get(&pointer).copied();
        let index = index.unwrap_or_else(|| self.compile(&pointer, &mut compiled));
        let errors = compiled
            .schemas
            .validate(&value, index)
            .map_err(|it| it.to_string());
        // A test that fails must not make the others fail.
        drop(compiled);
        assert!(errors.is_ok(), "{pointer}: {errors:#?} in {value:#}");
    }

    fn compile(&self, pointer: &str, known: &mut Compiled) -> SchemaIndex {
        let mut components = self.document["components"].clone();
        for (name, schema) in components["schemas"].as_object_mut().unwrap() {
            // Problems have members of their own. All else says every member that it has.
            let has_members = schema.get("properties").is_some();
            if has_members && name != "Problem" {
                schema["additionalProperties"] = json!(false);
            }
        }
        let schema = self.document.pointer(pointer).unwrap();
        let root = json!({ "components": components, "allOf": [schema] });
        let address = format!("urn:answer:{}", known.by_pointer.len());
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        compiler.add_resource(&address, root).unwrap();
        let index = compiler.compile(&address, &mut known.schemas).unwrap();
        known.by_pointer.insert(pointer.to_owned(), index);
        index
    }

    /// The path of the document that an address is one of. The original also takes a slash behind the
    /// addresses that it has.
    fn template(&self, path: &str) -> Option<String> {
        let paths = self.document["paths"].as_object().unwrap();
        let fits = |template: &&String, path: &str| {
            let (parts, given) = (template.split('/'), path.split('/'));
            parts.clone().count() == given.clone().count()
                && parts.zip(given).all(|(part, given)| {
                    part == given || (part.starts_with('{') && !given.is_empty())
                })
        };
        let find = |path: &str| paths.keys().find(|template| fits(template, path)).cloned();
        let without = path.strip_suffix('/').filter(|path| has_twin(path));
        find(path).or_else(|| find(without?))
    }
}

/// Whether an address is served with a slash behind it, too.
pub(crate) fn has_twin(path: &str) -> bool {
    matches!(
        path,
        "/v1/events"
            | "/v1/events/start"
            | "/v1/events/stop"
            | "/v1/events/update"
            | "/v1/mappings"
    )
}

fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}
