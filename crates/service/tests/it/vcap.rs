//! The database that the platform has bound.

use secrecy::ExposeSecret;

use crate::settings::{assert_lines, assert_told, file, mistakes, printed, run};

const ONE: &str = r#"{"mongodb": [
    {"name": "spans-db", "binding_name": null, "label": "mongodb", "tags": ["mongodb"],
     "credentials": {"uri": "mongodb://u:s3cr3t@bound/billing", "port": 27017}}
]}"#;

const TWO: &str = r#"{"mongodb": [
    {"name": "spans-db", "credentials": {"uri": "mongodb://u:s3cr3t@bound/billing"}},
    {"name": "archive", "credentials": {"uri": "mongodb://u:s3cr3t@other/archive"}}
]}"#;

const BILLING: &str = "mongodb://u:s3cr3t@bound/billing";

const DB_URI: (&str, &str) = ("DB_URI", "mongodb://written/written");

#[test]
fn counts_before_what_is_written_down() {
    let settings = run(&[], &[DB_URI, ("VCAP_SERVICES", ONE)]).unwrap();
    assert_eq!(settings.database.uri.expose_secret(), BILLING);
    let text = printed(&["--print-config"], &[DB_URI, ("VCAP_SERVICES", ONE)]);
    let line = "uri = \"<hidden>\" # VCAP_SERVICES (service 'spans-db')";
    assert_lines(&text, &[line]);
}

#[test]
fn can_be_in_a_file() {
    let (_file, path) = file(ONE);
    let settings = run(&[], &[("VCAP_SERVICES_FILE_PATH", &path)]).unwrap();
    assert_eq!(settings.database.uri.expose_secret(), BILLING);
    let text = mistakes(&[], &[("VCAP_SERVICES_FILE_PATH", "nowhere.json")]);
    assert_told(
        &text,
        &["VCAP_SERVICES_FILE_PATH: the file nowhere.json cannot be"],
    );
}

#[test]
fn of_several_one_must_be_named() {
    let text = mistakes(&[], &[("VCAP_SERVICES", TWO)]);
    assert!(text.contains("'spans-db', 'archive' are bound"), "{text}");
    let named = [("VCAP_SERVICES", TWO), ("SAMPLER_DB_SERVICE", "archive")];
    let settings = run(&[], &named).unwrap();
    let archive = "mongodb://u:s3cr3t@other/archive";
    assert_eq!(settings.database.uri.expose_secret(), archive);
    let absent = mistakes(&[], &[("SAMPLER_DB_SERVICE", "absent")]);
    assert!(absent.contains("those that are: none"), "{absent}");
}
