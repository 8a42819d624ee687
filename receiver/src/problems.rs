//! The problems that only a receiver answers. `sampler_service::problem::kinds` has those of both programs.

use sampler_service::problem::{ProblemType, StatusCode, kinds};

/// [`THROTTLED`] for bodies: the server is not full, but one client sends more than its share.
pub const BODIES_THROTTLED: ProblemType = ProblemType {
    status: StatusCode::TOO_MANY_REQUESTS,
    ..THROTTLED
};

sampler_service::problem_types! {
    MALFORMED_JSON = "malformed-json", BAD_REQUEST, "The body is not JSON";
    INVALID_EVENT = "invalid-event", BAD_REQUEST, "The event is not valid";
    INVALID_BODY = "invalid-body", BAD_REQUEST, "The body is not valid";
    INVALID_QUERY = "invalid-query", BAD_REQUEST, "The query is not valid";
    QUERY_TOO_WIDE = "query-too-wide", UNPROCESSABLE_ENTITY, "The query asks for too much";
    NO_SUCH_SPAN = "no-such-span", NOT_FOUND, "There is no such span";
    NO_SUCH_CAUSE = "no-such-cause", NOT_FOUND, "There is no such cause";
    NO_SUCH_USAGE = "no-such-usage", NOT_FOUND, "There is no such usage";
    REQUEST_TIMEOUT = "request-timeout", REQUEST_TIMEOUT, "The request took too long to arrive";
    OPEN_SPAN = "open-span", CONFLICT, "The target has been started already";
    ID_TAKEN = "id-taken", CONFLICT, "The id belongs to another event";
    NOT_SUSPENDED = "not-suspended", CONFLICT, "The span is not suspended";
    NOTHING_EXCLUDED = "nothing-excluded", CONFLICT, "Nothing is excluded there";
    NOT_RESENDABLE = "not-resendable", CONFLICT, "The usage cannot be sent again";
    TOO_MANY_RANGES = "too-many-ranges", CONFLICT, "Too much of the span is excluded";
    MAPPING_EXISTS = "mapping-exists", CONFLICT, "The plan is mapped already";
    PRECONDITION_FAILED = "precondition-failed", PRECONDITION_FAILED, "The subject has changed since it was read";
    PAYLOAD_TOO_LARGE = "payload-too-large", PAYLOAD_TOO_LARGE, "The body is too large";
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "The type of the body is not supported";
    NO_OPEN_SPAN = "no-open-span", UNPROCESSABLE_ENTITY, "The target has not been started";
    STOP_BEFORE_START = "stop-before-start", UNPROCESSABLE_ENTITY, "The stop is before the start";
    OVERLAPPING_START = "overlapping-start", UNPROCESSABLE_ENTITY, "The start is within an earlier usage";
    CUT_USAGE = "cut-usage", UNPROCESSABLE_ENTITY, "The times cut a usage";
    INVALID_UNTIL = "invalid-until", UNPROCESSABLE_ENTITY, "The span cannot be skipped up to this time";
    OUTSIDE_SLACK = "outside-slack", UNPROCESSABLE_ENTITY, "The timestamp is too far from now";
    PROVISIONING_FAILED = "provisioning-failed", BAD_GATEWAY, "Abacus did not accept the mapping";
    PRECONDITION_REQUIRED = "precondition-required", PRECONDITION_REQUIRED, "If-Match is needed";
    THROTTLED = "throttled", SERVICE_UNAVAILABLE, "Try again later";
    DATABASE_UNAVAILABLE = "database-unavailable", SERVICE_UNAVAILABLE, "The database is unavailable";
    PROVISIONING_BUSY = "provisioning-busy", SERVICE_UNAVAILABLE, "Abacus is busy";
}

/// All problems that a receiver answers.
pub fn all() -> Vec<&'static ProblemType> {
    ALL.iter().chain(kinds::ALL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_one_section_for_each_and_says_what_everyone_does() {
        let mut sections = kinds::CATALOGUE.split("\n## ").skip(1);
        for ProblemType {
            slug,
            status,
            title,
        } in all()
        {
            let head = format!(
                "{slug}\n\n**{title}** ({}, `/problems/{slug}`)",
                status.as_u16()
            );
            let mut named = sections
                .clone()
                .filter(|it| it.starts_with(&format!("{slug}\n")));
            let section = named
                .next()
                .unwrap_or_else(|| panic!("{slug} has no section"));
            assert!(section.starts_with(&head), "{head}");
            assert_eq!(named.next(), None, "{slug} is there twice");
        }
        assert_eq!(sections.clone().count(), all().len());
        let points = ["\n- When: ", "\n- Resource provider: ", "\n- Operator: "];
        assert!(sections.all(|it| points.iter().all(|point| it.contains(point))));
    }
}
