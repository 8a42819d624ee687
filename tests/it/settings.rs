//! The command line of the programs, and the environment that an operator of the original has.

use sampler_testkit::program::{RECEIVER, WORKER, binary};
use tokio::process::Command;
use tokio::time::timeout;

use crate::landscape::PATIENCE;

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
    for program in [RECEIVER, WORKER] {
        let (code, text) = run(program, &["--check-config"], &environment).await;
        assert_eq!(code, Some(0), "{program}: {text}");
        assert!(text.contains("  DB_URI = <hidden>\n"), "{text}");
        assert!(!text.contains("hush"), "{text}");
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
    for (program, settings, named) in [
        (WORKER, &mistakes[..], &wrong_names[..]),
        (WORKER, &mistakes, &["COLLECTOR_URL"]),
        // A program with `SECURED=true` is never open, in no state.
        (RECEIVER, &[secured], &["JWTKEY"]),
        (RECEIVER, &[secured, api, provisioning], &["CLIENT_ID"]),
        (WORKER, &[secured, collector], &["CLIENT_SECRET"]),
        (
            WORKER,
            &[("HEALTHCHECK_SECURED", "true"), collector],
            &["JWTKEY"],
        ),
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
