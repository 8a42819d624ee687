//! The platform, played: what `cf push` makes of `deploy/manifest.yml`, and what becomes of requests
//! and bills while it replaces every instance.

mod cell;
mod load;
mod router;

use bson::doc;
use sampler_testkit::build::stop_event;
use sampler_testkit::manifest::{App, Manifest, Variables, example_variables, manifest};
use sampler_testkit::now_millis;
use sampler_testkit::uaa::{Discovery, StandInUaa};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::landscape::{Landscape, PATIENCE};
use cell::{Cell, Delivery, End, Instance};
use load::Load;
use router::{REQUEST_ID, Router, trace_id};

const WORKER_TOKEN: &str = "token.of.the-worker";

/// The programs that are replaced, and those that replace them. They may be the same build: what
/// tells them apart for the platform is the version of the app, and for the store nothing does.
const OLD: &str = "version-1";
const NEW: &str = "version-2";

fn set(variables: &mut Variables, name: &str, value: impl Into<Value>) {
    let known = variables.insert(name.to_owned(), value.into());
    assert!(known.is_some(), "the example has no {name}");
}

fn apps(manifest: &Manifest) -> (&App, &App) {
    let app = |name| manifest.app(name).unwrap();
    (app("sampler-receiver"), app("sampler-worker"))
}

/// The example with addresses filled in has valid settings, and apps
/// that accept a request only with a token, survive the loss of a machine and are looked at by HTTP.
#[tokio::test]
async fn what_is_pushed_is_what_the_programs_take() {
    let manifest = manifest(&example_variables().unwrap()).unwrap();
    let cell = Cell::new(&manifest.applications, "mongodb://u:p@h/db").await;
    let (receiver, worker) = apps(&manifest);
    assert!(!receiver.routes.is_empty() && worker.no_route);
    for app in [receiver, worker] {
        let check = format!("{} --check-config", app.command);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &check]).current_dir(cell.package(app));
        shell.env_clear().envs(app.environment());
        let checked = shell.output().await.unwrap();
        let errors = String::from_utf8(checked.stderr).unwrap();
        assert!(checked.status.success(), "{}: {errors}", app.name);
        // A package that was given brings along what starts it without a manifest.
        if let Ok(procfile) = std::fs::read_to_string(cell.package(app).join("Procfile")) {
            assert_eq!(procfile, format!("web: {}\n", app.command));
        }
        assert_eq!(app.env["SECURED"], "true");
        assert!(app.instances >= 2);
        assert_eq!((app.stack.as_str(), app.services.len()), ("cflinuxfs4", 1));
        assert_eq!(app.buildpacks, ["binary_buildpack"]);
        assert_eq!(app.health_check_type, "http");
        assert_eq!(app.readiness_health_check_type, "http");
        assert_eq!(app.metadata.labels["product"], "sampler");
        for value in app.env.values() {
            assert!(value.is_string(), "{value}: an environment holds texts");
        }
    }
}

/// The world around the apps, and the manifest with its addresses.
struct World {
    landscape: Landscape,
    uaa: StandInUaa,
    manifest: Manifest,
    cell: Cell,
    router: Router,
}

impl World {
    async fn new() -> Self {
        let landscape = Landscape::new("platform").await;
        let uaa = StandInUaa::start(Discovery::Root).await.unwrap();
        uaa.add_client("a-receiver", "hush", &["abacus.usage.write"]);
        uaa.add_client("a-worker", "hush", &["abacus.usage.sampler.write"]);
        uaa.give_out(WORKER_TOKEN);
        landscape.abacus.set_bearer(Some(WORKER_TOKEN.to_owned()));
        let mut variables = example_variables().unwrap();
        set(&mut variables, "collector_url", landscape.abacus.base_url());
        set(
            &mut variables,
            "provisioning_url",
            landscape.abacus.base_url(),
        );
        set(&mut variables, "auth_server", uaa.base_url());
        for app in ["receiver", "worker"] {
            set(
                &mut variables,
                &format!("{app}_client_id"),
                format!("a-{app}"),
            );
            set(&mut variables, &format!("{app}_client_secret"), "hush");
        }
        set(&mut variables, "dimension", "hour");
        let manifest = manifest(&variables).unwrap();
        let cell = Cell::new(&manifest.applications, landscape.database.uri()).await;
        let router = Router::start().await;
        Self {
            landscape,
            uaa,
            manifest,
            cell,
            router,
        }
    }

    async fn start(&self, app: &App, version: &str, index: usize, delivery: Delivery) -> Instance {
        let instance = self.cell.start(app, version, index, delivery).await;
        if !app.no_route {
            self.router.add(instance.backend.clone());
        }
        instance
    }

    async fn push(&self, app: &App, delivery: Delivery) -> Vec<Instance> {
        let mut instances = Vec::new();
        for index in 0..app.instances {
            instances.push(self.start(app, OLD, index, delivery).await);
        }
        instances
    }

    /// `cf push --strategy rolling`: a new instance, and when it is ready, one old less. The first
    /// `deaf` of the old ones do not hear that they shall stop.
    async fn roll(
        &self,
        app: &App,
        old: &[Instance],
        delivery: Delivery,
        deaf: usize,
    ) -> (Vec<Instance>, Vec<End>) {
        let (mut new, mut ends) = (Vec::new(), Vec::new());
        for instance in old {
            new.push(self.start(app, NEW, instance.index, delivery).await);
            self.router.until_all_answer().await;
            ends.push(instance.stop(instance.index < deaf).await);
            self.router.remove(&instance.backend.url);
        }
        (new, ends)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_under_load_fails_no_request_and_bills_each_ms_once() {
    let world = World::new().await;
    let (receiver, worker) = apps(&world.manifest);
    let receivers = world.push(receiver, Delivery::Variable).await;
    let workers = world.push(worker, Delivery::Folder).await;
    let token = world.uaa.token(&["abacus.sampler.write"]);
    let load = Load::start(world.router.url(), &token);

    // The first of the old workers does not hear its SIGTERM, and so meets the SIGKILL.
    let (rolled, rolled_workers) = tokio::join!(
        world.roll(receiver, &receivers, Delivery::File, 0),
        world.roll(worker, &workers, Delivery::File, 1),
    );
    let (new_receivers, ends) = rolled;
    assert_eq!(ends, vec![End::Exit(0); receiver.instances]);
    let (_new_workers, ends) = rolled_workers;
    assert_eq!((&ends[0], &ends[1]), (&End::Killed, &End::Exit(0)));
    world.router.until_all_answer().await;
    let sent = load.stop().await;
    assert_eq!(sent.failures, Vec::<String>::new());

    let spans = world.landscape.spans().await;
    let kept = spans.count_documents(doc! {}).await.unwrap();
    assert_eq!(usize::try_from(kept).unwrap(), sent.durations.len());
    world.landscape.until_complete(kept).await;
    let abacus = &world.landscape.abacus;
    let billed = abacus.duration_sum_by(|usage| usage.target()[5].to_owned());
    assert_eq!(billed, sent.durations);
    assert!(abacus.put_aside().is_empty());
    tells_who_and_for_whom(&world, &token, &new_receivers).await;
}

/// A request that is refused is found in the log of the instance that got it, by the ids of the
/// router.
async fn tells_who_and_for_whom(world: &World, token: &str, receivers: &[Instance]) {
    let url = format!("{}/v1/events/stop", world.router.url());
    let unknown = stop_event(u64::MAX, now_millis());
    let request = world.landscape.http.post(url).json(&unknown);
    let answer = request.bearer_auth(token).send().await.unwrap();
    assert_eq!(answer.status(), 422);
    let id = answer.headers()[REQUEST_ID].to_str().unwrap().to_owned();
    let turn = u64::from_str_radix(id.rsplit('-').next().unwrap(), 16).unwrap();
    let find = || {
        let line = |instance: &Instance| {
            let refused = instance.program.logs_of("refused");
            let line = refused.into_iter().find(|line| line["request_id"] == id)?;
            Some((instance.index, line))
        };
        receivers.iter().find_map(line)
    };
    sampler_testkit::wait_until("the line is there", PATIENCE, async || find().is_some()).await;
    let (index, line) = find().unwrap();
    let expected = json!({
        "trace_id": trace_id(turn), "cloudfoundry.app.name": "sampler-receiver",
        "cloudfoundry.space.name": "production", "cloudfoundry.app.instance.id": index.to_string(),
        "service.instance.id": format!("sampler-receiver-{NEW}-{index}"),
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&line[name], value, "{name} in {line}");
    }
    for instance in receivers {
        let starting = &instance.program.logs_of("starting")[0];
        assert_eq!(starting["cloudfoundry.app.version"], NEW, "{starting}");
    }
}
