//! The command line of the programs, and the environment that an operator of the original has.

use sampler_testkit::program::{RECEIVER, WORKER, binary};
use tokio::process::Command;
use tokio::time::timeout;

use crate::landscape::{Landscape, PATIENCE};

/// How a program ends with these settings alone, and all that it prints. It must end by itself.
pub(crate) async fn run(
    program: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> (Option<i32>, String) {
    let mut command = Command::new(binary(program).await.unwrap());
    command.args(arguments).env_clear().kill_on_drop(true);
    command.envs(environment.iter().copied());
    let ended = timeout(PATIENCE, command.output()).await;
    let ended = ended.expect("it ends").unwrap();
    let printed = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(printed).unwrap())
}

/// A text with single spaces.
fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All names that the original reads. One manifest may give both programs everything.
#[tokio::test]
async fn the_environment_of_an_original_works_unchanged_and_no_secret_of_it_is_printed() {
    let environment = [
        ("PORT", "8080"),
        ("HOST", "0.0.0.0"),
        ("SECURED", "false"),
        ("SKIP_SSL_VALIDATION", "true"),
        ("DB_URI", "mongodb://user:hush@localhost:27017/sampler-db"),
        ("AUTH_SERVER", "https://api.example.com"),
        ("API", "https://api.example.com"),
        ("SPANS_COLLECTION_NAME", "spans"),
        ("CLIENT_ID", "abacus-sampler"),
        ("CLIENT_SECRET", "hush"),
        ("JWTKEY", "hush"),
        ("JWTALGO", "HS256"),
        ("HEALTHCHECK_SECURED", "false"),
        ("PROVISIONING_URL", "https://provisioning.example.com"),
        ("MAX_INFLIGHT", "600"),
        ("MAX_PAYLOAD", "500kb"),
        ("SAMPLER_SLACK_PAST_INTERVAL", "5270400000"),
        ("SAMPLER_SLACK_FUTURE_INTERVAL", "5270400000"),
        ("HEALTHCHECK_THRESHOLD", "60000"),
        ("COLLECTOR_URL", "https://collector.example.com"),
        ("SAMPLER_DIMENSION", "day"),
        ("PROCESS_BATCH_SIZE", "100"),
        ("PROCESS_SCHEDULE_INTERVAL", "1000"),
        ("CLEANUP_BATCH_SIZE", "100"),
        ("CLEANUP_SCHEDULE_INTERVAL", "1000"),
        ("PROCESS_SPANS_MONITOR_THRESHOLD", "60000"),
        ("CLEANUP_SPANS_MONITOR_THRESHOLD", "60000"),
    ];
    let database = "database localhost:27017, database sampler-db, collection spans (the environment \
                    variable DB_URI)";
    for program in [RECEIVER, WORKER] {
        for (option, shown) in [("--check-config", database), ("--print-config", "<hidden>")] {
            let (code, text) = run(program, &[option], &environment).await;
            assert_eq!(code, Some(0), "{program}: {text}");
            assert!(collapsed(&text).contains(shown), "{text}");
            assert!(!text.contains("hush"), "{text}");
        }
    }
}

/// Nothing is set, and both would start: so they say what they would do without.
#[tokio::test]
async fn a_check_says_what_will_be_used_and_what_is_missing() {
    let database = "database localhost:27017, database sampler, collection spans (the default)";
    for (program, environment, lines) in [
        (
            RECEIVER,
            &[][..],
            [
                "sampler-receiver: the settings are fine listens on 127.0.0.1, port 7070 (the default)",
                database,
                "callers no tokens: everybody who reaches it may send events; SECURED is false",
                "mappings are answered 502: PROVISIONING_URL is not set",
                "granularity not known: SAMPLER_DIMENSION is not set",
            ],
        ),
        (
            WORKER,
            &[("COLLECTOR_URL", "http://abacus.example/")],
            [
                "sampler-worker: the settings are fine listens on 127.0.0.1, port 7071 (the default)",
                database,
                "collector http://abacus.example/ calls no tokens: SECURED is false",
                "granularity day (the default) month closes 10m into the next one (the default)",
                "confirmation the upstream is not asked whether accepted usages count",
            ],
        ),
    ] {
        let (_, text) = run(program, &["--check-config"], environment).await;
        let text = collapsed(&text);
        for line in lines {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }
}

#[tokio::test]
async fn a_check_says_whether_there_is_a_console_and_which_token_an_upstream_gets() {
    let secured = [
        ("SECURED", "true"),
        ("AUTH_SERVER", "https://uaa.example"),
        ("CLIENT_ID", "sampler"),
        ("CLIENT_SECRET", "hush"),
    ];
    let key = [("SAMPLER_CONSOLE_KEY", "0123456789abcdef0123456789abcdef")];
    let secured_with_key = [&secured[..], &key].concat();
    let off = [("SAMPLER_CONSOLE", "false")];
    let upstream = [
        ("SAMPLER_UPSTREAM", "cloudevents"),
        ("SAMPLER_UPSTREAM_URL", "http://meter.example/events"),
        ("SAMPLER_UPSTREAM_TOKEN", "hush"),
        ("SAMPLER_UPSTREAM_HORIZON", "forever"),
    ];
    let lacking = "console off: SAMPLER_CONSOLE_KEY, a client or a token server is missing";
    for (program, environment, line) in [
        (RECEIVER, &[][..], "console at /console"),
        (RECEIVER, &off, "console off: SAMPLER_CONSOLE is false"),
        (RECEIVER, &secured, lacking),
        (RECEIVER, &secured_with_key, "console at /console"),
        (WORKER, &upstream, "calls with SAMPLER_UPSTREAM_TOKEN"),
    ] {
        let (_, text) = run(program, &["--check-config"], environment).await;
        let text = collapsed(&text);
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

/// Fault 14 of the original: settings were not checked.
#[tokio::test]
async fn fault_14_wrong_settings_are_named_at_once_and_exit_64() {
    let url = "http://localhost:1";
    let (collector, api) = (("COLLECTOR_URL", url), ("AUTH_SERVER", url));
    let (secured, provisioning) = (("SECURED", "true"), ("PROVISIONING_URL", url));
    let mistakes = [
        ("PROCESS_BATCH_SIZE", "ten"),
        ("SAMPLER_DIMENSION", "days"),
        ("SAMPLER_RETENTION", "23h"),
        ("DB_URI", "mongodb://user:hush@localhost/"),
        ("SAMPLER_CONCURENCY", "3"),
    ];
    let wrong_names = mistakes.map(|(name, _)| name);
    let (posting, operation) = ("SAMPLER_POST_TIMEOUT", "SAMPLER_DB_OPERATION_TIMEOUT");
    let writing = |post, write| [collector, (posting, post), (operation, write)];
    for (program, settings, named) in [
        (WORKER, &mistakes[..], &wrong_names[..]),
        (WORKER, &mistakes, &["COLLECTOR_URL"]),
        (
            WORKER,
            &writing("50s", "50s"),
            &["SAMPLER_POST_TIMEOUT", "skipped"],
        ),
        // A program with `SECURED=true` is never open, in no state.
        (RECEIVER, &[secured], &["JWTKEY"]),
        (RECEIVER, &[secured, api, provisioning], &["CLIENT_ID"]),
        (WORKER, &[secured, collector], &["CLIENT_SECRET"]),
        (
            WORKER,
            &[("HEALTHCHECK_SECURED", "true"), collector],
            &["AUTH_SERVER"],
        ),
        (WORKER, &writing("50s", "49s"), &[]),
        (WORKER, &[collector], &[]),
    ] {
        let arguments = named.is_empty().then_some("--check-config");
        let (code, text) = run(program, arguments.as_slice(), settings).await;
        let expected = if named.is_empty() { 0 } else { 64 };
        assert_eq!(code, Some(expected), "{settings:?}: {text}");
        for name in named {
            assert!(text.contains(name), "{name} is not named in:\n{text}");
        }
        assert!(!text.contains("hush"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_address_that_do_not_count_are_logged() {
    let world = Landscape::new("uri_options").await;
    for launch in [world.receiver(), world.worker()] {
        let uri = "mongodb://127.0.0.1:1/spans?maxPoolSize=5&w=majority&socketTimeoutMS=1";
        let program = launch.env("DB_URI", uri).start().await.unwrap();
        let message = "an option in the address of the database does not count";
        let lines = program.until_logged(message, 2).await;
        let options: Vec<_> = lines.iter().map(|line| line["option"].clone()).collect();
        assert_eq!(options, ["maxPoolSize", "socketTimeoutMS"]);
        assert_eq!(lines[0]["instead"], "SAMPLER_DB_POOL_SIZE");
    }
}
