//! What any store must do, as tests. Each case takes an empty store.

mod concurrent_events;
mod control;
mod events;

/// The cases of each module, for the macro `$then`. A case that is missing here is dead code.
#[macro_export]
macro_rules! contract_cases {
    ($then:path { $($with:tt)* }) => {
        $then! {
            { $($with)* }
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
                start_and_stop_may_share_an_id
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
