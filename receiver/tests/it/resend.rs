//! `POST /v1/usages/{id}/resend`.

use sampler_domain::{Acceptance, Change, Changed, Entry, EntryState, Timestamp};
use sampler_store::Ledger;
use serde_json::json;

use crate::acts::REASON;
use crate::world::{DAY, NOW, World};

impl World {
    pub(crate) async fn usage_in(&self, instance: &str, state: EntryState) -> Entry {
        let (location, _) = self.suspended(instance, "postgres").await;
        let span = self.span_at(&location);
        let at = Timestamp::clamped(NOW);
        let entry = if state == EntryState::Skipped {
            Entry::of_skipped(&span, at).unwrap()
        } else {
            let acceptance = Acceptance {
                at,
                status: Some(202),
                location: None,
            };
            let entry = Entry::of_accepted(&span, acceptance).unwrap();
            Entry { state, ..entry }
        };
        let memory = &self.store.memory;
        memory.write_entry(entry.clone(), DAY).await.unwrap();
        entry
    }

    pub(crate) fn entry(&self, guid: &str) -> Entry {
        let kept = self.store.memory.with(|table| table.entry(guid).cloned());
        kept.unwrap().entry
    }
}

pub(crate) fn path_of(entry: &Entry) -> String {
    format!("/v1/usages/{}/resend", entry.usage_guid)
}

#[tokio::test]
async fn a_usage_that_was_given_up_or_put_aside_is_sent_again() {
    for state in [EntryState::Skipped, EntryState::SetAside] {
        let world = World::new();
        let entry = world.usage_in("1", state).await;
        let body = json!({ "reason": REASON });
        // The clock of the receiver is ahead of the workers' by a day.
        world.clock.set(NOW + DAY);
        let answer = world.act(&path_of(&entry), None, &body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let shown = answer.json();
        assert_eq!(shown["id"], entry.usage_guid);
        assert_eq!(shown["state"], state.name());
        // A worker carries it out, at once whatever the clock of the receiver says.
        let resend = world.entry(&entry.usage_guid).resend.unwrap();
        assert_eq!(resend.acceptance, None);
        assert_eq!(resend.at.as_millis(), NOW + DAY);
        assert_eq!(resend.due_at, entry.planned_at);
        let act = &world.items("/v1/audit").await[0];
        assert_eq!(act["id"], resend.act.to_string());
        assert_eq!(act["act"], "usage.resend");
        assert_eq!(act["subject"], format!("/v1/usages/{}", entry.usage_guid));
        assert_eq!(act["outcome"], "done");
        assert_eq!(act["reason"], REASON);
        assert_eq!(act["before"]["state"], state.name());
        let states = [&act["before"]["resend"], &act["after"]["resend"]];
        assert_eq!(states, [&json!(false), &json!(true)]);
        let of_span = format!("/v1/audit?span={}", entry.span);
        assert_eq!(world.items(&of_span).await.len(), 1);
        // Asked again before that, it is the same resend.
        let answer = world.act(&path_of(&entry), None, &body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let again = world.entry(&entry.usage_guid).resend.unwrap();
        assert_eq!(again.act, resend.act);
    }
}

#[tokio::test]
async fn what_abacus_has_is_not_sent_again_and_what_nobody_knows_is_not_found() {
    let world = World::new();
    let body = json!({ "reason": REASON });
    for (instance, state) in [("1", EntryState::Accepted), ("2", EntryState::Counted)] {
        let entry = world.usage_in(instance, state).await;
        let answer = world.act(&path_of(&entry), None, &body).await;
        answer.problem(409, "not-resendable");
        assert_eq!(world.entry(&entry.usage_guid), entry);
    }
    // What is refused stands on its span, and is listed there.
    let (location, _) = world.suspended("refused", "postgres").await;
    let refuses = async || {
        let usage = &world.items(&format!("{location}/usages")).await[0];
        assert_eq!(usage["state"], "refused", "{usage}");
        let path = format!("/v1/usages/{}/resend", usage["id"].as_str().unwrap());
        let answer = world.act(&path, None, &body).await;
        answer.problem(409, "not-resendable");
    };
    refuses().await;
    // Its span is resumed, and the usage is listed as refused until it has another answer.
    let span = world.span_at(&location);
    let suspension = span.processing.suspended.unwrap();
    let due_at = suspension.since;
    let resumed = Change::Resume { suspension, due_at };
    let memory = &world.store.memory;
    let changed = memory.with(|table| table.change(&span, &resumed));
    assert_eq!(changed, Changed::Made);
    refuses().await;
    let long = "x".repeat(5_000);
    for id in ["unknown", "%ff", "%00", "%20", "$where", &long] {
        let path = format!("/v1/usages/{id}/resend");
        let answer = world.act(&path, None, &body).await;
        answer.problem(404, "no-such-usage");
    }
    assert_eq!(world.trail_of_acts().await, [[""; 3]; 0]);
}
