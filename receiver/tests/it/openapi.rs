//! What the API says of itself: as `OpenAPI`, against which each answer is checked, as a page, and about each type of
//! problem. And what is not served.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Method, Request};
use sampler_receiver::problems;
use sampler_service::problem::kinds::CATALOGUE;
use sampler_testkit::boon::{Compiler, Draft, SchemaIndex, Schemas};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::answer::Answer;
use crate::event::{start, stop};
use crate::world::{MAPPINGS, NOW, START, STOP, World, request};

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

#[tokio::test]
async fn each_route_is_described_with_its_methods_and_nothing_else_is() {
    let world = World::new();
    let description = Description::of(&world).await;
    assert_eq!(description.document["openapi"], "3.1.0");
    assert_eq!(description.document["servers"][0]["url"], ".");
    let operations = description.operations();
    let paths = operations.iter().map(|(_, path)| path.clone());
    let described: BTreeSet<String> = paths.collect();
    let is_twin = |path: &String| path.strip_suffix('/').is_some_and(has_twin);
    let mut served = world.routes();
    served.retain(|path| !is_twin(path));
    // What is served for no other reason than to answer 404, and what describes the API.
    let beside = [
        "/v1/{*rest}",
        "/openapi.json",
        "/docs",
        "/docs/{file}",
        "/problems/{name}",
    ];
    let unspoken = beside.map(str::to_owned);
    let expected: BTreeSet<String> = described.iter().cloned().chain(unspoken).collect();
    assert_eq!(served, expected);
    let all = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW",
    ];
    for path in &described {
        let of_path = operations.iter().filter(|(_, one)| one == path);
        let mut expected: BTreeSet<&str> = of_path.map(|(method, _)| method.as_str()).collect();
        if expected.contains("GET") {
            expected.insert("HEAD");
        }
        for method in all.into_iter().filter(|it| !expected.contains(it)) {
            let request = Request::builder().method(method);
            let request = request.uri(path.replace(['{', '}'], ""));
            let answer = world.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            if method != "HEAD" {
                answer.names(405, "method-not-allowed", &[]);
            }
            let allowed = answer.header("allow").unwrap().split(',');
            assert_eq!(allowed.collect::<BTreeSet<_>>(), expected, "{path}");
        }
    }
}

/// A client that is generated from the document would send null for what it leaves out.
#[tokio::test]
async fn what_may_be_left_out_of_a_request_may_not_be_null() {
    let world = World::new();
    let description = Description::of(&world).await;
    let document = &description.document;
    for name in ["StartEvent", "StopEvent", "UpdateEvent", "Event"] {
        let schema = &document["components"]["schemas"][name];
        assert!(schema.is_object(), "{name}");
        assert!(!schema.to_string().contains("\"null\""), "{schema:#}");
    }
    // What a CloudEvent carries is an event.
    let data = &document["components"]["schemas"]["CloudEvent"]["properties"]["data"];
    assert_eq!(data["$ref"], "#/components/schemas/CloudEventData");
    let data = &document["components"]["schemas"]["CloudEventData"]["allOf"][0];
    assert_eq!(data["$ref"], "#/components/schemas/Target");
}

#[tokio::test]
async fn each_name_in_the_document_leads_somewhere() {
    let world = World::new();
    let description = Description::of(&world).await;
    let document = &description.document;
    let mut operations = BTreeSet::new();
    for (method, path) in description.operations() {
        let operation = &document["paths"][&path][method.to_lowercase()];
        for member in ["summary", "operationId"] {
            assert!(operation[member].is_string(), "{method} {path}: {member}");
        }
        let tag = &operation["tags"][0];
        let tags = document["tags"].as_array().unwrap();
        assert!(tags.iter().any(|it| it["name"] == *tag), "{method} {path}");
        operations.insert(operation["operationId"].to_string());
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let name = name.trim_end_matches('}');
            let mut parameters = operation["parameters"].as_array().unwrap().iter();
            let is_there = parameters.any(|it| it["name"] == name && it["in"] == "path");
            assert!(is_there, "{method} {path}");
        }
    }
    assert_eq!(operations.len(), description.operations().len());
    let mut names = Vec::new();
    references(document, &mut names);
    assert!(names.len() > 50);
    for name in names {
        let pointer = name.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{name}");
    }
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let reference = members.get("$ref").and_then(Value::as_str);
            found.extend(reference.map(str::to_owned));
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// A page that loaded a script from elsewhere would hand over the token that is typed into it.
#[tokio::test]
async fn the_page_loads_its_own_files_alone_below_any_prefix() {
    let world = World::new();
    let led = world.get_with("/docs", "accept", "text/html").await;
    let to = led.header("location");
    assert_eq!((led.status, to), (303, Some("docs/index.html")));
    // The files are not a part of the API.
    let fetch = async |path: String| {
        let request = Request::get(path).body(Body::empty());
        world.answer(request.unwrap()).await
    };
    let file = async |name: &str| {
        let answer = fetch(format!("/docs/{name}")).await;
        assert_eq!(answer.status, 200, "{name}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'; "), "{policy}");
        answer.text()
    };
    let page = file("index.html").await;
    let links = page.split(['"', '\'']).filter(|text| {
        let kinds = [".css", ".js", ".png"];
        kinds.iter().any(|kind| text.ends_with(kind))
    });
    let links: Vec<&str> = links.collect();
    assert!(links.len() > 4, "{links:?}");
    for link in links {
        assert!(!link.starts_with('/') && !link.contains(':'), "{link}");
        let path = format!("/docs/{}", link.trim_start_matches("./"));
        assert_eq!(fetch(path).await.status, 200, "{link}");
    }
    let settings = file("swagger-initializer.js").await;
    for setting in ["\"../openapi.json\"", "\"validatorUrl\": \"none\""] {
        assert!(settings.contains(setting), "{setting}: {settings}");
    }
    let none = world.get_with("/docs/none.js", "accept", "*/*").await;
    none.problem(404, "not-found");
}

#[tokio::test]
async fn each_type_of_problem_is_told_in_the_words_of_the_catalogue() {
    let world = World::new();
    for kind in problems::all() {
        let answer = world.get(&kind.uri()).await;
        let media_type = answer.header("content-type");
        assert_eq!(media_type, Some("text/plain; charset=utf-8"));
        let text = answer.text();
        assert!(text.starts_with(&format!("## {}\n", kind.slug)), "{text}");
        assert!(CATALOGUE.contains(&text), "{text}");
    }
    for name in [
        "nothing",
        "..",
        "%2e%2e",
        "OPEN-SPAN",
        "%00",
        "%3Cscript%3E",
    ] {
        let answer = world.get(&format!("/problems/{name}")).await;
        answer.problem(404, "not-found");
    }
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let world = World::new();
    for path in [
        "/",
        "/v1",
        "/v1//events/start",
        "/v1/events/start/x",
        "/V1/events/start",
        "/v1/events/%73tart",
        "/v1/spans/",
    ] {
        let answer = world.send(request(path, start(NOW).to_string())).await;
        answer.names(404, "not-found", &[]);
        world.get(path).await.names(404, "not-found", &[]);
    }
    world.assert_kept(&[]);
}

/// The original takes it, too.
#[tokio::test]
async fn a_slash_behind_an_address_changes_nothing() {
    let world = World::new();
    let (event, end) = (start(NOW), stop(NOW));
    for (path, event) in [(START, &event), (STOP, &end)] {
        world.post(&format!("{path}/"), event).await.is_created();
    }
    world.assert_kept(&[(&event, Some(&end))]);
    let answer = world.get(&format!("{MAPPINGS}/")).await;
    answer.names(405, "method-not-allowed", &[]);
    assert_eq!(answer.header("allow"), Some("POST"));
}
