//! The problems that only a receiver answers. `sampler_service::problem::kinds` has those of both
//! programs.

use sampler_service::problem::kinds::RETRY;
use sampler_service::problem::{self, ProblemType, StatusCode, kinds};

pub use kinds::OVERLOADED;

/// [`THROTTLED`] for bodies: the server is not full, but one client sends more than its share.
pub const BODIES_THROTTLED: ProblemType = ProblemType {
    status: StatusCode::TOO_MANY_REQUESTS,
    ..THROTTLED
};

sampler_service::problem_types! {
    MALFORMED_JSON {
        slug: "malformed-json",
        status: BAD_REQUEST,
        title: "The body is not JSON",
        when: "The body is empty, is not JSON, nests too deeply, contains a number out of range, a \
            member twice (`errors` names it) or more than 50,000 values, cannot be decompressed, or is cut short.",
        provider: "Correct the body. The same body is refused again.",
    }
    INVALID_EVENT {
        slug: "invalid-event",
        status: BAD_REQUEST,
        title: "The event is not valid",
        when: "The body is JSON, but not an event. `errors` names by JSON Pointers each field that is missing \
            or has a wrong value, or alone the first one that is unknown or whose value cannot be read.",
        provider: "Correct the fields in `errors`. The same body is refused again.",
    }
    INVALID_BODY {
        slug: "invalid-body",
        status: BAD_REQUEST,
        title: "The body is not valid",
        when: "The body is JSON, but not what the address expects. `errors` names by JSON Pointers each field \
            that has a wrong value, or alone the first one that is missing, unknown or whose value cannot be read. \
            Nothing was done.",
        operator: "Correct the fields in `errors`.",
    }
    INVALID_QUERY {
        slug: "invalid-query",
        status: BAD_REQUEST,
        title: "The query is not valid",
        when: "Parameters of the query are unknown, given twice or wrong. `errors` names each of them \
            in `parameter`.",
        provider: "Correct the parameters in `errors`.",
    }
    QUERY_TOO_WIDE {
        slug: "query-too-wide",
        status: UNPROCESSABLE_ENTITY,
        title: "The query asks for too much",
        when: "The answer needs too many reads, there are more than 366 windows, or the \
            usages of one window cannot be added up in time. `detail` says which parameters make the \
            query narrow enough.",
        provider: "Add one of the parameters that `detail` names, or ask for less time.",
    }
    NO_SUCH_SPAN {
        slug: "no-such-span",
        status: NOT_FOUND,
        title: "There is no such span",
        when: "No span has this id, or it was removed after its retention, or the token does not \
            allow reading its resource.",
        provider: "Compare the id with the `Location` of the start. Ask the operator for the scope, \
            if the span is one of yours.",
    }
    NO_SUCH_CAUSE {
        slug: "no-such-cause",
        status: NOT_FOUND,
        title: "There is no such cause",
        when: "No span is suspended for a cause of this id.",
        operator: "Compare the id with `GET /v1/suspended`.",
    }
    NO_SUCH_USAGE {
        slug: "no-such-usage",
        status: NOT_FOUND,
        title: "There is no such usage",
        when: "No usage with this id waits to be found upstream: it counts, or `SAMPLER_CONFIRM` is off, or there \
            never was one.",
        operator: "Compare the id with `GET /v1/unconfirmed`.",
    }
    REQUEST_TIMEOUT {
        slug: "request-timeout",
        status: REQUEST_TIMEOUT,
        title: "The request took too long to arrive",
        when: "The body did not arrive in time. Nothing was kept.",
        provider: "Send the event again.",
        operator: "If it happens often, check the network in front of the program.",
    }
    OPEN_SPAN {
        slug: "open-span",
        status: CONFLICT,
        title: "The target has been started already",
        when: "A start, or the start of an update, for a target whose usage has started and not stopped.",
        provider: "Stop the usage first. To change a quantity, send an update.",
    }
    ID_TAKEN {
        slug: "id-taken",
        status: CONFLICT,
        title: "The id belongs to another event",
        when: "The `id` belongs to an earlier event of the same target with other fields, or to an \
            update from another target or to another one. `errors` names the fields that \
            differ. The event was not kept; of an update, `detail` says whether its stop was.",
        provider: "Use a new `id` for each event, and the same one only to repeat an event \
            unchanged.",
    }
    NOT_SUSPENDED {
        slug: "not-suspended",
        status: CONFLICT,
        title: "The span is not suspended",
        when: "An operator resumes a span that is not suspended, or skips its usage; or the span is being \
            probed. Workers try such a span by themselves.",
        operator: "Read the span again. No action is needed if it has been resumed.",
    }
    NOTHING_EXCLUDED {
        slug: "nothing-excluded",
        status: CONFLICT,
        title: "Nothing is excluded there",
        when: "An operator sends again what is excluded, and nothing of the span is excluded within `from` and \
            `to`. An interval is sent again whole, or not at all.",
        operator: "Compare the times with `excluded` of the span. What is in `again` is being sent.",
    }
    NOT_RESENDABLE {
        slug: "not-resendable",
        status: CONFLICT,
        title: "The usage cannot be sent again",
        when: "An operator has a usage sent again that is not missing upstream: it may still come to count.",
        operator: "Read `GET /v1/unconfirmed` again. No action is needed if the usage is not in it any more.",
    }
    TOO_MANY_RANGES {
        slug: "too-many-ranges",
        status: CONFLICT,
        title: "Too much of the span is excluded",
        when: "An operator skips what the upstream refuses, and the span has 500 excluded ranges already.",
        operator: "Send some of the excluded ranges again, or resume the span.",
    }
    MAPPING_EXISTS {
        slug: "mapping-exists",
        status: CONFLICT,
        title: "The plan is mapped already",
        when: "All three mappings of the plan were there before. They have not been changed, and \
            need not be the same.",
        provider: "No action needed, if the existing mapping is right.",
        operator: "Change a wrong mapping in Abacus itself.",
    }
    PRECONDITION_FAILED {
        slug: "precondition-failed",
        status: PRECONDITION_FAILED,
        title: "It has changed since it was read",
        when: "A change by an operator, with an `If-Match` that names an earlier state. Nothing was \
            done.",
        operator: "Read it again, and send the request with the new `ETag`, if it is still right.",
    }
    PAYLOAD_TOO_LARGE {
        slug: "payload-too-large",
        status: PAYLOAD_TOO_LARGE,
        title: "The body is too large",
        when: "The body, or an event of a batch, is larger than `MAX_PAYLOAD`, compressed or decompressed. Or a batch has more \
            than 1,000 events, or is larger than 4 MiB, or an \
            operator's action is larger than 64 KiB. Nothing was kept.",
        provider: "Send less in one event, or fewer events in one batch.",
        operator: "Raise `MAX_PAYLOAD`, if events of this size are intended. The 4 MB of a batch and the 64 KiB \
            of an action are the most.",
    }
    UNSUPPORTED_MEDIA_TYPE {
        slug: "unsupported-media-type",
        status: UNSUPPORTED_MEDIA_TYPE,
        title: "The type of the body is not supported",
        when: "The body is of another media type than those in `Accept`, or is not in UTF-8, or is \
            compressed with something other than gzip.",
        provider: "Send one of the media types in `Accept`, as it is or as gzip.",
    }
    NO_OPEN_SPAN {
        slug: "no-open-span",
        status: UNPROCESSABLE_ENTITY,
        title: "The target has not been started",
        when: "A stop for a target whose usage has not started, or has stopped already.",
        provider: "Send the start first. If another event has stopped the usage, there is nothing \
            to do.",
    }
    STOP_BEFORE_START {
        slug: "stop-before-start",
        status: UNPROCESSABLE_ENTITY,
        title: "The stop is before the start",
        when: "A stop whose timestamp is earlier than that of its start.",
        provider: "Correct the timestamp. It may be equal to that of the start.",
    }
    OVERLAPPING_START {
        slug: "overlapping-start",
        status: UNPROCESSABLE_ENTITY,
        title: "The start is within an earlier usage",
        when: "A start whose timestamp is earlier than the stop of the previous usage of the same \
            target: the time between would be billed twice.",
        provider: "Correct the timestamp. It may be equal to that of the stop.",
    }
    CUT_USAGE {
        slug: "cut-usage",
        status: UNPROCESSABLE_ENTITY,
        title: "The times cut a usage",
        when: "`from` and `to` of sums cut the interval of a usage, or the windows are shorter than its interval: \
            the sums would be wrong.",
        provider: "Ask for the times that `detail` names, or for a longer `window`.",
    }
    INVALID_UNTIL {
        slug: "invalid-until",
        status: UNPROCESSABLE_ENTITY,
        title: "The span cannot be skipped up to this time",
        when: "An operator skips up to a time that is no boundary of the span's dimension, is not later than \
            where it is sampled to, is after its end or in the future. `errors` says which. Nothing was done.",
        operator: "Choose another `until`, or leave it out to skip the refused interval alone.",
    }
    OUTSIDE_SLACK {
        slug: "outside-slack",
        status: UNPROCESSABLE_ENTITY,
        title: "The timestamp is too far from now",
        when: "The timestamp is further in the past or in the future than the slack allows.",
        provider: "Correct the timestamp: whole milliseconds since 1970, in UTC.",
        operator: "Compare the clocks. Widen `SAMPLER_SLACK_PAST_INTERVAL` or \
            `SAMPLER_SLACK_FUTURE_INTERVAL`, if such events are intended.",
    }
    PROVISIONING_FAILED {
        slug: "provisioning-failed",
        status: BAD_GATEWAY,
        title: "Abacus did not accept the mapping",
        when: "The provisioning service of Abacus refused a mapping, failed, or did not answer. \
            Some of the three mappings may have been made.",
        provider: "Send the mapping again: mappings that exist are recognised.",
        operator: "Check the provisioning service, and whether the plans exist there.",
    }
    PRECONDITION_REQUIRED {
        slug: "precondition-required",
        status: PRECONDITION_REQUIRED,
        title: "If-Match is needed",
        when: "A change by an operator without `If-Match`. Nothing was done.",
        operator: "Read what is to be changed, and send its `ETag` as `If-Match`.",
    }
    THROTTLED {
        slug: "throttled",
        status: SERVICE_UNAVAILABLE,
        title: "Try again later",
        when: "New starts are currently admitted at a lower rate, which an operator or the \
            controller has set; or bodies of the client use all of its share of the \
            memory (429). `detail` says which. Nothing was kept.",
        provider: "Send the same event again, with the same `id` and the same `timestamp`, after the \
            seconds in `Retry-After`. The timestamp keeps the bill right. If bodies take too much \
            memory, send fewer large events at a time.",
        operator: "For starts, look at `GET /v1/control` and at the backlog. For bodies, ask the \
            client for smaller events, or add an instance.",
    }
    DATABASE_UNAVAILABLE {
        slug: "database-unavailable",
        status: SERVICE_UNAVAILABLE,
        title: "The database is unavailable",
        when: "The database cannot be reached, or gave no final answer. `detail` says whether the \
            event may have been kept. If so, the database may still keep it within the time in \
            `Retry-After`. A repeat within this time can be refused, although the event is kept later. \
            A request that only reads keeps nothing.",
        provider: RETRY,
        operator: "Check the database. The program recovers by itself.",
    }
    PROVISIONING_BUSY {
        slug: "provisioning-busy",
        status: SERVICE_UNAVAILABLE,
        title: "Abacus is busy",
        when: "The provisioning service of Abacus currently accepts no further requests. Some of \
            the three mappings may have been made.",
        provider: "Send the mapping again after the seconds in `Retry-After`.",
    }
}

/// All problems that a receiver answers, in the order of their status.
pub fn all() -> Vec<&'static ProblemType> {
    let mut all: Vec<_> = ALL.iter().chain(kinds::ALL).collect();
    all.sort_by_key(|kind| kind.status);
    all
}

/// All of them in Markdown.
pub fn catalogue() -> String {
    problem::catalogue(all())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slugs_are_words_and_each_there_once() {
        let mut seen = HashSet::new();
        for kind in all() {
            let slug = kind.slug;
            let is_of_words = |byte| byte == b'-' || u8::is_ascii_lowercase(&byte);
            assert!(slug.bytes().all(is_of_words), "{slug}");
            assert!(seen.insert(slug), "{slug} is there twice");
            assert_eq!(kind.uri(), format!("/problems/{slug}"));
        }
    }

    #[test]
    fn each_is_an_error_and_told_in_sentences() {
        for kind in all() {
            assert!(kind.status.is_client_error() || kind.status.is_server_error());
            for text in [kind.when, kind.provider, kind.operator] {
                assert!(text.ends_with('.'), "{text}");
            }
            assert!(!kind.title.ends_with('.'), "{}", kind.title);
        }
    }

    #[test]
    fn the_catalogue_has_one_heading_for_each_and_tells_what_everyone_does() {
        let text = catalogue();
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        let slugs = all().into_iter().map(|kind| kind.slug);
        assert!(headings.eq(slugs), "{text}");
        let expected = "\n## open-span\n\n\
            **The target has been started already** (409, `/problems/open-span`)\n\n\
            - When: A start, or the start of an update, for a target whose usage has started and \
            not stopped.\n\
            - Resource provider: Stop the usage first.";
        assert!(text.contains(expected), "{text}");
    }
}
