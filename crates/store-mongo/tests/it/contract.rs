//! The contract that both stores pass; a part of it also on a server that forbids to search a collection without
//! an index (`notablescan`).

use std::sync::Arc;

use bson::doc;
use sampler_domain::{Granularities, Granularity, Policy};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::contract;
use sampler_store_testing::support::{Shared, at};
use sampler_testkit::mongod::{Options, ReplicaSet};

use crate::support::{options_of, store_and_spans};

async fn store() -> Shared {
    Arc::new(store_and_spans("contract").await.0)
}

sampler_store_testing::store_contract_tests!(store());

async fn store_on(set: &ReplicaSet, database: &str) -> MongoStore {
    // Names of databases are short.
    let options = options_of(set.uri(), &database[..database.len().min(40)]);
    let store = MongoStore::connect(options).await.unwrap();
    store.migrate().await.unwrap();
    store
}

macro_rules! cases {
    ($set:ident: $($case:ident)*) => {
        $(
            let shared: Shared = Arc::new(store_on(&$set, stringify!($case)).await);
            contract::$case(&shared).await;
        )*
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_where_scans_are_forbidden() {
    let set = ReplicaSet::start(Options::single()).await.unwrap();
    let forbid = doc! { "setParameter": 1, "notablescan": true };
    set.command(0, forbid).await.unwrap();
    let first = store_on(&set, "format").await;
    assert!(first.has_format().await.unwrap());
    let policy = Policy {
        granularities: Granularities::all(Granularity::Hour),
        stop_grace: 0,
    };
    first.take_over(&policy, at(0)).await.unwrap();
    cases!(set:
        the_backlog_is_what_is_due_and_what_waits_after_a_failure
        a_closing_month_has_left_what_is_not_sampled_of_it
        what_was_counted_is_told_to_all
        the_rates_of_live_workers_add_up
        the_span_that_is_suspended_for_longest_is_probed
        spans_of_a_cause_resume_in_batches
        causes_are_listed_with_those_that_have_the_most_spans_first
        a_change_of_an_operator_is_made_for_the_version_that_was_read
        of_64_updates_each_start_finds_its_room
        of_64_stops_each_has_its_own_answer
        control_is_changed_by_whom_has_seen_its_version
        the_controller_decides_once_for_each_version
        spans_that_have_not_ended_are_the_open_one_and_the_next_to_end
        an_update_is_a_stop_and_a_start_at_one_moment
        a_repeated_stop_is_recognised_at_any_later_time
        entries_come_page_by_page_in_the_order_of_acceptance
        entries_add_up_from_the_time_of_the_first_that_is_kept
        a_list_holds_what_its_query_asks_for
        the_trail_holds_what_its_query_asks_for
        spans_of_which_something_is_excluded_are_found_alone_and_by_target
        a_search_goes_on_where_it_was
        completed_spans_go_after_the_cutoff
        workers_know_of_each_other_and_of_the_time
        the_age_of_events_is_limited_and_what_was_too_old_stays_so
        sums_are_by_windows_and_groups
        a_bound_that_cuts_a_usage_is_told_with_the_times_that_fit
        windows_that_are_finer_than_a_usage_are_told
        what_is_missing_is_sent_again_once_for_each_time_it_is_asked_for
        a_list_of_watches_is_narrowed_by_target_resource_and_loss
    );
}
