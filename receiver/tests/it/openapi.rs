//! What the API says of itself: as `OpenAPI`, as a page, and about each type of problem.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use sampler_receiver::problems;
use serde_json::Value;

use crate::description::{Description, has_twin};
use crate::world::World;

#[tokio::test]
async fn each_route_is_described_with_its_methods_and_nothing_else_is() {
    let world = World::new();
    let description = Description::of(&world).await;
    assert_eq!(description.document["openapi"], "3.1.0");
    let operations = description.operations();
    let paths = operations.iter().map(|(_, path)| path.clone());
    let described: BTreeSet<String> = paths.collect();
    let is_twin = |path: &String| path.strip_suffix('/').is_some_and(has_twin);
    let served = world.routes().into_iter().filter(|path| !is_twin(path));
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
    assert_eq!(served.collect::<BTreeSet<_>>(), expected);
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
        assert!(problems::catalogue().contains(&text), "{text}");
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
