//! The kinds of problems that every program answers, and what to do about each.

use http::StatusCode;

/// A kind of problem. Clients distinguish problems by the slug, which never changes, not by the title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProblemType {
    /// The last part of its URI, and its heading in the catalogue.
    pub slug: &'static str,
    pub status: StatusCode,
    pub title: &'static str,
    pub when: &'static str,
    /// The remedy for the resource provider.
    pub provider: &'static str,
    pub operator: &'static str,
}

impl ProblemType {
    /// The type of the problem document: the address of its text, relative to the API.
    pub fn uri(&self) -> String {
        format!("/problems/{}", self.slug)
    }

    /// What the catalogue says of it, in Markdown.
    pub(super) fn section(&self) -> String {
        let (slug, title, status) = (self.slug, self.title, self.status.as_u16());
        let (when, provider, operator) = (self.when, self.provider, self.operator);
        let uri = self.uri();
        format!(
            "## {slug}\n\n**{title}** ({status}, `{uri}`)\n\n\
             - When: {when}\n- Resource provider: {provider}\n- Operator: {operator}\n"
        )
    }
}

/// Declares kinds of problems, and the list `ALL` of them.
#[macro_export]
macro_rules! problem_types {
    ($($name:ident {
        slug: $slug:literal,
        status: $status:ident,
        title: $title:literal,
        when: $when:expr,
        $(provider: $provider:expr,)?
        $(operator: $operator:expr,)?
    })+) => {
        $(
            #[doc = $title]
            pub const $name: $crate::problem::ProblemType = $crate::problem::ProblemType {
                slug: $slug,
                status: $crate::problem::StatusCode::$status,
                title: $title,
                when: $when,
                provider: $crate::problem::kinds::advice(&[$($provider)?]),
                operator: $crate::problem::kinds::advice(&[$($operator)?]),
            };
        )+

        /// All of them, in the order of their declaration.
        pub const ALL: &[$crate::problem::ProblemType] = &[$($name),+];
    };
}

/// The advice that is given, if there is any.
pub const fn advice(given: &[&'static str]) -> &'static str {
    match given {
        [advice] => advice,
        _ => "No action needed.",
    }
}

/// The advice to a resource provider about a temporary problem.
pub const RETRY: &str = "Send the same event again, with the same `id`, after the seconds in \
    `Retry-After`, until it is accepted.";

// The problems that every program can answer.
problem_types! {
    UNAUTHORIZED {
        slug: "unauthorized",
        status: UNAUTHORIZED,
        title: "A valid token is needed",
        when: "The request has no token, or one that is malformed, expired, or not signed by a known \
            key. The body was not read.",
        provider: "Fetch a new token and send the event again.",
        operator: "If all clients get it, compare `JWTKEY` and `JWTALGO` with the token \
            server, and the clocks of both.",
    }
    FORBIDDEN {
        slug: "forbidden",
        status: FORBIDDEN,
        title: "The token does not allow this",
        when: "The token is valid, but does not have the scope that is needed.",
        provider: "Ask the operator for the scope.",
        operator: "Give the client the scope, if the client may have it.",
    }
    NOT_FOUND {
        slug: "not-found",
        status: NOT_FOUND,
        title: "There is nothing at this address",
        when: "No resource has this path.",
        provider: "Compare the path with the documentation of the API.",
        operator: "Check whether a route leads to the wrong program.",
    }
    METHOD_NOT_ALLOWED {
        slug: "method-not-allowed",
        status: METHOD_NOT_ALLOWED,
        title: "The method is not allowed here",
        when: "The resource does not support the method. `Allow` lists the methods it supports.",
        provider: "Use one of the methods in `Allow`.",
    }
    INTERNAL {
        slug: "internal",
        status: INTERNAL_SERVER_ERROR,
        title: "Internal error",
        when: "An unexpected error. The event may have been kept.",
        provider: "Send the same event again, with the same `id`: it is never counted twice.",
        operator: "Read the log: each has a line of level error.",
    }
    TOKEN_SERVER_UNAVAILABLE {
        slug: "token-server-unavailable",
        status: SERVICE_UNAVAILABLE,
        title: "The token cannot be checked now",
        when: "The token names a key that is not known yet, and the keys of the token server cannot \
            be fetched now: it does not answer, or they were fetched seconds ago. Or it has no keys. \
            The body was not read.",
        provider: RETRY,
        operator: "No action needed, if it lasts only seconds. Otherwise check the token server (UAA), and \
            whether `AUTH_SERVER` leads to it.",
    }
    UNHEALTHY {
        slug: "unhealthy",
        status: SERVICE_UNAVAILABLE,
        title: "The program is unhealthy",
        when: "Only at the health checks: something that the program needs does not work, or it has \
            made no progress for too long. `probes` names it.",
        operator: "Check what `probes` names. The program recovers by itself.",
    }
    OVERLOADED {
        slug: "overloaded",
        status: SERVICE_UNAVAILABLE,
        title: "The server is overloaded",
        when: "Too many events of the client wait, or one has waited for too long; `MAX_INFLIGHT` is \
            set and reached; or all connections are in use. Nothing was kept. Or too many requests \
            read at the same time, or a window has too many usages to be added up.",
        provider: RETRY,
        operator: "Check the client's rate of requests, and the database. Add an instance.",
    }
    SHUTTING_DOWN {
        slug: "shutting-down",
        status: SERVICE_UNAVAILABLE,
        title: "The program is shutting down",
        when: "The program has received a signal to stop. Only `/healthz/ready` answers so; events that \
            still reach the program are served.",
    }
}
