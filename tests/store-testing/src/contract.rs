//! What any store must do, as tests. Each case takes an empty store.

mod audit;
mod backlog;
mod causes;
mod changes;
mod concurrent_events;
mod control;
mod events;
mod ledger;
mod lists;
mod sampling;
mod sums;
mod watches;

/// The cases of each module, for the macro `$then`. A case that is missing here is dead code.
#[macro_export]
macro_rules! contract_cases {
    ($then:path { $($with:tt)* }) => {
        $then! {
            { $($with)* }
            audit {
                an_act_is_kept_as_it_was_asked_for_and_how_it_ended
                the_trail_holds_what_its_query_asks_for
                the_trail_goes_on_while_acts_come
            }
            backlog {
                the_backlog_is_what_is_due_and_what_waits_after_a_failure
                a_closing_month_has_left_what_is_not_sampled_of_it
                what_was_counted_is_told_to_all
                the_rates_of_live_workers_add_up
            }
            causes {
                a_suspended_span_is_never_due
                a_stop_of_a_suspended_span_resumes_nothing
                the_span_that_is_suspended_for_longest_is_probed
                what_was_decided_before_a_probe_is_rejected
                spans_of_a_cause_resume_in_batches
                a_span_of_another_cause_stays_suspended
                a_cause_is_there_as_long_as_a_span_is_suspended_for_it
                causes_are_listed_with_those_that_have_the_most_spans_first
            }
            changes {
                a_change_is_made_for_the_version_that_was_read_alone
                a_stop_shuts_out_what_was_decided_before_it
                a_change_of_an_operator_is_made_for_the_version_that_was_read
                a_span_that_is_gone_is_not_changed
                of_32_changes_of_one_span_one_is_made
                whatever_is_known_of_a_span_is_kept_whole
                each_kind_of_change_makes_of_a_span_what_the_rules_say
            }
            concurrent_events {
                of_64_starts_of_one_target_one_wins
                of_64_repeats_of_one_start_one_opens
                of_64_stops_of_one_span_one_wins
                of_64_updates_each_start_finds_its_room
                of_64_starts_each_has_its_own_answer
                of_64_stops_each_has_its_own_answer
            }
            control {
                nothing_is_held_back_before_anybody_says_so
                control_is_changed_by_whom_has_seen_its_version
                of_32_changes_of_control_one_wins
                the_controller_decides_once_for_each_version
            }
            events {
                a_start_is_kept_as_it_was_given
                a_span_keeps_which_clients_reported_it
                spans_that_have_not_ended_are_the_open_one_and_the_next_to_end
                a_repeated_start_is_recognised_at_any_later_time
                a_second_start_of_an_open_target_is_refused
                fault_4_the_same_id_on_another_target_is_another_event
                fault_4_a_start_id_seen_before_is_refused_and_the_fields_are_named
                fault_12_a_start_inside_the_previous_span_is_refused
                a_span_of_another_plan_of_the_instance_is_no_previous_one
                an_update_is_a_stop_and_a_start_at_one_moment
                a_stop_ends_the_open_span_alone
                a_repeated_stop_is_recognised_at_any_later_time
                fault_4_a_stop_id_seen_before_never_ends_another_span
                fault_5_a_stop_before_its_start_is_refused_in_the_update_itself
                a_stop_without_an_open_span_is_refused
                a_start_that_is_carried_out_twice_opens_one_span
                a_stop_that_is_carried_out_twice_ends_one_span
            }
            ledger {
                an_entry_is_kept_as_it_was_given
                what_was_written_first_of_a_usage_stays
                of_64_entries_of_one_usage_one_is_kept
                of_64_entries_each_is_kept
                entries_come_page_by_page_in_the_order_of_acceptance
                entries_of_other_spans_do_not_show
                entries_outlive_their_span
                entries_add_up_with_their_signs
                entries_do_not_add_up_from_what_was_sent_again
                entries_add_up_from_the_time_of_the_first_that_is_kept
            }
            lists {
                a_list_holds_what_its_query_asks_for
                a_list_goes_on_while_spans_come_change_and_go
                a_span_is_found_by_how_its_id_is_written
                the_spans_that_were_kept_last_come_first
                spans_of_which_something_is_excluded_are_found_alone_and_by_target
            }
            sampling {
                idle_and_finished_spans_are_not_due
                what_waits_longest_is_due_first
                a_search_goes_on_where_it_was
                only_the_partitions_asked_for_are_due
                a_stop_makes_its_span_due
                completed_spans_go_after_the_cutoff
                workers_know_of_each_other_and_of_the_time
                the_age_of_events_is_limited_and_what_was_too_old_stays_so
            }
            sums {
                sums_are_by_windows_and_groups
                sums_go_on_behind_any_row
                sums_are_exact
                usages_that_were_accepted_later_do_not_count
                a_bound_that_cuts_a_usage_is_told_with_the_times_that_fit
                windows_that_are_finer_than_a_usage_are_told
                what_is_not_asked_for_is_not_cut
            }
            watches {
                a_usage_is_watched_where_that_is_asked_for
                a_watch_begins_anew_where_its_usage_is_posted_again
                what_waits_longest_is_asked_for_first
                of_16_claims_of_a_watch_one_is_granted
                what_came_of_an_older_watch_is_dropped
                what_is_missing_is_sent_again_once_for_each_time_it_is_asked_for
                the_watch_over_what_was_sent_again_begins_anew
                many_watches_are_settled_at_once
                watches_are_listed_in_the_order_of_acceptance
                a_list_of_watches_is_narrowed_by_target_resource_and_loss
            }
        }
    };
}

macro_rules! public_cases {
    ({} $($module:ident { $($case:ident)* })*) => {
        $($(pub use $module::$case;)*)*
    };
}

contract_cases!(public_cases {});

/// Makes a test of each case of the contract. `$store` is an expression that awaits to a
/// [`Shared`](crate::support::Shared) empty store.
#[macro_export]
macro_rules! store_contract_tests {
    ({ $store:expr } $($module:ident { $($case:ident)* })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::contract::$case(&$store.await).await;
            }
        )*)*
    };
    ($store:expr) => {
        $crate::contract_cases!($crate::store_contract_tests { $store });
    };
}
