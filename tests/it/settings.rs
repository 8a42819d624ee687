//! The command line of the programs, and the environment that an operator of the original has.

use sampler_testkit::program::{RECEIVER, WORKER, binary};
use tokio::process::Command;
use tokio::time::timeout;

use crate::landscape::PATIENCE;

/// How a program ends with these settings alone, and all that it prints. It must end by itself.
async fn run(
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

/// Fault 14 of the original: settings were not checked. A program with `SECURED=true` is never open, in no state.
#[tokio::test]
async fn fault_14_wrong_settings_are_named_at_once_and_exit_64() {
    let collector = ("COLLECTOR_URL", "http://localhost:1");
    let mistakes = [
        ("PROCESS_BATCH_SIZE", "ten"),
        ("DB_URI", "mongodb://user:hush@localhost/"),
        ("SAMPLER_CONCURENCY", "3"),
    ];
    let wrong_names = mistakes.map(|(name, _)| name);
    for (program, settings, named) in [
        (WORKER, &mistakes[..], &wrong_names[..]),
        (WORKER, &mistakes, &["COLLECTOR_URL"]),
        (RECEIVER, &[("SECURED", "true")], &["JWTKEY"]),
        (
            WORKER,
            &[("SECURED", "true"), collector],
            &["CLIENT_SECRET"],
        ),
    ] {
        let (code, text) = run(program, &[], settings).await;
        assert_eq!(code, Some(64), "{settings:?}: {text}");
        for name in named {
            assert!(text.contains(name), "{name} is not named in:\n{text}");
        }
        assert!(!text.contains("hush"), "{text}");
    }
}
