//! The kinds of problems there are, and what to do about each.

use http::StatusCode;

/// What kind of problem a request has met. Clients tell problems apart by the type, which never
/// changes, not by the title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the entries below say it")]
pub enum ProblemType {
    MalformedJson,
    InvalidEvent,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    OpenSpan,
    IdTaken,
    MappingExists,
    PayloadTooLarge,
    UnsupportedMediaType,
    NoOpenSpan,
    StopBeforeStart,
    OverlappingStart,
    OutsideSlack,
    Internal,
    ProvisioningFailed,
    Overloaded,
    DatabaseUnavailable,
    ProvisioningBusy,
    TokenServerUnavailable,
    Unhealthy,
    ShuttingDown,
}

/// What there is to say about a kind of problem.
pub(super) struct Entry {
    kind: ProblemType,
    slug: &'static str,
    status: StatusCode,
    title: &'static str,
    /// When it happens.
    pub(super) when: &'static str,
    /// What the resource provider does about it.
    pub(super) provider: &'static str,
    /// What the operator does about it.
    pub(super) operator: &'static str,
}

impl ProblemType {
    /// All kinds, in the order of their status.
    pub fn all() -> impl Iterator<Item = Self> {
        ENTRIES.iter().map(|entry| entry.kind)
    }

    /// The name that ends its URI; also its heading in the catalogue.
    pub fn slug(self) -> &'static str {
        self.entry().slug
    }

    /// The type of the problem document.
    pub fn uri(self) -> String {
        format!("urn:sampler:problem:{}", self.slug())
    }

    /// What it is, in a few words.
    pub fn title(self) -> &'static str {
        self.entry().title
    }

    /// The status it is answered with.
    pub fn status(self) -> StatusCode {
        self.entry().status
    }

    /// The entries stand in the order of the variants; a test holds them to it.
    pub(super) fn entry(self) -> &'static Entry {
        &ENTRIES[self as usize]
    }
}

const NOTHING: &str = "Nothing.";

const RETRY: &str = "Sends the same event again, with the same `id`, after the seconds in \
    `Retry-After`, and again until it is taken.";

static ENTRIES: [Entry; 24] = [
    Entry {
        kind: ProblemType::MalformedJson,
        slug: "malformed-json",
        status: StatusCode::BAD_REQUEST,
        title: "The body is not JSON",
        when: "The body is empty, is no JSON, nests too deeply, or names a member twice.",
        provider: "Mends what it sends. The same body will be refused again.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::InvalidEvent,
        slug: "invalid-event",
        status: StatusCode::BAD_REQUEST,
        title: "The event is not valid",
        when: "The body is JSON, but not what this address takes. `errors` names each field that \
            is missing, unknown or wrong, by its JSON Pointer.",
        provider: "Mends the fields that are named. The same body will be refused again.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::Unauthorized,
        slug: "unauthorized",
        status: StatusCode::UNAUTHORIZED,
        title: "A valid token is needed",
        when: "The request has no token, or one that is malformed, expired, or signed by someone \
            else. The body was not looked at.",
        provider: "Fetches a new token and sends the event again.",
        operator: "Where it happens to everyone: compares `JWTKEY` and `JWTALGO` with the token \
            server, and the clocks of both.",
    },
    Entry {
        kind: ProblemType::Forbidden,
        slug: "forbidden",
        status: StatusCode::FORBIDDEN,
        title: "The token does not allow this",
        when: "The token is valid, but does not have the scope that is needed.",
        provider: "Asks the operator for the scope.",
        operator: "Gives the client the scope, if it shall have it.",
    },
    Entry {
        kind: ProblemType::NotFound,
        slug: "not-found",
        status: StatusCode::NOT_FOUND,
        title: "There is nothing at this address",
        when: "The path is none of those that are served.",
        provider: "Compares its address with the documentation of the API.",
        operator: "Looks whether a route leads to the wrong program.",
    },
    Entry {
        kind: ProblemType::MethodNotAllowed,
        slug: "method-not-allowed",
        status: StatusCode::METHOD_NOT_ALLOWED,
        title: "The method is not offered here",
        when: "The path is served, but not with this method. `Allow` names those that are.",
        provider: "Uses one of the methods in `Allow`.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::RequestTimeout,
        slug: "request-timeout",
        status: StatusCode::REQUEST_TIMEOUT,
        title: "The request took too long to arrive",
        when: "The body was not there in time. Nothing was kept.",
        provider: "Sends the event again.",
        operator: "Where it happens often: looks at the network in front of the program.",
    },
    Entry {
        kind: ProblemType::OpenSpan,
        slug: "open-span",
        status: StatusCode::CONFLICT,
        title: "The target has been started already",
        when: "A start for a target whose usage has started and not stopped.",
        provider: "Stops the usage first. To change a quantity, it sends a stop and a start with \
            the same timestamp.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::IdTaken,
        slug: "id-taken",
        status: StatusCode::CONFLICT,
        title: "The id belongs to another event",
        when: "An `id` that was used before for an event that says something else. `errors` names \
            the fields that differ. The event was not kept.",
        provider: "Uses a new `id` for each event, and the same one only to repeat an event \
            unchanged.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::MappingExists,
        slug: "mapping-exists",
        status: StatusCode::CONFLICT,
        title: "The plan is mapped already",
        when: "All three mappings of the plan were there before. They have not been changed, and \
            need not be the same.",
        provider: "Nothing, if the plan was mapped before as it should be.",
        operator: "Changes a mapping that is wrong in Abacus itself.",
    },
    Entry {
        kind: ProblemType::PayloadTooLarge,
        slug: "payload-too-large",
        status: StatusCode::PAYLOAD_TOO_LARGE,
        title: "The body is too large",
        when: "The body, after decompression, is larger than `MAX_PAYLOAD`.",
        provider: "Sends less in one event.",
        operator: "Raises `MAX_PAYLOAD`, if events of this size are meant.",
    },
    Entry {
        kind: ProblemType::UnsupportedMediaType,
        slug: "unsupported-media-type",
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        title: "The body is of a type that is not taken",
        when: "The body is not `application/json` in UTF-8, or is compressed with something other \
            than gzip.",
        provider: "Sends `Content-Type: application/json`, as it is or as gzip.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::NoOpenSpan,
        slug: "no-open-span",
        status: StatusCode::UNPROCESSABLE_ENTITY,
        title: "The target has not been started",
        when: "A stop for a target whose usage has not started, or has stopped already.",
        provider: "Sends the start first. Where the usage was stopped by another event, there is \
            nothing to do.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::StopBeforeStart,
        slug: "stop-before-start",
        status: StatusCode::UNPROCESSABLE_ENTITY,
        title: "The stop lies before the start",
        when: "A stop whose timestamp is earlier than that of the start it would end.",
        provider: "Corrects the timestamp. It may be equal to that of the start.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::OverlappingStart,
        slug: "overlapping-start",
        status: StatusCode::UNPROCESSABLE_ENTITY,
        title: "The start lies within an earlier usage",
        when: "A start whose timestamp is earlier than the stop of the previous usage of the same \
            target: the time between would be billed twice.",
        provider: "Corrects the timestamp. It may be equal to that of the stop.",
        operator: "Lets such starts in by a setting, if billing twice is meant.",
    },
    Entry {
        kind: ProblemType::OutsideSlack,
        slug: "outside-slack",
        status: StatusCode::UNPROCESSABLE_ENTITY,
        title: "The timestamp is too far from now",
        when: "The timestamp lies further in the past or in the future than is allowed.",
        provider: "Corrects the timestamp: whole milliseconds since 1970, in UTC.",
        operator: "Compares the clocks. Widens `SAMPLER_SLACK_PAST_INTERVAL` or \
            `SAMPLER_SLACK_FUTURE_INTERVAL`, if such events are meant.",
    },
    Entry {
        kind: ProblemType::Internal,
        slug: "internal",
        status: StatusCode::INTERNAL_SERVER_ERROR,
        title: "Something went wrong in here",
        when: "An error that has no better name. Whether the event was kept is not known.",
        provider: "Sends the same event again, with the same `id`: it is never counted twice.",
        operator: "Reads the log: each one is a line of level error there.",
    },
    Entry {
        kind: ProblemType::ProvisioningFailed,
        slug: "provisioning-failed",
        status: StatusCode::BAD_GATEWAY,
        title: "Abacus did not take the mapping",
        when: "The provisioning service of Abacus refused a mapping, failed, or did not answer. \
            Some of the three mappings may have been made.",
        provider: "Sends the mapping again: what was made is recognised.",
        operator: "Looks at the provisioning service, and whether the plans exist there.",
    },
    Entry {
        kind: ProblemType::Overloaded,
        slug: "overloaded",
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "There is more to do than can be done",
        when: "As many requests as are let in are being served, or as many events as one instance \
            takes wait for the database. Nothing was kept.",
        provider: RETRY,
        operator: "Adds an instance, or raises `MAX_INFLIGHT` where the database has room.",
    },
    Entry {
        kind: ProblemType::DatabaseUnavailable,
        slug: "database-unavailable",
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "The database is away",
        when: "The database cannot be reached, or gave no final answer. `detail` says whether the \
            event may have been kept. Where it may, `Retry-After` is as long as the database may \
            still work on it: until then the same event could be refused, and be kept after that.",
        provider: RETRY,
        operator: "Looks at the database. The program takes up its work again by itself.",
    },
    Entry {
        kind: ProblemType::ProvisioningBusy,
        slug: "provisioning-busy",
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "Abacus asks to wait with mappings",
        when: "The provisioning service of Abacus takes no more requests for now. Some of the \
            three mappings may have been made.",
        provider: "Sends the mapping again after the seconds in `Retry-After`.",
        operator: NOTHING,
    },
    Entry {
        kind: ProblemType::TokenServerUnavailable,
        slug: "token-server-unavailable",
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "The token cannot be checked now",
        when: "The token names a key that is not known, or none is known yet, and the token server \
            cannot be asked. The body was not looked at.",
        provider: RETRY,
        operator: "Looks at the token server (UAA), and whether `AUTH_SERVER` leads to it.",
    },
    Entry {
        kind: ProblemType::Unhealthy,
        slug: "unhealthy",
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "The program is not well",
        when: "Only at the health checks: something the program needs does not work, or it has \
            made no progress for too long. `probes` names what.",
        provider: NOTHING,
        operator: "Looks at what is named. Health comes back by itself.",
    },
    Entry {
        kind: ProblemType::ShuttingDown,
        slug: "shutting-down",
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "The program is about to end",
        when: "The program was told to stop and takes in nothing new. Nothing was kept.",
        provider: "Sends the event again at once: it reaches another instance.",
        operator: NOTHING,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn entries_stand_in_the_order_of_the_kinds() {
        for (place, kind) in ProblemType::all().enumerate() {
            assert_eq!(kind as usize, place, "{kind:?}");
            assert_eq!(kind.entry().kind, kind);
        }
        assert_eq!(
            ProblemType::ShuttingDown as usize + 1,
            ENTRIES.len(),
            "each kind has one"
        );
    }

    #[test]
    fn slugs_are_words_and_each_there_once() {
        let mut seen = HashSet::new();
        for kind in ProblemType::all() {
            let slug = kind.slug();
            assert!(
                slug.bytes()
                    .all(|byte| byte == b'-' || byte.is_ascii_lowercase()),
                "{slug}"
            );
            assert!(seen.insert(slug), "{slug} is there twice");
            assert_eq!(kind.uri(), format!("urn:sampler:problem:{slug}"));
        }
    }

    #[test]
    fn statuses_are_errors_in_rising_order() {
        let statuses: Vec<_> = ProblemType::all().map(ProblemType::status).collect();
        assert!(statuses.is_sorted());
        assert!(
            statuses
                .iter()
                .all(|status| status.is_client_error() || status.is_server_error())
        );
    }

    #[test]
    fn every_entry_is_told_in_sentences() {
        for entry in &ENTRIES {
            for text in [entry.when, entry.provider, entry.operator] {
                assert!(text.ends_with('.'), "{text}");
            }
            assert!(!entry.title.ends_with('.'), "{}", entry.title);
        }
    }
}
