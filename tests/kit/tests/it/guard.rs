//! Child processes die with us.

use std::ffi::OsString;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use sampler_testkit::guard::{Guarded, is_alive, wait_gone};

const LIMIT: Duration = Duration::from_secs(20);

fn shell(script: &str, remove: Option<&Path>) -> Guarded {
    let args = ["-c", script].map(OsString::from);
    Guarded::spawn(Path::new("/bin/sh"), &args, remove, |_| ()).unwrap()
}

#[tokio::test]
async fn dropping_kills_the_child_and_removes_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let child = shell("exec sleep 100", Some(folder.path()));
    let pid = child.pid();
    assert!(is_alive(pid));
    drop(child);
    assert!(!is_alive(pid));
    assert!(!folder.path().exists());
}

#[tokio::test]
async fn killing_leaves_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = shell("exec sleep 100", Some(folder.path()));
    child.kill().unwrap();
    drop(child);
    assert!(folder.path().exists());
}

/// The parent is this very test binary, told by the environment to be only that.
#[tokio::test]
async fn the_child_dies_when_its_parent_is_killed() {
    if std::env::var_os("SAMPLER_TESTKIT_PARENT").is_some() {
        let child = shell("exec sleep 100", None);
        println!("pid={}", child.pid());
        std::thread::sleep(Duration::from_secs(100));
    }
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "guard::the_child_dies_when_its_parent_is_killed",
            "--nocapture",
        ])
        .env("SAMPLER_TESTKIT_PARENT", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(parent.stdout.take().unwrap());
    let pid = output.lines().find_map(|line| {
        let line = line.unwrap();
        line.split_once("pid=")
            .map(|(_, pid)| pid.parse::<i32>().unwrap())
    });
    let pid = pid.unwrap();
    assert!(is_alive(pid));
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_gone(pid, LIMIT).await.unwrap();
}
