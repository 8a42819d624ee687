//! Programs as child processes, with a shell script in the place of a program.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sampler_testkit::guard::is_alive;
use sampler_testkit::program::Launch;
use sampler_testkit::wait_until;

const LIMIT: Duration = Duration::from_secs(20);

/// Says that it listens, and its environment; ends with 3 when it is asked to.
const WILLING: &str = r#"
trap 'echo asked; exit 3' TERM
echo 'starting' >&2
echo '{"level":"INFO","message":"listening","address":"0.0.0.0:'"$PORT"'"}'
echo '{"message":"environment","secret":"'"$SECRET"'","given":"'"$GIVEN"'","arg":"'"$1"'"}'
while :; do sleep 0.02; done
"#;

fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("script");
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn starts_and_stops_and_keeps_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let launch = Launch::new("script")
        .path(script(folder.path(), WILLING))
        .log_file(&log);
    let launch = launch.env("GIVEN", "1").env("PORT", "77").arg("one");
    let program = launch.start().await.unwrap();
    assert_eq!(program.base_url(), "http://127.0.0.1:77");
    wait_until("the environment", LIMIT, || async {
        program.logs().len() == 2
    })
    .await;
    let entry = &program.logs_of("environment")[0];
    assert_eq!(
        (&entry["given"], &entry["arg"]),
        (&"1".into(), &"one".into())
    );
    assert_eq!(program.exit_code(), None);
    program.sigterm().unwrap();
    assert_eq!(program.wait_exit(LIMIT).await.unwrap(), 3);
    wait_until("the last line", LIMIT, || async {
        program.lines().contains(&"asked".to_owned())
    })
    .await;
    let logged = std::fs::read_to_string(log).unwrap();
    assert!(
        logged.contains("starting\n") && logged.contains("asked\n"),
        "{logged}"
    );
}

#[tokio::test]
async fn our_environment_is_not_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(
        folder.path(),
        "[ -z \"$CARGO_MANIFEST_DIR\" ] && exit 5; exit 6",
    );
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let program = Launch::new("script").path(path).spawn().await.unwrap();
    assert_eq!(program.wait_exit(LIMIT).await.unwrap(), 5);
}

#[tokio::test]
async fn says_why_a_program_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "echo 'bad setting' >&2; exit 64");
    let error = Launch::new("script")
        .path(path)
        .start()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("code 64") && error.contains("bad setting"),
        "{error}"
    );
}

#[tokio::test]
async fn is_killed_and_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), WILLING);
    let program = Launch::new("script").path(&path).start().await.unwrap();
    program.freeze().unwrap();
    program.sigterm().unwrap();
    assert!(program.wait_exit(Duration::from_millis(200)).await.is_err());
    program.thaw().unwrap();
    assert_eq!(program.wait_exit(LIMIT).await.unwrap(), 3);
    let program = Launch::new("script").path(&path).start().await.unwrap();
    program.kill().unwrap();
    assert_eq!(program.exit_code(), Some(128 + 9));
    let program = Launch::new("script").path(&path).start().await.unwrap();
    let pid = program.pid();
    drop(program);
    assert!(!is_alive(pid));
}
