//! What any store must do, as tests. Each case takes an empty store.

mod acts;
mod backlog;
mod causes;
mod changes;
mod concurrent_events;
mod confirmations;
mod control;
mod events;
mod ledger;
mod resends;
mod rounds;
mod sampling;

/// The cases of each module, for the macro `$then`. A case that is missing here is dead code.
#[macro_export]
macro_rules! contract_cases {
    ($then:path { $($with:tt)* }) => {
        $then! {
            { $($with)* }
            acts {
                an_act_that_was_done_is_told_as_done_whatever_came_since
            }
            backlog {
                the_backlog_is_what_is_due_and_what_waits_after_a_failure
                a_closing_month_has_left_what_is_not_sampled_of_it
                what_was_counted_is_told_to_all
                the_rates_of_live_workers_add_up
            }
            causes {
                a_suspended_span_is_never_due
                an_execution_ends_a_suspension
                a_stop_of_a_suspended_span_resumes_nothing
                one_span_of_a_cause_is_probed_at_a_time
                a_probe_without_an_answer_gives_way
                a_cause_is_kept_once_and_probed_in_its_time
                a_cause_goes_when_nothing_is_suspended_under_it
                a_cause_that_is_missing_is_found_by_its_spans
                spans_of_a_cause_go_on_in_batches
                each_resume_of_an_operator_is_one_of_its_own
            }
            changes {
                every_change_makes_what_after_says
            }
            concurrent_events {
                of_64_starts_of_one_target_one_wins
                of_64_repeats_of_one_start_one_opens
                of_64_stops_of_one_span_one_wins
                of_64_updates_each_start_finds_its_room
                of_64_starts_each_has_its_own_answer
                of_64_stops_each_has_its_own_answer
            }
            confirmations {
                the_oldest_month_is_asked_for_first
                a_usage_that_counts_is_asked_for_no_more
                a_usage_that_was_put_aside_keeps_why
                a_usage_that_is_not_known_yet_is_asked_for_again
                a_usage_that_is_lost_is_read_as_that
                many_usages_are_noted_at_once
                of_16_that_note_the_same_answer_one_does
                a_usage_is_only_asked_for_where_its_entry_says_so
                a_usage_that_is_written_again_is_asked_for_as_late_as_that
                a_usage_that_was_skipped_and_sent_is_asked_for_once_its_totals_are_right
                a_usage_that_was_sent_again_is_asked_for_again
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
                start_and_stop_may_share_an_id
            }
            ledger {
                an_entry_is_kept_as_it_was_given
                what_was_written_first_of_a_usage_stays
                a_skip_learns_that_a_post_had_no_answer
                of_64_entries_of_one_usage_one_is_kept
                of_64_entries_each_has_its_own_answer
                entries_come_page_by_page_from_either_end
                entries_of_other_spans_do_not_show
                an_entry_is_kept_once_whatever_span_names_it
                entries_outlive_their_span
            }
            resends {
                a_usage_that_was_given_up_is_marked_once_and_sent_again
                what_was_set_aside_is_accepted_again_and_stays_marked
                a_mark_is_claimed_once_as_it_was_read
                what_is_accepted_or_has_another_mark_is_not_claimed
                a_refused_resend_ends_and_tells_why
                an_acceptance_is_added_to_a_mark_and_outlasts_a_refusal
                what_was_withheld_is_found_by_the_usage_that_it_takes_back
                all_that_was_withheld_of_a_usage_is_found
                an_entry_that_is_sent_again_outlives_its_expiry
                a_refused_usage_is_known_by_its_id_while_it_is_planned
            }
            rounds {
                what_the_ledger_said_stays_when_a_usage_is_put_aside_again
                an_entry_keeps_its_last_rounds
            }
            sampling {
                idle_and_finished_spans_are_not_due
                what_waits_longest_is_due_first
                a_search_goes_on_where_it_was
                only_the_partitions_asked_for_are_due
                a_stop_makes_its_span_due
                of_32_plans_one_wins
                completed_spans_go_after_the_cutoff
                workers_know_of_each_other
                the_age_of_events_is_limited_and_what_was_too_old_stays_so
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
