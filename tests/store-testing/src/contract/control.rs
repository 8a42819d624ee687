//! The control, and the state of the controller.

use std::sync::Arc;

use futures_util::future::join_all;
use sampler_domain::{
    Control, ControllerMemory, ControllerSettings, ControllerTerms, Percent, SamplingControl,
    StartRates,
};
use sampler_store::{ControllerState, KeptControl};

use crate::support::Shared;

fn percent(number: f64) -> Percent {
    Percent::new(number).expect("a percentage")
}

/// Everything is set to something else than the default.
fn control(rate: f64) -> Control {
    let names = ["postgres", "a.b", "$c", ""];
    let resources = names.map(|name| (name.to_owned(), percent(12.5)));
    Control {
        starts: StartRates {
            rate: percent(rate),
            resources: resources.into(),
        },
        sampling: SamplingControl { paused: true },
        controller: ControllerSettings {
            enabled: true,
            target_seconds: 1.5,
            kp: 0.1,
            ki: 0.2,
            kd: 0.3,
        },
    }
}

pub async fn nothing_is_held_back_before_anybody_says_so(store: &Shared) {
    assert_eq!(store.control().await.ok(), Some(KeptControl::default()));
    assert_eq!(store.controller().await.ok(), Some(None));
}

pub async fn control_is_changed_by_whom_has_seen_its_version(store: &Shared) {
    let set = async |rate, version| {
        let set = store.set_control(&control(rate), version).await;
        set.unwrap()
    };
    assert!(!set(1.0, 1).await, "there is no version 1 yet");
    assert!(set(1.0, 0).await);
    assert!(!set(2.0, 0).await);
    assert!(set(3.0, 1).await);
    assert!(!set(4.0, 1).await);
    let kept = KeptControl {
        control: control(3.0),
        version: 2,
    };
    assert_eq!(store.control().await.ok(), Some(kept));
}

pub async fn of_32_changes_of_control_one_wins(store: &Shared) {
    for version in [0, 1] {
        let changes = (0..32).map(|number| {
            let store = Arc::clone(store);
            let control = control(f64::from(number));
            async move { store.set_control(&control, version).await }
        });
        let won = join_all(changes).await.into_iter();
        let won = won.filter(|set| *set.as_ref().unwrap());
        assert_eq!(won.count(), 1);
    }
}

pub async fn the_controller_decides_once_for_each_version(store: &Shared) {
    let state = |rate, version| ControllerState {
        rate: percent(rate),
        terms: ControllerTerms {
            needed_seconds: 1.0,
            proportional: 2.0,
            integral: -3.0,
            derivative: 4.5,
        },
        memory: ControllerMemory {
            integral: 5.0,
            last_error: (version > 1).then_some(-0.5),
            capacity: 6.0,
            rate: Some(percent(rate)),
        },
        version,
    };
    for (rate, version, is_set) in [
        (1.0, 2, false),
        (2.0, 1, true),
        (3.0, 1, false),
        (4.0, 2, true),
    ] {
        let set = store.set_controller(&state(rate, version)).await;
        assert_eq!(set.ok(), Some(is_set), "{rate}");
        if is_set {
            let kept = store.controller().await.unwrap();
            assert_eq!(kept.map(|kept| kept.value), Some(state(rate, version)));
        }
    }
}
