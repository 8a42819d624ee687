use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sampler_domain::{
    ControllerMemory, ControllerSettings, ControllerTerms, SamplingControl, StartRates, Timestamp,
};
use sampler_service::telemetry::{self, LogFormat, LogOptions};
use sampler_store_testing::faulty::{Fault, FaultyStore};
use sampler_store_testing::memory::MemoryStore;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A store whose control document cannot be read while it is `broken`, and nothing while it is `away`.
struct World {
    memory: Arc<MemoryStore>,
    broken: Arc<AtomicBool>,
    away: Arc<AtomicBool>,
    steering: Arc<Steering>,
}

fn world() -> World {
    let began = Instant::now();
    let now = move || {
        let millis = i64::try_from(began.elapsed().as_millis()).unwrap();
        Timestamp::clamped(1_773_144_000_000 + millis)
    };
    let memory = Arc::new(MemoryStore::new(now));
    let (broken, away) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (is_broken, is_away) = (Arc::clone(&broken), Arc::clone(&away));
    let store = FaultyStore::new(Arc::clone(&memory), move |method: &str, _| {
        let error = if is_away.load(Ordering::Relaxed) {
            StoreError::Unavailable("nobody answers".into())
        } else if method == "control" && is_broken.load(Ordering::Relaxed) {
            StoreError::Refused("it is not a document".into())
        } else {
            return None;
        };
        Some(Fault::NotDone(error))
    });
    World {
        memory,
        broken,
        away,
        steering: Steering::new(store),
    }
}

fn percent(number: f64) -> Percent {
    Percent::new(number).unwrap()
}

fn control() -> Control {
    Control {
        starts: StartRates {
            rate: percent(50.0),
            resources: [("postgres".to_owned(), percent(10.0))].into(),
        },
        sampling: SamplingControl { paused: true },
        controller: ControllerSettings {
            enabled: true,
            ..ControllerSettings::default()
        },
    }
}

fn state(rate: f64, version: i64) -> ControllerState {
    ControllerState {
        rate: percent(rate),
        terms: ControllerTerms::default(),
        memory: ControllerMemory::default(),
        version,
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_followed_within_five_seconds_and_stays_while_it_cannot_be_read() {
    let world = world();
    let steering = &world.steering;
    let stop = CancellationToken::new();
    let following = {
        let (steering, stop) = (Arc::clone(steering), stop.clone());
        tokio::spawn(async move { steering.follow(FOLLOW_INTERVAL, &stop).await })
    };
    assert_eq!(steering.admission_rate(), Percent::ALL);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.memory.set_control(&control(), 0).await.unwrap());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(steering.is_sampling_paused());
    let postgres = Id::from_store("postgres");
    assert_eq!(steering.start_rate_of(&postgres).get(), 5.0);
    assert_eq!(steering.admission_rate().get(), 50.0);
    world.broken.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(steering.is_sampling_paused());
    stop.cancel();
    following.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_never_readable_holds_nothing_back() {
    let world = world();
    let steering = &world.steering;
    world.broken.store(true, Ordering::Relaxed);
    assert!(!steering.is_known());
    steering.poll().await;
    assert!(steering.is_known() && !steering.is_sampling_paused());
    assert_eq!(steering.admission_rate(), Percent::ALL);
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_the_controller_multiplies_while_it_runs() {
    let world = world();
    let steering = &world.steering;
    assert!(world.memory.set_controller(&state(20.0, 1)).await.unwrap());
    steering.poll().await;
    assert_eq!(steering.admission_rate(), Percent::ALL, "it is off");
    assert!(world.memory.set_control(&control(), 0).await.unwrap());
    steering.poll().await;
    assert_eq!(steering.admission_rate().get(), 10.0);
    // No worker keeps it up any more.
    tokio::time::sleep(Duration::from_secs(301)).await;
    steering.poll().await;
    assert_eq!(steering.admission_rate().get(), 50.0);
    assert!(world.memory.set_controller(&state(0.0, 2)).await.unwrap());
    steering.poll().await;
    assert_eq!(steering.admission_rate(), Percent::NONE);
    let running = "\nsampler_controller_running 1\n";
    let terms = "\nsampler_controller_needed_seconds 0\n";
    let shown = measured(steering);
    assert!(shown.contains(running) && shown.contains(terms), "{shown}");
    let mut wrong = control();
    wrong.controller.target_seconds = 0.0;
    assert!(world.memory.set_control(&wrong, 1).await.unwrap());
    steering.poll().await;
    assert_eq!(steering.admission_rate().get(), 50.0, "it turns itself off");
    let (shown, off) = (measured(steering), running.replace('1', "0"));
    assert!(shown.contains(&off) && !shown.contains(terms), "{shown}");
}

/// The metrics, as text.
fn measured(steering: &Steering) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (now, month) = (
        Timestamp::clamped(0),
        MonthClose {
            month_slack: 0,
            stop_grace: 0,
        },
    );
    ::metrics::with_local_recorder(&recorder, || steering.measure(now, month));
    recorder.handle().render()
}

/// How often the log has told of a failure with this code.
fn lines(counted: &PrometheusHandle, code: &str) -> u32 {
    let shown = counted.render();
    let sample = format!("code=\"{code}\"}} ");
    let found = shown.lines().find_map(|line| line.split_once(&sample));
    found.map_or(0, |(_, count)| count.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_is_told_of_once_a_minute() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (_counting, counts) = (
        ::metrics::set_default_local_recorder(&recorder),
        recorder.handle(),
    );
    let options = LogOptions {
        format: LogFormat::Json,
        level: "warn".to_owned(),
    };
    let log = telemetry::subscriber(&options, None, std::io::sink).unwrap();
    let _logging = tracing::subscriber::set_default(log);
    let world = world();
    let steering = &world.steering;
    steering.poll().await;
    assert_eq!(lines(&counts, "steering.not_read"), 0);
    world.away.store(true, Ordering::Relaxed);
    let stop = CancellationToken::new();
    let following = steering.follow(FOLLOW_INTERVAL, &stop);
    let watching = async {
        // The first failure is told at once.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let codes = ["control.not_read", "steering.not_read"];
        assert_eq!(codes.map(|code| lines(&counts, code)), [1, 1]);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(codes.map(|code| lines(&counts, code)), [11, 11]);
        stop.cancel();
    };
    tokio::join!(following, watching);
}
