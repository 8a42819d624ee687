//! `images`: builds the container images without a container engine, starts everything from them, and
//! replays the example.
//!
//! buildah builds and runs with `--isolation chroot`, which needs no control groups: containers share
//! the network and the processes of the machine. The images that the Dockerfile builds on come from a
//! registry; here they are made of Debian's packages and this machine's toolchain.

mod engine;
mod service;

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mongodb::Client;
use mongodb::bson::doc;
use sampler_testkit::program::until_ready;
use sampler_testkit::{now_millis, within, workspace_dir};

use engine::Engine;
use service::Service;

/// How long a service may take until it can be used, and the replay until it is billed.
const LIMIT: Duration = Duration::from_mins(2);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// What is replayed, as the container sees it.
const EVENTS: &str = "/data/events.ndjson";

/// Runs the command.
pub(crate) async fn run() -> Result<()> {
    let engine = Engine::new()?;
    let tried = try_images(&engine).await;
    let cleaned = engine.clean_up();
    tried.and(cleaned)
}

/// Builds the images that are published, and writes each as an archive of OCI's layout.
pub(crate) fn export(folder: &Path, version: &str) -> Result<()> {
    let engine = Engine::new()?;
    engine.build_all()?;
    for image in ["receiver", "worker", "cli"] {
        engine.export(image, folder, version)?;
    }
    engine.clean_up()
}

async fn try_images(engine: &Engine) -> Result<()> {
    engine.build_all()?;
    let mut services = Vec::new();
    let replayed = replay(engine, &mut services).await;
    // The last one first, as they depend on each other.
    while let Some(service) = services.pop() {
        let stopped = service.stop().await;
        if replayed.is_ok() {
            stopped?;
        }
    }
    replayed?;
    eprintln!("==> images: the example is billed to the millisecond, and everything has stopped");
    Ok(())
}

/// Starts the four services, sends the example, and waits until all of it is billed.
async fn replay(engine: &Engine, services: &mut Vec<Service>) -> Result<()> {
    let [mongo, abacus, receiver, worker] =
        [free_port()?, free_port()?, free_port()?, free_port()?];
    services.push(Service::start(
        engine,
        "mongo",
        &[],
        &["--port", &mongo.to_string()],
    )?);
    initiate(mongo).await?;
    let host = ("HOST", "127.0.0.1".to_owned());
    let environment = [host.clone(), ("PORT", abacus.to_string())];
    services.push(Service::start(engine, "stand-in", &environment, &[])?);
    for (name, port) in [("receiver", receiver), ("worker", worker)] {
        let address = format!("http://127.0.0.1:{abacus}");
        let environment = [
            host.clone(),
            ("PORT", port.to_string()),
            (
                "DB_URI",
                format!("mongodb://127.0.0.1:{mongo}/sampler?replicaSet=rs0"),
            ),
            ("COLLECTOR_URL", address.clone()),
            ("PROVISIONING_URL", address),
            ("SAMPLER_DIMENSION", "hour".to_owned()),
        ];
        services.push(Service::start(engine, name, &environment, &[])?);
    }
    for port in [receiver, worker] {
        until_ready(&format!("http://127.0.0.1:{port}"), LIMIT).await?;
    }
    let (url, now) = (
        format!("http://127.0.0.1:{receiver}"),
        now_millis().to_string(),
    );
    let common = [EVENTS, "--url", &url, "--now", &now];
    let send = [&["events", "send", "--no-journal"], common.as_slice()].concat();
    ensure!(cli(engine, &send)?.0, "an event was refused");
    let verify = [
        &["verify", "--granularity", "hour", "--strict"],
        common.as_slice(),
    ]
    .concat();
    let begin = Instant::now();
    loop {
        let (fits, table) = cli(engine, &verify)?;
        if fits {
            println!("{table}");
            return Ok(());
        }
        ensure!(
            begin.elapsed() < LIMIT,
            "what was billed is not what was used:\n{table}"
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs the command line from its image, with the examples. Returns whether it succeeded, and what it
/// printed.
fn cli(engine: &Engine, words: &[&str]) -> Result<(bool, String)> {
    let examples = workspace_dir().join("examples");
    let volume = format!("{}:/data:ro", examples.display());
    let container = engine.container("cli")?;
    let mut command = engine.buildah(&["run", "--isolation", "chroot", "--volume", &volume]);
    command.args([&container, "--", "/sampler"]).args(words);
    let output = command.output().context("running the command line")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?.port())
}

/// Makes the server a replica set of one member, as compose.yaml does, and waits for a primary.
async fn initiate(port: u16) -> Result<()> {
    let uri = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
    let client = Client::with_uri_str(uri).await?;
    let admin = client.database("admin");
    let members = [doc! { "_id": 0, "host": format!("127.0.0.1:{port}") }];
    let set = doc! { "replSetInitiate": { "_id": "rs0", "members": members.to_vec() } };
    admin.run_command(set).await.context("initiating the set")?;
    within("a primary", LIMIT, async || {
        let hello = admin.run_command(doc! { "hello": 1 }).await;
        hello.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or_default())
    })
    .await
}
