//! `up --feed`: a stand-in foundation whose owners create, scale and delete, and the feed that meters it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sampler_testkit::cloud_foundry::{CLIENT, StandInCloudFoundry, World};
use sampler_testkit::program::{CLI, Launch};
use sampler_testkit::rng::Rng;
use sampler_testkit::{Program, now_millis, target_dir};
use sampler_verify::words::counted;

const HOUR: i64 = 3_600_000;
/// How old an event of the stand-in is before it is read.
const MIN_AGE: &str = "2s";
/// How often an owner does something.
const PACE: Duration = Duration::from_secs(3);
/// Apps and service instances that come and go.
const APPS: usize = 8;
const SERVICES: usize = 6;
const SPACES: [(&str, &str); 2] = [("northwind", "production"), ("adventure-works", "staging")];
const OFFERINGS: [&str; 2] = ["p-mysql", "redis"];
const PLANS: [&str; 2] = ["small", "large"];

/// Runs until it is stopped.
pub(super) async fn run(receiver: &str) -> Result<()> {
    let platform = StandInCloudFoundry::start().await?;
    let mut owners = Owners::new(&mut platform.world());
    let feed = start(&platform, receiver).await?;
    println!(
        "\nfoundation  {} (a stand-in), read by `sampler feed cloud-foundry`\n\
         console     {receiver}/console, resource linux-container, p-mysql or redis\n",
        platform.api()
    );
    let mut shown = 0;
    loop {
        tokio::time::sleep(PACE).await;
        let done = owners.act(&mut platform.world(), now_millis());
        println!("{done}");
        let lines = feed.lines();
        for line in &lines[shown..] {
            println!("feed: {line}");
        }
        shown = lines.len();
        ensure!(feed.exit_code().is_none(), "the feed has ended");
    }
}

async fn start(platform: &StandInCloudFoundry, receiver: &str) -> Result<Program> {
    let folder = target_dir().join("up").join("feed");
    // The stand-in begins again each time, and so must what is known of it.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context("removing the state of before")?;
    }
    std::fs::create_dir_all(&folder).context("making the folder")?;
    let state = folder.join("feed.json");
    let (api, state) = (platform.api(), state.to_string_lossy().into_owned());
    let mut launch = Launch::new(CLI)
        .env("SAMPLER_CF_CLIENT_SECRET", CLIENT.1)
        .log_file(folder.join("feed.log"));
    for argument in ["feed", "cloud-foundry", "--replay"] {
        launch = launch.arg(argument);
    }
    for (option, value) in [
        ("--cf-api", api.as_str()),
        ("--cf-client-id", CLIENT.0),
        ("--url", receiver),
        ("--state", &state),
        ("--min-age", MIN_AGE),
        ("--metrics-port", "0"),
    ] {
        launch = launch.arg(option).arg(value);
    }
    launch.spawn().await
}

/// Who owns apps and services.
struct Owners {
    rng: Rng,
    /// What runs, and what was made so far.
    apps: Vec<String>,
    services: Vec<String>,
    made: u64,
}

impl Owners {
    fn new(world: &mut World) -> Self {
        for (organization, space) in SPACES {
            world.space(organization, space);
        }
        let mut owners = Self {
            rng: Rng::new(7, 0),
            apps: Vec::new(),
            services: Vec::new(),
            made: 0,
        };
        for number in 0..4 {
            let at = now_millis() - (6 - number) * HOUR;
            owners.push(world, at);
            owners.create(world, at);
        }
        owners
    }

    /// The number of one of these, if there are any.
    fn one_of(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.rng.below(count))
    }

    fn act(&mut self, world: &mut World, now: i64) -> String {
        let (app, service) = (
            self.one_of(self.apps.len()),
            self.one_of(self.services.len()),
        );
        match (self.rng.below(6), app, service) {
            (0, Some(index), _) => {
                let guid = self.apps.swap_remove(index);
                world.stop(&guid, now);
                format!("an owner stops {guid}")
            }
            (1, _, Some(index)) => {
                let guid = self.services.swap_remove(index);
                world.delete(&guid, now);
                format!("an owner deletes {guid}")
            }
            (2, _, Some(index)) => {
                let (guid, plan) = (self.services[index].clone(), *self.rng.pick(&PLANS));
                world.change_plan(&guid, plan, now);
                format!("an owner changes {guid} to {plan}")
            }
            (3, _, _) if self.services.len() < SERVICES => self.create(world, now),
            (_, Some(index), _) if self.apps.len() >= APPS / 2 => {
                let guid = self.apps[index].clone();
                let instances = self.rng.between(1, 5);
                world.scale(&guid, 512, instances, now);
                format!(
                    "an owner scales {guid} to {}",
                    counted(instances, "instance")
                )
            }
            _ => self.push(world, now),
        }
    }

    fn push(&mut self, world: &mut World, now: i64) -> String {
        self.made += 1;
        let (guid, app) = (format!("web-{}", self.made), format!("app-{}", self.made));
        let (_, space) = *self.rng.pick(&SPACES);
        world.start(&guid, &app, space, (512, 1), now);
        self.apps.push(guid);
        format!("an owner pushes {app} to {space}")
    }

    fn create(&mut self, world: &mut World, now: i64) -> String {
        self.made += 1;
        let guid = format!("instance-{}", self.made);
        let (_, space) = *self.rng.pick(&SPACES);
        let (offering, plan) = (*self.rng.pick(&OFFERINGS), *self.rng.pick(&PLANS));
        world.create(&guid, space, offering, plan, now);
        self.services.push(guid.clone());
        format!("an owner creates {guid}: {offering}/{plan} in {space}")
    }
}
