//! Files of events: how they are read, and what usages follow.

use sampler_verify::events::{Columns, Event, EventKind, Format, read};
use sampler_verify::moment::{Granularity, InWords, Millis, parse_length, parse_moment};
use sampler_verify::quantity::Measure;
use sampler_verify::{History, Target};
use serde_json::{Value, json};

/// 2023-11-14T22:13:20Z.
const NOW: Millis = 1_700_000_000_000;
const HEADER: &str =
    "organization_id,space_id,consumer_id,resource_id,plan_id,resource_instance_id,start,end";
const M: &str = r#""measured_usage":[{"measure":"m","quantity":1}]"#;

fn line(more: &str) -> String {
    format!(
        r#"{{{more},"organization_id":"o","space_id":"s","consumer_id":"c","resource_id":"r","plan_id":"p","resource_instance_id":"i"}}"#
    )
}

fn ndjson(text: &str) -> Result<Vec<Event>, String> {
    read(text.as_bytes(), Format::Ndjson, &Columns::default(), NOW)
}

fn csv(measures: &[&str], ignored: &[&str], text: &str) -> Result<Vec<Event>, String> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (measures, ignored) = (owned(measures), owned(ignored));
    read(
        text.as_bytes(),
        Format::Csv,
        &Columns { measures, ignored },
        NOW,
    )
}

/// The wrong texts, and a part of what is said.
#[track_caller]
fn refuses(read: impl Fn(&str) -> Result<Vec<Event>, String>, cases: &[(&str, &str)]) {
    for (text, part) in cases {
        let what = read(text).expect_err(text);
        assert!(what.contains(part), "{text}: {what}");
    }
}

#[test]
fn times_are_read_in_all_ways() {
    for (more, expected) in [
        (r#""timestamp":1795186800000"#, 1_795_186_800_000),
        (r#""timestamp":1.7951868e12"#, 1_795_186_800_000),
        (r#""timestamp":"1970-01-01T01:00:00.005+01:00""#, 5),
        (r#""at":"-1h""#, 1_699_996_400_000),
        (r#""day":-1,"time":"00:00:01""#, 1_699_833_601_000),
    ] {
        let events = ndjson(&line(&format!(r#""type":"stop",{more}"#))).unwrap();
        assert_eq!(events[0].moment, expected, "{more}");
    }
    let stop = |more: &str| ndjson(&line(&format!(r#""type":"stop",{more}"#)));
    let either = "either \"timestamp\"";
    refuses(
        stop,
        &[
            (r#""id":"x""#, either),
            (r#""day":1"#, either),
            (r#""timestamp":1,"at":"1h""#, either),
            (r#""timestamp":1.5"#, "neither a whole number nor RFC 3339"),
            (r#""timestamp":"1""#, "neither a whole number nor RFC 3339"),
            (r#""day":0,"time":"noon""#, "not a valid time of a day"),
            (r#""at":"x""#, "not a valid length"),
        ],
    );
    let at = |text: &str| parse_moment(text).unwrap();
    assert_eq!(at("2026-12-31T23:59:60Z"), at("2027-01-01T04:30:00+04:30"));
    for wrong in ["yesterday", "2026-11-20T15:10:60Z", "2026-12-31T23:59:61Z"] {
        assert!(parse_moment(wrong).is_err(), "{wrong}");
    }
    assert_eq!(parse_length("-1d1h1m1s1ms"), Ok(-90_061_001));
    assert!(parse_length("99999999999999d").is_err());
    assert_eq!(
        InWords(at("2024-02-29T23:59:59.999Z")).to_string(),
        "2024-02-29T23:59:59.999Z"
    );
}

/// Windows follow each other, and hold what they begin with.
#[test]
fn windows_are_those_of_the_calendar() {
    let at = |text: &str| parse_moment(text).unwrap();
    let (eve, year) = (at("2023-12-31T23:59:59.999Z"), at("2024-01-01T00:00:00Z"));
    for name in ["minute", "hour", "day", "month"] {
        let windows: Granularity = serde_json::from_value(json!(name)).unwrap();
        assert_eq!(windows.window(eve).end, year, "{name}");
        assert_eq!(windows.window(year).start, year, "{name}");
        for far in [Millis::MIN, Millis::MAX] {
            windows.window(far);
        }
    }
    let february = at("2024-02-01T00:00:00Z")..at("2024-03-01T00:00:00Z");
    assert_eq!(
        Granularity::Month.window(at("2024-02-29T12:00:00Z")),
        february
    );
}

#[test]
fn events_are_read_as_they_are_sent() {
    let update = line(&format!(
        r#""type":"update","timestamp":5,"id":"u","previous":{{"plan_id":"small"}},{M}"#
    ));
    let text = format!(
        "\u{feff}# comment\n\n{update}\n{}",
        line(r#""type":"stop","timestamp":9,"id":"""#)
    );
    let events = ndjson(&text).unwrap();
    let plans: Vec<&str> = events
        .iter()
        .map(|event| event.target.plan_id.as_str())
        .collect();
    assert_eq!(plans, ["small", "p", "p"]);
    assert_eq!(events[0].kind, EventKind::Stop);
    assert!(matches!(&events[1].kind, EventKind::Start(measures) if measures.len() == 1));
    let ids: Vec<_> = events
        .iter()
        .map(|event| (event.line, event.id.as_deref()))
        .collect();
    assert_eq!(
        ids,
        [(3, Some("u")), (3, Some("u")), (4, None)],
        "an empty id is none"
    );

    let cloud = |kind: &str, time: &str| {
        let data = line(M);
        let text = format!(
            r#"{{"specversion":"1.0","type":"{kind}","source":"/b","id":"1","time":"{time}","data":{data}}}"#
        );
        read(text.as_bytes(), Format::Ndjson, &Columns::default(), NOW)
    };
    let events = cloud("a.b.start", "1970-01-01T00:00:01.0009Z").unwrap();
    assert_eq!(
        (events[0].moment, events[0].id.as_deref()),
        (1_000, Some("/b\u{1f}1"))
    );
    for (kind, time) in [
        ("start", "1970-01-01T00:00:00Z"),
        ("a.start", "1000"),
        ("a.begin", "1970-01-01T00:00:00Z"),
    ] {
        assert!(cloud(kind, time).is_err(), "{kind} {time}");
    }
    let twice = r#""measured_usage":[{"measure":"m","quantity":1},{"measure":"m","quantity":2}]"#;
    refuses(
        |more| ndjson(&line(more)),
        &[
            (r#""type":"begin","timestamp":1"#, "line 1: \"type\""),
            (r#""type":"start","timestamp":1"#, "measured_usage"),
            (
                &format!(r#""type":"start","timestamp":1,{twice}"#),
                "repeated",
            ),
            (
                &format!(r#""type":"update","timestamp":1,"previous":{{"plan":"x"}},{M}"#),
                "\"plan\"",
            ),
        ],
    );
    refuses(
        ndjson,
        &[
            ("{", "line 1: not JSON: it ends too early"),
            ("nope", "not JSON: expected a value at column 2"),
            (r#"{"type":"stop","timestamp":1}"#, "organization_id"),
            ("# nothing\n", "no events in it"),
            ("PK\u{3}\u{4}", "not text"),
            ("{\"a\": \0", "not text"),
        ],
    );
    let utf16 = b"\xff\xfe\x00".as_slice();
    let utf16 = read(utf16, Format::Ndjson, &Columns::default(), NOW);
    assert!(utf16.unwrap_err().contains("not text"));
    let latin = [HEADER.as_bytes(), b"\no,s,c,r,p,M\xfcller,1,2\n"].concat();
    let latin = read(&*latin, Format::Csv, &Columns::default(), NOW);
    let told = "line 2: the text is not UTF-8";
    assert!(latin.unwrap_err().starts_with(told));
}

#[test]
fn a_table_has_a_span_in_each_row() {
    let text = format!(
        "\u{feff}{HEADER},measure:memory,cpu,note,\r\no,s,c,r,p,1,100,200,512,0.5,x,\r\n , \r\n\
         o,s,c,r,p,2,1970-01-01T01:00:02+01:00,,512.5,2,,,\r\n"
    );
    let events = csv(&["cpu"], &["note"], &text).unwrap();
    let moments: Vec<Millis> = events.iter().map(|event| event.moment).collect();
    assert_eq!(moments, [100, 200, 2_000]);
    assert_eq!(events[1].target.ids(), ["o", "s", "c", "r", "p", "1"]);
    // In the order of their names, whatever the order of the columns.
    let start =
        json!([{ "measure": "cpu", "quantity": 2 }, { "measure": "memory", "quantity": 512.5 }]);
    let EventKind::Start(measures) = &events[2].kind else {
        panic!("{events:?}");
    };
    assert_eq!(json!(measures), start);

    // Lines are those of an editor, whatever ends them.
    let lines: Vec<u64> = events.iter().map(|event| event.line).collect();
    assert_eq!(lines, [2, 2, 4]);
    let row = |row: &str| csv(&[], &[], &format!("{HEADER}\n{row}\n"));
    refuses(
        row,
        &[
            ("o,s,c,r,p,1,2,1", "line 2: a span that ends before"),
            ("o,s,c,r,p,1,x,1", "not a valid time"),
            ("o,s,c,r,p,1,,1", "without a start"),
            ("o,s,c,r,p,1", "6 fields"),
            (
                "o,s,c,r,p,1,1,2,,512",
                "line 2: \"512\" stands in the column 10",
            ),
        ],
    );
    refuses(
        |header| csv(&[], &[], header),
        &[
            ("start,end\n1,2\n", "organization_id"),
            ("a;b\n1;2\n", "commas separate columns"),
        ],
    );
}

/// Numbers do not make a column a measure, and a measure is not lost because of a text.
#[test]
fn a_column_that_is_not_named_is_a_mistake() {
    let table = |header: &str, cell: &str| format!("{HEADER},{header}\no,s,c,r,p,1,1,2,{cell}\n");
    let advice = "call it \"measure:memory\" in the first line, or add --measures \"memory\"; otherwise add \
                  --ignore \"memory\"";
    for cell in ["512", "", "x"] {
        let what = csv(&[], &[], &table("memory", cell)).unwrap_err();
        assert!(what.contains(advice), "{what}");
    }
    let wrong = [
        "",
        "x",
        "NaN",
        "1e999",
        "0.123456789012345678",
        "0x1",
        "true",
        "9223372036854775808",
    ];
    for cell in wrong {
        let what = csv(&["memory"], &[], &table("memory", cell)).unwrap_err();
        assert!(what.starts_with("line 2: the measure \"memory\""), "{what}");
    }
    let (one, two) = (table("memory", "1"), table("memory,measure:memory", "1,1"));
    for (measures, ignored, text, part) in [
        (&["disk"][..], &[][..], &one, "no column \"disk\""),
        (&["memory"], &["disk"], &one, "no column \"disk\""),
        (&["memory"], &["memory"], &one, "or it means something else"),
        (
            &["memory", "start"],
            &[],
            &one,
            "or it means something else",
        ),
        (
            &["memory"],
            &["plan_id"],
            &one,
            "or it means something else",
        ),
        (&["memory"], &[], &two, "repeated"),
        (&[], &[], &table("start", "1"), "repeated"),
    ] {
        let what = csv(measures, ignored, text).unwrap_err();
        assert!(what.contains(part), "{part}: {what}");
    }
}

#[test]
fn quantities_are_equal_by_value() {
    let read = |text: &str| -> Value {
        let text = format!(r#"{{"measure":"m","quantity":{text}}}"#);
        serde_json::from_str::<Measure>(&text).unwrap().quantity
    };
    for (one, other, are_equal) in [
        ("512", "512.0", true),
        ("1e2", "100", true),
        ("0.1", "0.1000000000000000055511151231257827", true),
        ("100000000000000000000", "1e20", true),
        (
            r#"{"a":[1,"x"],"b":null}"#,
            r#"{ "b": null, "a": [1.0, "x"] }"#,
            true,
        ),
        (r#""\u00e9""#, "\"é\"", true),
        ("9007199254740993", "9007199254740992", false),
        ("0.1", "0.10000000000000002", false),
        ("1", "\"1\"", false),
        ("true", "false", false),
        ("[1]", "[1,1]", false),
        ("{}", "[]", false),
    ] {
        assert_eq!(read(one) == read(other), are_equal, "{one} {other}");
    }
}

/// An event as `kind id time`, of the instance `i` or of another one that follows.
fn event((line, text): (u64, &str)) -> Event {
    let words: Vec<&str> = text.split(' ').collect();
    let instance = words.get(3).unwrap_or(&"i");
    let measures = r#"[{"measure":"m","quantity":1}]"#;
    let start = EventKind::Start(serde_json::from_str(measures).unwrap());
    let is_start = words[0] == "start";
    Event {
        line,
        kind: if is_start { start } else { EventKind::Stop },
        target: Target::from_ids(["o", "s", "c", "r", "p", instance].map(str::to_owned)),
        id: Some(words[1].to_owned()).filter(|id| id != "-"),
        moment: words[2].parse().unwrap(),
    }
}

/// The events, the usages that follow, and the lines that contradict others.
#[test]
fn usages_follow_from_events_in_any_order() {
    for (events, spans, wrong) in [
        (
            "stop b 20, start a 10, start c 20, stop d 20, start e 30",
            &[(10, Some(20)), (20, Some(20)), (30, None)][..],
            &[][..],
        ),
        // Repeats.
        (
            "start a 10, start a 10, stop b 20, start a 10, stop b 20",
            &[(10, Some(20))],
            &[],
        ),
        (
            "start - 30, start - 30, stop - 40, stop - 40, start - 40",
            &[(30, Some(40)), (40, None)],
            &[],
        ),
        // A stop without a start, a start without a stop, and an id of another.
        (
            "stop x 5, start a 10, start b 15, stop c 20, start a 30",
            &[(10, Some(20))],
            &[1, 3, 5],
        ),
        // Targets do not meet.
        ("start a 10 j, start a 10", &[(10, None), (10, None)], &[]),
    ] {
        let history = History::of((1..).zip(events.split(", ")).map(event).collect());
        let found = history.used.iter().map(|used| (used.start, used.end));
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        assert_eq!(found, spans, "{events}");
        let lines: Vec<u64> = history.contradictions.iter().map(|it| it.line).collect();
        assert_eq!(lines, wrong, "{events}");
    }
}
