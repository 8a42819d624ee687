//! What a body may say: one table of what is refused, with the place and the words of the answer, and one of
//! what is kept.

use axum::body::Body;
use serde_json::{Number, Value, json};

use crate::event::{TARGET, as_kept, by, put, start, valid, with};
use crate::world::{ALL, HOUR, Log, MAPPINGS, NOW, START, STOP, World, request};

const EVENTS: &[&str] = &[START, STOP];
const ONE_START: &[&str] = &[START];
const MAPPED: [&str; 5] = [
    "/resource_id",
    "/plan_id",
    "/metering_plan",
    "/rating_plan",
    "/pricing_plan",
];
const QUANTITY: &[&str] = &["/measured_usage/1/quantity"];
const WHOLE: &[&str] = &[""];

/// Texts in valid bodies, at JSON Pointers in them, and words of the answer. Each text is tried at each place
/// of each address's body; a text of nothing leaves the member out.
type Row<'r> = (&'r [&'r str], &'r [&'r str], &'r [&'r str], &'r str);

/// Rows of JSON that is not what is expected: the answer names the place.
#[rustfmt::skip]
fn wrong<'r>(target: &'r [&'r str], long: &'r [&'r str], deep: &'r [&'r str]) -> Vec<Row<'r>> {
    const TIME: &[&str] = &["/timestamp"];
    const LIST: &[&str] = &["/measured_usage"];
    const ITEM: &[&str] = &["/measured_usage/0"];
    const MEASURE: &[&str] = &["/measured_usage/0/measure"];
    const NO_TEXT: &[&str] = &["null", "true", "1", r#"["x"]"#, r#"{"a":1}"#, r#"{"$ne":""}"#, r#"["$ne"]"#];
    const CONTROL: &[&str] = &[r#""\u0000""#, r#""a\nb""#, r#""\u007f""#, "\"\u{85}\"", "\"\u{9f}x\""];
    const ID: &[&str] = &["/id"];
    let rows: &[Row<'r>] = &[
        (&ALL, WHOLE, &["null", "true", "1", "\"x\"", "[]", "[{}]"], "must be an object"),
        (EVENTS, TIME, &[""], "is missing"),
        (EVENTS, TIME, &["null", "true", r#"{"a":1}"#, "[1533254400000]", "1533254400000.5", "-0.5",
            r#""1533254400000""#, r#""2018-08-03T00:00:00""#, r#""yesterday""#, r#""""#],
            "whole number of milliseconds"),
        (EVENTS, TIME, &["-1", "253402300800001", "1e300", "-1e300", "9223372036854775807",
            "-9223372036854775808", "18446744073709551615"], "out of range"),
        (EVENTS, target, &[""], "is missing"),
        (EVENTS, target, NO_TEXT, "must be a string"),
        (EVENTS, target, &[r#""""#], "must not be empty"),
        (EVENTS, target, long, "at most 1024 bytes long"),
        (EVENTS, target, CONTROL, "control characters"),
        (EVENTS, ID, NO_TEXT, "must be a string"),
        (EVENTS, ID, long, "at most 1024 bytes long"),
        (EVENTS, ID, CONTROL, "control characters"),
        (&[MAPPINGS], &MAPPED, &["", r#""""#], "is missing or empty"),
        (&[MAPPINGS], &MAPPED, NO_TEXT, "must be a string"),
        (&[MAPPINGS], &MAPPED, long, "at most 1024 bytes long"),
        // None leads to another address of the provisioning service.
        (&[MAPPINGS], &MAPPED, &[r#"".""#, r#""..""#, r#""/""#, r#""a/b""#, r#""\\""#, r#""a\\b""#, r#""a/../b""#, r#""...""#,
            r#""a..b""#, r#""..;""#, r#""%2e""#, r#""%2e%2E""#, r#""%2F""#, r#""%5c""#, r#""a%2fb""#, r#""..%2f""#,
            r#""%252f""#, r#""%25252e%2e""#], "nor contain"),
        (&[MAPPINGS], &MAPPED, CONTROL, "control characters"),
        (ONE_START, LIST, &[""], "is missing"),
        (ONE_START, LIST, &["null", "{}", "\"x\"", "1", "true"], "must be a list"),
        (ONE_START, ITEM, &["null", "[]", "\"x\"", "1"], "must be an object"),
        (ONE_START, MEASURE, &[""], "is missing"),
        (ONE_START, MEASURE, NO_TEXT, "must be a string"),
        (ONE_START, MEASURE, &[r#""""#], "must not be empty"),
        (ONE_START, MEASURE, long, "at most 1024 bytes long"),
        (ONE_START, MEASURE, CONTROL, "control characters"),
        // Fault 12 of the original: a measure of the name that sampling adds.
        (ONE_START, MEASURE, &[r#""duration""#], "is reserved"),
        (ONE_START, &["/measured_usage/1/measure"], &[r#""instances""#], "in the list already"),
        (ONE_START, QUANTITY, &[""], "is missing"),
        (ONE_START, QUANTITY, &["null", "true", "false"], "must be a number, a string"),
        (ONE_START, QUANTITY, deep, "deeper than 32 levels"),
        (ONE_START, QUANTITY, &[r#"[{"a":{"b":1,"b":2}}]"#], "two members of one name"),
        (ONE_START, QUANTITY, &[r#"{"$set":1}"#, r#"[{"a":{"$x":1}}]"#, r#"{"a\u0000b":1}"#], "member name"),
        // What is kept is what was sent, or nothing is.
        (ONE_START, QUANTITY, &["9007199254740993", r#"[1.5,{"a":9007199254740993}]"#],
            "9007199254740993, which a double does not hold exactly"),
        (ONE_START, QUANTITY, &["9223372036854775807", "18446744073709551615", "-9223372036854775809",
            "100000000000000000000000001", r#"[1.5,{"a":18446744073709551615}]"#], "does not hold exactly"),
        (ONE_START, QUANTITY, &["1e-400", r#"[1.5,{"a":1e-400}]"#], "1e-400, which is so small that a double takes it for zero"),
        (ONE_START, QUANTITY, &["0.123456789012345678", r#"[1.5,{"a":0.123456789012345678}]"#],
            "0.123456789012345678, which has more than 17 digits"),
        (&ALL, &["/extra", "/Timestamp", "/correlation_id", "/", "/größe", "/__proto__", "/a b"], &["null"], "no field of this name"),
        (&[STOP], LIST, &["[]"], "no field of this name"),
        (&[MAPPINGS], ID, &["\"x\""], "no field of this name"),
        (ONE_START, &["/measured_usage/0/unit"], &["\"MB\""], "no field of this name"),
    ];
    rows.to_vec()
}

/// Rows of what is not JSON, or could be read in two ways.
#[rustfmt::skip]
const MALFORMED: &[Row<'_>] = &[
    (&ALL, WHOLE, &["", " ", "\r\n\t "], "The body is empty."),
    (&ALL, WHOLE, &["{", "[\"a\",", "{\"a\":", "nul"], "ends in the middle"),
    (&ALL, WHOLE, &["}", "nulx", "NaN", "{'a':1}", "{\"a\":1,}", "[1 2]", "// x\n{}", "\"a\nb\"", "{}{}", "{} x",
        "\u{feff}{}"], "is not JSON"),
    (&ALL, &["/plan_id"], &[r#""\ud800""#, r#""\x41""#], "is not JSON"),
    (EVENTS, &["/timestamp"], &["1e309", "-1e309", "1E400", "15e10000000000000000000000000"], "out of range"),
    // Fault 1 of the original: it let such a number in, and stopped billing for all when Abacus refused it.
    (ONE_START, QUANTITY, &["1e309", "-1e309", "1E400", "15e10000000000000000000000000", "[1e309]"], "out of range"),
    (EVENTS, &["/timestamp"], &["01533254400000", "+1533254400000", ".5", "5.", "0x10", "1_000", "Infinity"], "is not JSON"),
];

/// Rows of members that are there twice: which of them was meant?
#[rustfmt::skip]
const TWICE: &[Row<'_>] = &[
    (&ALL, &["/plan_id"], &[r#""large","plan_id":"large""#, r#""large","plan_id":"small""#, r#""large","\u0070lan_id":"small""#], ""),
    (ONE_START, QUANTITY, &[r#"0.5,"quantity":0.5"#], ""),
];

/// Rows of what is kept as it was given.
#[rustfmt::skip]
fn accepted<'r>(target: &'r [&'r str], long: &'r [&'r str], deep: &'r [&'r str]) -> Vec<Row<'r>> {
    let rows: &[Row<'r>] = &[
        (EVENTS, &["/timestamp"], &["1533254400000.0", "1.5332544e12", "15332544E+5"], ""),
        (EVENTS, target, long, ""),
        (EVENTS, target, &[r#""$ne""#, "\"$set.a/b \u{1f388}\u{202e}' {}\"", r#"".""#, r#""..""#], ""),
        (EVENTS, &["/id"], long, ""),
        (ONE_START, &["/measured_usage"], &["[]"], ""),
        (ONE_START, &["/measured_usage/0/measure"], &[r#""Duration""#], ""),
        (ONE_START, QUANTITY, &["0", "1", "-1", "3000000000", "9007199254740992", "-9007199254740992", "1.0", "0.1", "-0.5",
            "1e300", "5e-324", r#""""#, r#""many""#, "\"\\u0000\u{7f} \u{1f388} \u{202e}\"", "[]",
            r#"[1,1.0,null,true,"x",[[]]]"#, "{}", r#"{"b":1,"a":{"c":[2.0,null]},"":false,"a.b":"x","é":0}"#], ""),
        (ONE_START, QUANTITY, deep, ""),
        // A double, to its last digit.
        (ONE_START, QUANTITY, &["31.245270191439438", "121.48791951161945", "9007199254740993.0", "9007199254740994",
            "-9223372036854775808", "18446744073709549568", "10000000000000000000000"], ""),
    ];
    rows.to_vec()
}

/// The body with this text, JSON or not, at a JSON Pointer; a text of nothing leaves out what is there.
fn written(body: &Value, at: &str, text: &str) -> String {
    if at.is_empty() {
        return text.to_owned();
    }
    let mark = (!text.is_empty()).then(|| json!("MARK"));
    put(body, at, mark).to_string().replace("\"MARK\"", text)
}

/// What a text stands for. A number is read by the standard library.
fn read(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap();
    if !value.is_number() {
        return value;
    }
    match text.parse::<i64>() {
        Ok(integer) if integer.unsigned_abs() <= 1 << 53 => Value::from(integer),
        _ => Value::Number(Number::from_f64(text.parse().unwrap()).unwrap()),
    }
}

/// How the answer names a place: as a fragment of a URI.
fn pointer(at: &str) -> String {
    "#".to_owned()
        + &at
            .replace(' ', "%20")
            .replace('ö', "%C3%B6")
            .replace('ß', "%C3%9F")
}

fn nested(levels: usize) -> String {
    "[".repeat(levels) + "1" + &"]".repeat(levels)
}

fn each<'r>(rows: &'r [Row<'r>]) -> impl Iterator<Item = (&'r str, &'r str, &'r str, &'r str)> {
    rows.iter().flat_map(|(paths, places, texts, words)| {
        let places = paths
            .iter()
            .flat_map(|path| places.iter().map(move |at| (*path, *at)));
        places.flat_map(move |(path, at)| texts.iter().map(move |text| (path, at, *text, *words)))
    })
}

#[tokio::test]
async fn fault_1_whatever_is_wrong_is_named_and_nothing_is_kept() {
    let target = TARGET.map(|name| format!("/{name}"));
    let target = target.each_ref().map(String::as_str);
    let long = ["x".repeat(1025), "é".repeat(513)].map(|text| format!("\"{text}\""));
    let (long, deep) = (long.each_ref().map(String::as_str), nested(33));
    let world = World::new();
    for (path, at, text, words) in each(&wrong(&target, &long, &[&deep])) {
        let body = written(&valid(path), at, text);
        let answer = world.send(request(path, body)).await;
        assert_eq!(answer.status, 400, "{path} {at} {text}");
        answer.names(400, "invalid-event", &[&pointer(at)]);
        let detail = answer.json()["errors"][0]["detail"].to_string();
        assert!(detail.contains(words), "{path} {at} {text}: {detail}");
    }
    for path in ALL {
        let escaped = with(&valid(path), "a/b~c d", json!(null));
        let answer = world.post(path, &escaped).await;
        answer.names(400, "invalid-event", &["#/a~1b~0c%20d"]);
    }
    assert_eq!(world.store.calls(), 0);
}

async fn refuse_malformed(world: &World, path: &str, body: impl Into<Body>, words: &str) {
    let answer = world.send(request(path, body)).await;
    assert_eq!(answer.status, 400, "{path} {words}");
    answer.names(400, "malformed-json", &[]);
    answer.tells(400, "malformed-json", &[words]);
}

#[tokio::test]
async fn what_is_not_json_or_could_be_read_in_two_ways_is_refused() {
    let world = World::new();
    for (path, at, text, words) in each(MALFORMED) {
        let body = written(&valid(path), at, text);
        refuse_malformed(&world, path, body, words).await;
    }
    for (path, at, text, _) in each(TWICE) {
        let body = written(&valid(path), at, text);
        let answer = world.send(request(path, body)).await;
        answer.names(400, "malformed-json", &[&pointer(at)]);
        answer.tells(400, "malformed-json", &["two members of one name"]);
    }
    for path in ALL {
        let text = valid(path).to_string();
        let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        refuse_malformed(&world, path, utf_16, "is not JSON").await;
        let latin_1: Vec<u8> = text
            .bytes()
            .map(|byte| if byte == b'p' { 0xe9 } else { byte })
            .collect();
        refuse_malformed(&world, path, latin_1, "is not JSON").await;
        let cut = text[..text.len() - 1].to_owned();
        refuse_malformed(&world, path, cut, "ends in the middle").await;
        let deep = [
            nested(200),
            "{\"a\":".repeat(200),
            "[".repeat(40_000),
            "{\"a\":".repeat(40_000),
        ];
        for deep in deep {
            refuse_malformed(&world, path, deep, "nested too deep").await;
        }
    }
    let deep = written(&start(NOW), QUANTITY[0], &nested(130));
    refuse_malformed(&world, START, deep, "nested too deep").await;
    assert_eq!(world.store.calls(), 0);
}

#[tokio::test]
async fn what_is_valid_is_kept_as_it_was_given() {
    let target = TARGET.map(|name| format!("/{name}"));
    let target = target.each_ref().map(String::as_str);
    let long = ["x".repeat(1024), "é".repeat(512)].map(|text| format!("\"{text}\""));
    let (long, deep) = (long.each_ref().map(String::as_str), nested(32));
    for (path, at, text, _) in each(&accepted(&target, &long, &[&deep])) {
        let event = by("a", &valid(path));
        let body = written(&event, at, text);
        let (world, given) = (World::new(), as_kept(&put(&event, at, Some(read(text)))));
        if path == STOP {
            let mut begun = with(&start(NOW - HOUR), "measured_usage", json!([]));
            for name in TARGET {
                begun[name] = given[name].clone();
            }
            world.start(&begun).await.is_created();
        }
        let answer = world.send(request(path, body.clone())).await;
        assert_eq!(answer.status, 201, "{path} {at} {text}: {answer:?}");
        answer.is_created();
        // The same once more is a repeat, however it was kept.
        world.send(request(path, body)).await.is_replayed();
        let kept = world.kept().remove(0);
        let kept = if path == STOP {
            kept.1.unwrap()
        } else {
            kept.0
        };
        assert_eq!(kept, given, "{path} {at}");
        // Comparing looks neither at the order of members nor at the kind of a number.
        let measures = [&kept, &given].map(|event| event["measured_usage"].to_string());
        assert_eq!(measures[0], measures[1], "{text}");
    }
}

#[tokio::test]
async fn the_same_event_written_otherwise_is_the_same_event() {
    let world = World::new();
    let mut event = by("a", &start(NOW));
    event["measured_usage"][0]["quantity"] = json!({"a": [1, 2.5], "b": "x"});
    world.start(&event).await.is_created();
    let text = event.to_string();
    let (head, tail) = text.rsplit_once(",\"id\":\"a\"").unwrap();
    let reordered = format!("{{\"id\":\"\\u0061\",{}{tail}", &head[1..]);
    let spread = serde_json::to_string_pretty(&event).unwrap();
    let double = text.replace("[1,2.5]", "[1.0,25e-1]");
    let swapped = text.replace(r#"{"a":[1,2.5],"b":"x"}"#, r#"{"b":"x","a":[1,2.5]}"#);
    for written in [reordered, spread, double, swapped] {
        assert_ne!(written, text);
        world.send(request(START, written)).await.is_replayed();
    }
    world.assert_kept(&[(&event, None)]);
}

/// All values that are wrong or missing. A member that is unknown or of another type is named alone.
#[tokio::test]
async fn all_values_that_are_wrong_are_named_at_once() {
    let mut body = json!({
        "id": "\u{1f}",
        "timestamp": "1533254400000",
        "organization_id": "",
        "consumer_id": "\u{7f}",
        "resource_id": "\n",
        "resource_instance_id": "x".repeat(1025),
        "measured_usage": [
            {"measure": "duration", "quantity": null},
            {"measure": "a", "quantity": 1},
            {"quantity": true},
            {"measure": "a"},
        ],
    });
    let targets = TARGET.map(|name| format!("#/{name}"));
    let targets = targets.each_ref().map(String::as_str);
    let measures = [
        "#/measured_usage/0/quantity",
        "#/measured_usage/2/measure",
        "#/measured_usage/2/quantity",
        "#/measured_usage/3/quantity",
        "#/measured_usage/0/measure",
        "#/measured_usage/3/measure",
    ];
    let head = ["#/id", "#/timestamp"];
    let world = World::new();
    let answer = world.start(&body).await;
    let pointers = [&head[..], &targets, &measures].concat();
    answer.names(400, "invalid-event", &pointers);
    let pointers = [&head[..], &targets, &["#/measured_usage"]].concat();
    let answer = world.stop(&body).await;
    answer.names(400, "invalid-event", &pointers);
    let mapping = MAPPED
        .iter()
        .fold(json!({}), |body, name| with(&body, &name[1..], ".."));
    let pointers = MAPPED.map(|name| format!("#{name}"));
    let pointers = pointers.each_ref().map(String::as_str);
    for wrong in [mapping, json!({})] {
        let answer = world.post(MAPPINGS, &wrong).await;
        answer.names(400, "invalid-event", &pointers);
    }
    // And no more than a hundred.
    body["measured_usage"] = json!(vec![json!({}); 1_000]);
    let document = world.start(&body).await.problem(400, "invalid-event");
    assert_eq!(document["errors"].as_array().unwrap().len(), 100);
    assert_eq!(world.store.calls(), 0);
}

#[tokio::test]
async fn json_of_too_many_values_is_refused() {
    let of = |values: usize| {
        // An event has 15 values without those in its list.
        let zeros = vec![0; values - 15];
        put(
            &start(NOW),
            "/measured_usage/0/quantity",
            Some(json!(zeros)),
        )
    };
    let (world, event) = (World::new(), of(50_000));
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
    let words = "more than 50,000 values";
    refuse_malformed(&world, START, of(50_001).to_string(), words).await;
    for path in ALL {
        for value in ["0,".repeat(200_000), "[],".repeat(150_000)] {
            refuse_malformed(&world, path, format!("[{value}0]"), words).await;
        }
    }
}

#[tokio::test]
async fn fault_17_what_a_body_holds_is_neither_answered_nor_logged() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.subscriber());
    let world = World::new();
    let wrong = written(&start(NOW), "/plan_id", "{\"a\":\"hush\"}");
    for (body, slug, places) in [
        ("{\"hush\"", "malformed-json", &[][..]),
        ("hush", "malformed-json", &[]),
        (
            "{\"plan_id\":\"hush\",\"plan_id\":\"hush\"}",
            "malformed-json",
            &["#/plan_id"],
        ),
        ("[\"hush\\x\"]", "malformed-json", &[]),
        ("{\"a\":hush}", "malformed-json", &[]),
        (&wrong, "invalid-event", &["#/plan_id"]),
    ] {
        let answer = world.send(request(START, body.to_owned())).await;
        answer.names(400, slug, places);
        let text = answer.text();
        assert!(!text.contains("hush"), "{text}");
    }
    let text = log.text();
    assert_eq!(text.matches("\"message\":\"refused\"").count(), 6, "{text}");
    assert!(!text.contains("hush"), "{text}");
}
