//! Whatever is sent: no panic, no answer 5xx, and what is answered 201 is kept as it was given. What is valid
//! is accepted. `PROPTEST_CASES` says how often.

mod near;
mod valid;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::Config;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

pub(crate) use near::Json;

use crate::answer::Answer;
use crate::bodies::gzip;
use crate::event::{by, start, valid, with};
use crate::provisioning::StandIn;
use crate::world::{ALL, HOUR, MAPPINGS, NOW, START, STOP, World, request};

/// What is sent, and the one way to read it, if there is one.
#[derive(Debug)]
struct Sent {
    path: &'static str,
    bytes: Vec<u8>,
    given: Option<Value>,
    packing: Packing,
    header: Option<(&'static str, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum Packing {
    Plain,
    Gzip,
    /// It is not gzip, but says so.
    Claimed,
    /// A byte of it is wrong.
    Broken(Index),
}

impl Sent {
    fn request(&self) -> Request<Body> {
        let packed = match self.packing {
            Packing::Plain | Packing::Claimed => self.bytes.clone(),
            Packing::Gzip => gzip(&self.bytes),
            Packing::Broken(index) => {
                let mut packed = gzip(&self.bytes);
                let place = index.index(packed.len());
                packed[place] ^= 0xff;
                packed
            }
        };
        let mut request = request(self.path, packed);
        let headers = request.headers_mut();
        if !matches!(self.packing, Packing::Plain) {
            headers.insert("content-encoding", HeaderValue::from_static("gzip"));
        }
        if let Some((name, value)) = &self.header {
            let value = HeaderValue::from_bytes(value).unwrap();
            headers.insert(HeaderName::from_static(name), value);
        }
        request
    }
}

/// Bytes that are anything, or look a little like JSON.
fn bytes(path: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let valid = valid(path).to_string().into_bytes();
    let flips = prop::collection::vec((any::<Index>(), any::<u8>()), 1..4);
    let flipped = flips.prop_map(move |flips| {
        let mut bytes = valid.clone();
        for (place, byte) in flips {
            bytes[place.index(valid.len())] = byte;
        }
        bytes
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "[\\[\\]{}\",:0-9eE+.\\\\a-z \n-]{0,80}".prop_map(String::into_bytes),
        any::<String>().prop_map(String::into_bytes),
        flipped,
    ]
}

fn content(path: &'static str) -> impl Strategy<Value = (Vec<u8>, Option<Value>)> {
    let body = by("a", &valid(path));
    let body = if path == MAPPINGS { valid(path) } else { body };
    let of_bytes = |bytes: Vec<u8>| {
        let given = serde_json::from_slice(&bytes).ok();
        (bytes, given)
    };
    prop_oneof![
        4 => near::near(&body).prop_map(|json| (json.text().into_bytes(), json.value())),
        2 => bytes(path).prop_map(of_bytes),
        1 => Just(of_bytes(body.to_string().into_bytes())),
    ]
}

fn header() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let names = ["content-type", "content-encoding", "content-length"];
    let value = prop_oneof![
        prop::collection::vec(prop_oneof![32_u8..127, 128_u8..=255], 0..60),
        "(application|text)/json ?; ?charset=[\"utfUTF8-]{3,7}".prop_map(String::into_bytes),
    ];
    (select(names.to_vec()), value)
}

fn sent() -> impl Strategy<Value = Sent> {
    let packing = prop_oneof![
        4 => Just(Packing::Plain),
        2 => Just(Packing::Gzip),
        1 => Just(Packing::Claimed),
        1 => any::<Index>().prop_map(Packing::Broken),
    ];
    let parts = select(ALL.to_vec()).prop_flat_map(|path| (Just(path), content(path)));
    let header = prop_oneof![6 => Just(None), 1 => header().prop_map(Some)];
    (parts, packing, header).prop_map(|((path, (bytes, given)), packing, header)| Sent {
        path,
        bytes,
        given,
        packing,
        header,
    })
}

/// The provisioning service with a receiver that maps to it, and the program around all cases.
struct Environment {
    runtime: Runtime,
    stand_in: StandIn,
    mapping: World,
}

impl Environment {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (stand_in, options) = runtime.block_on(StandIn::start(&[]));
        Self {
            runtime,
            stand_in,
            mapping: World::mapping_to(&options),
        }
    }

    /// Sends it to a receiver, an event to one of its own. What is kept, or passed on, is what was given, or
    /// nothing.
    async fn send(&self, sent: &Sent) -> Answer {
        let own = World::new();
        let world = if sent.path == MAPPINGS {
            &self.mapping
        } else {
            &own
        };
        let before = start(NOW - HOUR);
        if sent.path == STOP {
            world.start(&before).await.is_created();
        }
        let answer = world.send(sent.request()).await;
        let given = if answer.status == 201 {
            answer.is_created();
            Some(
                sent.given
                    .clone()
                    .expect("JSON that can be read in one way"),
            )
        } else {
            answer.any_problem();
            assert!(answer.status < 500, "{answer:?}");
            None
        };
        let kept = given.as_ref().filter(|_| sent.path != MAPPINGS);
        let kept = kept.map(as_kept);
        match (sent.path, &kept) {
            (STOP, end) => world.assert_kept(&[(&before, end.as_ref())]),
            (_, Some(event)) => world.assert_kept(&[(event, None)]),
            (_, None) => world.assert_kept(&[]),
        }
        let mapped = given.filter(|_| sent.path == MAPPINGS);
        let calls = mapped.as_ref().map_or_else(|| json!([]), calls_for);
        assert_eq!(json!(self.stand_in.take()), calls);
        answer
    }
}

/// The event as it is kept: an empty `id` is none, and a timestamp is an integer or a time.
pub(crate) fn as_kept(event: &Value) -> Value {
    let mut event = event.clone();
    let members = event.as_object_mut().unwrap();
    if members.get("id") == Some(&json!("")) {
        members.shift_remove("id");
    }
    #[expect(clippy::cast_possible_truncation, reason = "what was accepted fits")]
    let millis = event["timestamp"].as_f64().map(|millis| millis as i64);
    millis.map_or_else(|| event.clone(), |millis| with(&event, "timestamp", millis))
}

/// What the provisioning service is asked for a mapping.
fn calls_for(mapping: &Value) -> Value {
    assert_eq!(mapping.as_object().unwrap().len(), 5);
    let parts = ["metering", "rating", "pricing"].into_iter();
    let call = |part: &str| {
        let plan = &mapping[format!("{part}_plan")];
        json!([part, mapping["resource_id"], mapping["plan_id"], plan])
    };
    parts.map(call).collect()
}

#[test]
fn whatever_is_sent_is_kept_as_it_was_given_or_not_at_all() {
    let environment = Environment::new();
    // Paths, contents, packings and headers meet each other.
    let cases = 6 * Config::default().cases;
    proptest!(Config::with_cases(cases), |(sent in sent())| {
        environment.runtime.block_on(environment.send(&sent));
    });
}

#[test]
fn any_usage_is_kept_as_it_was_given_and_known_when_it_comes_again() {
    let environment = Environment::new();
    proptest!(|((start, stop) in valid::usage(), packed in any::<bool>(), spread in any::<bool>())| {
        let text = |event: &Value| if spread {
            serde_json::to_vec_pretty(event).unwrap()
        } else {
            event.to_string().into_bytes()
        };
        let sent = |path, event: &Value, packed| Sent {
            path,
            bytes: text(event),
            given: None,
            packing: if packed { Packing::Gzip } else { Packing::Plain },
            header: None,
        }.request();
        environment.runtime.block_on(async {
            let world = World::new();
            let (kept, ended) = (as_kept(&start), as_kept(&stop));
            for (path, event, again) in [(START, &start, "open-span"), (STOP, &stop, "no-open-span")] {
                world.send(sent(path, event, packed)).await.is_created();
                let answer = world.send(sent(path, event, !packed)).await;
                if as_kept(event).get("id").is_some() {
                    answer.is_replayed();
                } else {
                    answer.problem(if path == START { 409 } else { 422 }, again);
                }
                world.assert_kept(&[(&kept, (path == STOP).then_some(&ended))]);
            }
            // The order of members, which comparing does not look at, stays too.
            let measures = &world.kept()[0].0["measured_usage"];
            assert_eq!(measures.to_string(), kept["measured_usage"].to_string());
        });
    });
}

#[test]
fn any_mapping_is_passed_on_as_it_was_given() {
    let environment = Environment::new();
    proptest!(|(mapping in valid::mapping())| {
        let sent = Sent {
            path: MAPPINGS,
            bytes: mapping.to_string().into_bytes(),
            given: Some(mapping),
            packing: Packing::Plain,
            header: None,
        };
        let answer = environment.runtime.block_on(environment.send(&sent));
        assert_eq!(answer.status, 201);
    });
}
