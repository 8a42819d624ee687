//! What `cf push` takes, and a rolling update under load.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::doc;
use reqwest::Client;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::cloud_foundry::StandInCloudFoundry;
use sampler_testkit::program::{CLI, Launch, RECEIVER, WORKER, binary};
use sampler_testkit::{Program, now_millis, wait_until, workspace_dir};
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::landscape::{HOUR, Landscape, MINUTE, PATIENCE, client, until_ready};

/// Names the folder of packages that `cargo xtask package` makes. Without it the programs are those that
/// were built for the tests.
const PACKAGES_VARIABLE: &str = "SAMPLER_PACKAGE_DIR";

/// The platform kills after ten seconds; the programs promise eight.
const PROMISE: Duration = Duration::from_secs(8);

/// Providers at work at the same time.
const PROVIDERS: usize = 4;

/// The keys of an app that `cf push` knows, as far as the manifest uses them.
const KEYS: [&str; 18] = [
    "name",
    "metadata",
    "path",
    "stack",
    "buildpacks",
    "command",
    "instances",
    "memory",
    "disk_quota",
    "routes",
    "no-route",
    "services",
    "health-check-type",
    "health-check-http-endpoint",
    "health-check-invocation-timeout",
    "readiness-health-check-type",
    "readiness-health-check-http-endpoint",
    "readiness-health-check-invocation-timeout",
];

/// The folder with the package of a program, where packages are given.
fn package(program: &str) -> Option<PathBuf> {
    let packages = std::env::var_os(PACKAGES_VARIABLE)?;
    let folder = program.trim_start_matches("sampler-");
    Some(workspace_dir().join(packages).join(folder))
}

/// `deploy/manifest.yml` with the variables of the example.
fn manifest() -> Value {
    let read = |name: &str| {
        let path = workspace_dir().join("deploy").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let mut text = read("manifest.yml");
    let variables: BTreeMap<String, Value> =
        serde_saphyr::from_str(&read("vars.example.yml")).unwrap();
    for (name, value) in variables {
        let place = format!("(({name}))");
        assert!(text.contains(&place), "nothing uses {name}");
        text = text.replace(&place, &value.to_string());
    }
    assert!(!text.contains("(("), "a variable has no example: {text}");
    serde_saphyr::from_str(&text).unwrap()
}

/// The apps have valid settings, accept a request only with a token, survive the loss of a machine, and
/// are checked by HTTP.
#[tokio::test]
async fn what_is_pushed_is_what_the_programs_take() {
    let manifest = manifest();
    let apps = manifest["applications"].as_array().unwrap();
    assert_eq!(apps.len(), 3);
    for (app, program) in apps.iter().zip([RECEIVER, WORKER]) {
        let mut keys = app.as_object().unwrap().keys();
        let unknown = keys.find(|key| *key != "env" && !KEYS.contains(&key.as_str()));
        assert_eq!(unknown, None);
        assert_eq!(app["name"], program);
        let path = program.replace("sampler-", "../target/deploy/");
        assert_eq!(app["path"], path);
        assert_eq!(app["command"], format!("./{program}"));
        assert_eq!(app["no-route"] == true, program == WORKER);
        assert_eq!(app["env"]["SECURED"], "true");
        assert!(app["instances"].as_u64() >= Some(2));
        assert_eq!(app["stack"], "cflinuxfs4");
        assert_eq!(app["buildpacks"][0], "binary_buildpack");
        for check in ["health-check", "readiness-health-check"] {
            assert_eq!(app[format!("{check}-type")], "http");
        }
        let environment = app["env"].as_object().unwrap().iter();
        let environment = environment.map(|(name, value)| {
            let text = value.as_str();
            (name, text.expect("an environment holds texts"))
        });
        let mut command = match package(program) {
            Some(folder) => {
                let procfile = std::fs::read_to_string(folder.join("Procfile")).unwrap();
                assert_eq!(procfile, format!("web: ./{program}\n"));
                Command::new(folder.join(program))
            }
            None => Command::new(binary(program).await.unwrap()),
        };
        command.arg("--check-config").env_clear().envs(environment);
        let checked = command.output().await.unwrap();
        let errors = String::from_utf8(checked.stderr).unwrap();
        assert!(checked.status.success(), "{program}: {errors}");
    }
}

/// The third app is the feed: one, which nobody calls, and which is checked as a process. What it is given
/// is all that it needs: it goes as far as asking the platform.
#[tokio::test]
async fn what_is_pushed_as_the_feed_is_what_it_takes() {
    let manifest = manifest();
    let app = &manifest["applications"][2];
    assert_eq!(app["name"], "sampler-feed");
    assert_eq!(app["path"], "../target/deploy/feed");
    assert_eq!(
        (&app["instances"], &app["no-route"]),
        (&1.into(), &true.into())
    );
    assert_eq!(app["health-check-type"], "process");
    assert!(app["routes"].is_null());
    let command = app["command"].as_str().unwrap();
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("./sampler"));
    let mount = &app["services"][0]["parameters"]["mount"];
    let state = app["env"]["SAMPLER_FEED_STATE"].as_str().unwrap();
    assert!(state.starts_with(mount.as_str().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("feed.json");
    let environment = app["env"].as_object().unwrap().iter();
    let environment = environment.map(|(name, value)| (name, value.as_str().unwrap()));
    let mut command = Command::new(binary(CLI).await.unwrap());
    command.args(words).env_clear().envs(environment);
    command.env("SAMPLER_FEED_STATE", state);
    // It gets as far as its token, which this platform does not give: nothing is missing.
    let platform = StandInCloudFoundry::start().await.unwrap();
    command.env("SAMPLER_CF_API", platform.api());
    let ended = command.output().await.unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(3), "{errors}");
    assert!(errors.contains("the token server answered 401"), "{errors}");
}

/// Providers that start and stop usages without a pause, and repeat nothing.
#[derive(Default)]
struct Load {
    /// The receivers that get requests.
    receivers: Mutex<Vec<String>>,
    /// How long each instance of a resource was used, in ms.
    durations: Mutex<BTreeMap<String, i128>>,
    is_over: AtomicBool,
}

impl Load {
    /// Sends to the next receiver, or where that refuses the connection to another one, as a router does.
    /// Nothing is sent twice.
    async fn post(&self, http: &Client, turn: usize, path: &str, event: &Value) {
        let receivers = self.receivers.lock().unwrap().clone();
        for index in 0..receivers.len() {
            let receiver = &receivers[(turn + index) % receivers.len()];
            let url = format!("{receiver}/v1/events/{path}");
            match http.post(url).json(event).send().await {
                Ok(answer) => return assert_eq!(answer.status(), 201),
                Err(error) if error.is_connect() => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("no receiver accepts connections");
    }

    async fn provide(self: Arc<Self>, provider: usize) {
        let http = client();
        for number in (provider..).step_by(PROVIDERS) {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let began = now_millis() - 3 * HOUR;
            let duration = 90 * MINUTE + i64::try_from(number % 1_000).unwrap();
            let target = number as u64;
            let start = start_event(target, began);
            let stop = stop_event(target, began + duration);
            self.post(&http, number, "start", &start).await;
            self.post(&http, number, "stop", &stop).await;
            let instance = stop["resource_instance_id"].as_str().unwrap().to_owned();
            let mut durations = self.durations.lock().unwrap();
            durations.insert(instance, duration.into());
        }
    }

    fn count(&self) -> usize {
        self.durations.lock().unwrap().len()
    }

    async fn until_more(&self) {
        let before = self.count();
        wait_until("each receiver has answered", PATIENCE, async || {
            self.count() > before + 40
        })
        .await;
    }
}

async fn start(launch: Launch, world: &Landscape, program: &str) -> Program {
    let launch = match package(program) {
        Some(folder) => launch.path(folder.join(program)),
        None => launch,
    };
    let program = launch.start().await.unwrap();
    until_ready(&world.http, &program).await;
    program
}

async fn start_receiver(world: &Landscape, load: &Load) -> Program {
    let receiver = start(world.receiver(), world, RECEIVER).await;
    load.receivers.lock().unwrap().push(receiver.base_url());
    receiver
}

/// As `cf push --strategy rolling` does it: a new instance, and when it is ready, one old less.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_under_load_fails_no_request_and_bills_each_ms_once() {
    let world = Landscape::new("platform").await;
    let load = Arc::new(Load::default());
    let mut receivers = Vec::new();
    let mut workers = Vec::new();
    for _ in 0..2 {
        receivers.push(start_receiver(&world, &load).await);
        workers.push(start(world.worker(), &world, WORKER).await);
    }
    let mut providing: JoinSet<()> = (0..PROVIDERS)
        .map(|provider| Arc::clone(&load).provide(provider))
        .collect();
    for old in 0..2 {
        receivers.push(start_receiver(&world, &load).await);
        load.until_more().await;
        receivers[old].sigterm().unwrap();
        assert_eq!(receivers[old].wait_exit(PROMISE).await.unwrap(), 0);
        let url = receivers[old].base_url();
        load.receivers.lock().unwrap().retain(|known| *known != url);
        workers.push(start(world.worker(), &world, WORKER).await);
        // The first of the old workers does not hear its SIGTERM, and is killed.
        if old == 0 {
            workers[old].freeze().unwrap();
            workers[old].sigterm().unwrap();
            workers[old].kill().unwrap();
        } else {
            workers[old].sigterm().unwrap();
            assert_eq!(workers[old].wait_exit(PROMISE).await.unwrap(), 0);
        }
    }
    load.until_more().await;
    load.is_over.store(true, Ordering::Relaxed);
    while let Some(provider) = providing.join_next().await {
        provider.unwrap();
    }
    let spans = world.spans().await;
    let kept = spans.count_documents(doc! {}).await.unwrap();
    assert_eq!(usize::try_from(kept).unwrap(), load.count());
    world.until_complete(kept).await;
    let abacus = &world.abacus;
    let billed = abacus.duration_sum_by(|usage| usage.target()[5].to_owned());
    assert_eq!(billed, *load.durations.lock().unwrap());
    assert!(abacus.put_aside().is_empty());
    let entries = world.assert_ledger().await;
    assert_eq!(entries as u64, abacus.counted_count());
}
