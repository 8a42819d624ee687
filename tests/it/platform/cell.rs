//! A stand-in for what runs instances: it starts them by their command lines, with the environment
//! that Cloud Foundry gives, asks them how they are, and stops them as it does.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Client;
use sampler_testkit::manifest::App;
use sampler_testkit::program::{Launch, binary};
use sampler_testkit::{Program, wait_until, workspace_dir};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

use super::router::Backend;
use crate::landscape::{PATIENCE, client};

/// Names a folder of packages, as `cargo xtask package` makes it; without it the programs that were
/// built for the tests are laid out in the same way.
const PACKAGES_VARIABLE: &str = "SAMPLER_PACKAGE_DIR";

/// How often an instance is asked. Cloud Foundry asks every two seconds at first.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// How long an instance has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// How an instance learns of bound services.
#[derive(Clone, Copy, Debug)]
pub(super) enum Delivery {
    /// `VCAP_SERVICES`.
    Variable,
    /// `VCAP_SERVICES_FILE_PATH`.
    File,
    /// `SERVICE_BINDING_ROOT`.
    Folder,
}

/// One machine that runs all instances.
pub(super) struct Cell {
    packages: PathBuf,
    /// What the platform writes for its instances, and packages where none are given.
    files: TempDir,
    database_uri: String,
    http: Client,
}

/// A running instance.
pub(super) struct Instance {
    pub(super) program: Program,
    pub(super) index: usize,
    pub(super) backend: Backend,
    /// Answers that were not as they must be for an instance that lives.
    failures: Arc<Mutex<Vec<String>>>,
    asking: JoinHandle<()>,
}

/// How an instance has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with this exit code.
    Exit(i32),
    /// It was killed.
    Killed,
}

impl Cell {
    pub(super) async fn new(apps: &[App], database_uri: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let packages = match std::env::var_os(PACKAGES_VARIABLE) {
            Some(folder) => workspace_dir().join(folder),
            None => lay_out(apps, files.path()).await,
        };
        Self {
            packages,
            files,
            database_uri: database_uri.to_owned(),
            http: client(),
        }
    }

    pub(super) fn package(&self, app: &App) -> PathBuf {
        self.packages.join(app.package())
    }

    /// Starts an instance of an app and waits until it is ready, as a deployment does.
    pub(super) async fn start(
        &self,
        app: &App,
        version: &str,
        index: usize,
        delivery: Delivery,
    ) -> Instance {
        let port = free_port();
        let id = format!("{}-{version}-{index}", app.name);
        let mut launch = Launch::command_line(&app.name, &app.command, self.package(app))
            .env("PORT", port.to_string())
            .env("VCAP_APPLICATION", application(app, version).to_string())
            .env("CF_INSTANCE_INDEX", index.to_string())
            .env("CF_INSTANCE_GUID", &id);
        for (name, value) in app.environment() {
            launch = launch.env(name, value);
        }
        let (name, value) = self.bind(app, &id, delivery);
        let program = launch.env(name, value).spawn().await.unwrap();
        let backend = Backend {
            url: format!("http://127.0.0.1:{port}"),
            ready: Arc::default(),
            answered: Arc::default(),
        };
        let failures = Arc::default();
        let asking = tokio::spawn(ask(
            self.http.clone(),
            app.clone(),
            backend.clone(),
            Arc::clone(&failures),
        ));
        let instance = Instance {
            program,
            index,
            backend,
            failures,
            asking,
        };
        wait_until(&format!("{id} is ready"), PATIENCE, async || {
            let code = instance.program.exit_code();
            assert_eq!(code, None, "{id} has ended:\n{}", instance.output());
            instance.backend.ready.load(Ordering::Acquire)
        })
        .await;
        instance
    }

    /// The variable that tells an instance what is bound.
    fn bind(&self, app: &App, id: &str, delivery: Delivery) -> (&'static str, String) {
        let uri = &self.database_uri;
        let service = |name: &String| {
            json!({ "name": name, "instance_name": name, "binding_name": null, "tags": ["mongodb"],
                "credentials": { "uri": uri } })
        };
        let services: Vec<Value> = app.services.iter().map(service).collect();
        let services = json!({ "mongodb": services }).to_string();
        let path = self.files.path().join(id);
        match delivery {
            Delivery::Variable => ("VCAP_SERVICES", services),
            Delivery::File => {
                std::fs::write(&path, services).unwrap();
                ("VCAP_SERVICES_FILE_PATH", path.display().to_string())
            }
            Delivery::Folder => {
                for name in &app.services {
                    let binding = path.join(name);
                    std::fs::create_dir_all(&binding).unwrap();
                    for (entry, text) in
                        [("type", "mongodb"), ("instance-name", name), ("uri", uri)]
                    {
                        std::fs::write(binding.join(entry), text).unwrap();
                    }
                }
                ("SERVICE_BINDING_ROOT", path.display().to_string())
            }
        }
    }
}

/// The programs of the tests in the folders of packages.
async fn lay_out(apps: &[App], files: &Path) -> PathBuf {
    let packages = files.join("packages");
    for app in apps {
        let package = packages.join(app.package());
        std::fs::create_dir_all(&package).unwrap();
        let program = binary(&app.name).await.unwrap();
        symlink(program, package.join(&app.name)).unwrap();
    }
    packages
}

/// What the platform says of an app.
fn application(app: &App, version: &str) -> Value {
    json!({
        "application_id": format!("id-of-{}", app.name), "application_name": app.name,
        "application_version": version, "name": app.name, "version": version,
        "organization_name": "metering", "space_name": "production", "process_type": "web",
        "limits": { "fds": 16384, "mem": 128, "disk": 128 },
    })
}

/// A free port, below those that the system gives to connections of clients.
fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = u16::try_from(std::process::id() % 600).unwrap() * 20;
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + offset.wrapping_add(next) % COUNT;
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Asks an instance for as long as it lives. One that has answered once must go on to answer.
async fn ask(http: Client, app: App, backend: Backend, failures: Arc<Mutex<Vec<String>>>) {
    let status = async |path: &str, seconds: u64| {
        let request = http.get(format!("{}{path}", backend.url)).send();
        match timeout(Duration::from_secs(seconds), request).await {
            Ok(Ok(answer)) => answer.status().to_string(),
            Ok(Err(error)) => format!("{error:?}"),
            Err(_) => format!("no answer in {seconds} s"),
        }
    };
    let mut lives = false;
    let mut interval = interval(ASK_INTERVAL);
    loop {
        interval.tick().await;
        let path = &app.health_check_http_endpoint;
        let answer = status(path, app.health_check_invocation_timeout).await;
        let live = answer == "200 OK";
        if lives && !live {
            failures.lock().unwrap().push(format!("{path}: {answer}"));
        }
        lives |= live;
        let path = &app.readiness_health_check_http_endpoint;
        let seconds = app.readiness_health_check_invocation_timeout;
        let ready = lives && status(path, seconds).await == "200 OK";
        backend.ready.store(ready, Ordering::Release);
    }
}

impl Instance {
    /// Stops asking, sends SIGTERM, and kills what is still there ten seconds later. The router is
    /// not told: it finds out. An instance that is `deaf` stands still, and hears nothing.
    pub(super) async fn stop(&self, deaf: bool) -> End {
        self.asking.abort();
        let failures = self.failures.lock().unwrap().clone();
        assert!(failures.is_empty(), "{}: {failures:?}", self.output());
        if deaf {
            self.program.freeze().unwrap();
        }
        self.program.sigterm().unwrap();
        if let Ok(code) = self.program.wait_exit(GRACE).await {
            return End::Exit(code);
        }
        self.program.kill().unwrap();
        End::Killed
    }

    pub(super) fn output(&self) -> String {
        self.program.lines().join("\n")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.asking.abort();
    }
}
