//! What becomes of events that come at the same moment.

use std::future::Future;

use sampler_domain::Refusal;
use sampler_store::{StartOutcome, StopOutcome};
use tokio::task::JoinSet;

use crate::support::{Shared, at, kept, must_start, must_stop, start, stop};

const MINUTE: i64 = 60_000;

/// Runs 64 of `task` at once and returns what they came to.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    task: impl Fn(usize) -> F,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        tasks.spawn(task(number));
    }
    tasks.join_all().await
}

fn count<T: PartialEq>(answers: &[T], answer: &T) -> usize {
    answers.iter().filter(|one| *one == answer).count()
}

pub async fn of_64_starts_of_one_target_one_wins(store: &Shared) {
    let answers = at_once(|number| {
        let (store, event_id) = (store.clone(), format!("start-{number}"));
        // Every other one has no id.
        async move {
            let event_id = (number % 2 == 0).then_some(event_id.as_str());
            start(&*store, event_id, "i", 0).await
        }
    })
    .await;
    assert_eq!(count(&answers, &StartOutcome::Opened), 1, "{answers:?}");
    assert_eq!(
        count(&answers, &StartOutcome::Refused(Refusal::AlreadyOpen)),
        63,
        "{answers:?}"
    );
}

pub async fn of_64_repeats_of_one_start_one_opens(store: &Shared) {
    let answers = at_once(|_| {
        let store = store.clone();
        async move { start(&*store, Some("a"), "i", 0).await }
    })
    .await;
    assert_eq!(count(&answers, &StartOutcome::Opened), 1, "{answers:?}");
    let span = kept(&**store, "a").await.id;
    assert_eq!(
        count(&answers, &StartOutcome::Repeated { span }),
        63,
        "{answers:?}"
    );
}

pub async fn of_64_stops_of_one_span_one_wins(store: &Shared) {
    must_start(&**store, None, "i", 0).await;
    let answers = at_once(|number| {
        let (store, event_id) = (store.clone(), format!("stop-{}", number % 4));
        let millis = i64::try_from(number % 4).expect("below 4");
        async move { stop(&*store, Some(&event_id), "i", millis).await }
    })
    .await;
    assert_eq!(count(&answers, &StopOutcome::Ended), 1, "{answers:?}");
    assert_eq!(count(&answers, &StopOutcome::Repeated), 15, "{answers:?}");
    assert_eq!(
        count(&answers, &StopOutcome::Refused(Refusal::NotOpen)),
        48,
        "{answers:?}"
    );
}

pub async fn of_64_updates_each_start_finds_its_room(store: &Shared) {
    let answers = at_once(|number| {
        let (store, instance) = (store.clone(), format!("instance-{number}"));
        async move {
            let store = &*store;
            let mut answers = vec![start(store, None, &instance, 0).await];
            for update in 1..4 {
                must_stop(store, None, &instance, update).await;
                answers.push(start(store, None, &instance, update).await);
            }
            answers
        }
    })
    .await;
    assert_eq!(count(&answers.concat(), &StartOutcome::Opened), 256);
}

/// An event that shares a command with others gets the answer that it would get alone.
pub async fn of_64_starts_each_has_its_own_answer(store: &Shared) {
    must_start(&**store, Some("kept"), "open", 0).await;
    must_start(&**store, Some("past"), "past", 0).await;
    must_stop(&**store, None, "past", MINUTE).await;
    let answers = at_once(|number| {
        let store = store.clone();
        async move {
            let (own, instance) = (format!("own-{number}"), format!("instance-{number}"));
            let answer = match number % 8 {
                0 => start(&*store, Some("kept"), "open", 0).await,
                // The same id on another target is another event.
                1 => start(&*store, Some("kept"), &instance, 0).await,
                2 => start(&*store, Some(&own), "open", 0).await,
                3 => start(&*store, Some(&own), "past", MINUTE - 1).await,
                4 => start(&*store, Some("past"), "past", 0).await,
                _ => start(&*store, Some(&own), &instance, 0).await,
            };
            (number % 8, answer)
        }
    })
    .await;
    let spans = [
        kept(&**store, "kept").await.id,
        kept(&**store, "past").await.id,
    ];
    for (kind, answer) in answers {
        let expected = match kind {
            0 | 4 => StartOutcome::Repeated {
                span: spans[kind / 4].clone(),
            },
            2 => StartOutcome::Refused(Refusal::AlreadyOpen),
            3 => StartOutcome::Refused(Refusal::Overlaps { until: at(MINUTE) }),
            _ => StartOutcome::Opened,
        };
        assert_eq!(answer, expected, "{kind}");
    }
    for number in (5..64).step_by(8) {
        kept(&**store, &format!("own-{number}")).await;
    }
}

/// The same of stops.
pub async fn of_64_stops_each_has_its_own_answer(store: &Shared) {
    for number in 0..64 {
        let instance = format!("instance-{number}");
        must_start(&**store, None, &instance, 0).await;
    }
    must_start(&**store, None, "past", 0).await;
    must_stop(&**store, Some("kept"), "past", MINUTE).await;
    let answers = at_once(|number| {
        let store = store.clone();
        async move {
            let (own, instance) = (format!("own-{number}"), format!("instance-{number}"));
            let answer = match number % 8 {
                0 => stop(&*store, Some("kept"), "past", MINUTE).await,
                1 => stop(&*store, Some("kept"), &instance, MINUTE).await,
                2 => stop(&*store, Some(&own), "past", MINUTE).await,
                3 => stop(&*store, None, &instance, -1).await,
                4 => stop(&*store, None, &instance, MINUTE).await,
                _ => stop(&*store, Some(&own), &instance, MINUTE).await,
            };
            (number, answer)
        }
    })
    .await;
    for (number, answer) in answers {
        let expected = match number % 8 {
            0 => StopOutcome::Repeated,
            2 => StopOutcome::Refused(Refusal::NotOpen),
            3 => StopOutcome::Refused(Refusal::BeforeStart { start: at(0) }),
            _ => StopOutcome::Ended,
        };
        assert_eq!(answer, expected, "{number}");
    }
}
