//! All metrics of both programs. Names and labels are what dashboards and alerts rest on: they stay as they are.

use MetricKind::{Counter, Gauge, Histogram};
use Values::{Bounded, Words};

/// A metric, as operators see it.
pub(super) struct Metric {
    /// Its name, as Prometheus knows it: that of a counter ends in `_total`.
    pub(super) name: &'static str,
    /// The program that measures it; `None` if both do.
    pub(super) of: Option<&'static str>,
    pub(super) kind: MetricKind,
    /// Its labels. No value of a label is a text of a client.
    pub(super) labels: &'static [(&'static str, Values)],
    /// Its meaning, without a full stop at the end.
    pub(super) help: &'static str,
}

pub(super) enum MetricKind {
    /// How often something has happened since the program was started.
    Counter,
    /// How much there is of something now.
    Gauge,
    /// How large something is each time, by these upper bounds; a last bucket has no bound.
    Histogram(&'static [f64]),
}

pub(super) enum Values {
    /// These words. The series of each are there from the start.
    Words(&'static [&'static str]),
    /// Other values, whose number is bounded, in words.
    Bounded(&'static str),
}

const RECEIVER: Option<&str> = Some("sampler-receiver");
const WORKER: Option<&str> = Some("sampler-worker");
const BOTH: Option<&str> = None;

/// From an upstream nearby to one that takes a minute.
const POST_SECONDS: &[f64] = &[
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// From what a receiver answers from memory to the longest wait for a turn and for the database.
const REQUEST_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Up to the most writes in one command.
const COMMAND_WRITES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// From a fast disk alone to a replica set in distress.
const COMMAND_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Declares metrics, in the order of the documents. The comment on one is its help.
macro_rules! table {
    ($(
        $(#[doc = $help:literal])+
        $of:ident $name:literal, $kind:expr $(, $label:ident: $values:expr)*;
    )+) => {
        pub(super) static METRICS: &[Metric] = &[$(Metric {
            name: $name,
            of: $of,
            kind: $kind,
            labels: &[$((stringify!($label), $values)),*],
            help: concat!($($help),+).trim_ascii_start(),
        }),+];
    };
}

table! {
    /// Events by their answer: accepted and new; replayed, which were kept before; refused with 4xx; turned_away with
    /// 503 or 429, because there were too many; failed with any other 5xx
    RECEIVER "sampler_events_total", Counter,
        event: Words(&["start", "stop", "update", "unknown"]),
        outcome: Words(&["accepted", "replayed", "refused", "turned_away", "failed"]);

    /// Events that wait for their turn
    RECEIVER "sampler_queue_events", Gauge;

    /// Posts of usages by their answer: accepted; refused, which an operator must look at; throttled with 429; failed,
    /// which are repeated
    WORKER "sampler_usages_total", Counter,
        outcome: Words(&["accepted", "refused", "throttled", "failed"]);

    /// The time from posting a usage to the upstream's answer
    WORKER "sampler_post_seconds", Histogram(POST_SECONDS);

    /// How many posts may be in flight at once, as the upstream can take them now
    WORKER "sampler_post_concurrency", Gauge;

    /// 1 while this worker pauses sampling because the database cannot keep up; 0 otherwise
    WORKER "sampler_distress", Gauge;

    /// With `SAMPLER_CONFIRM`, questions to the upstream whether a usage counts that it has accepted, by their outcome:
    /// counted; set_aside, which an operator must look at; not_yet, which are repeated; given_up, which the upstream
    /// did not know until `SAMPLER_CONFIRM_TIMEOUT`, or gave no `Location`; throttled with 429; failed, which are
    /// repeated
    WORKER "sampler_confirmations_total", Counter,
        outcome: Words(&["counted", "set_aside", "not_yet", "given_up", "throttled", "failed"]);

    /// Complete spans that do not agree with the ledger on what is billed
    WORKER "sampler_ledger_differences_total", Counter;

    /// How far the database's clock is ahead of the upstream's, by the median of its last five answers; negative where
    /// it is behind. Accurate to about a second, because `Date` has whole seconds. Absent while it is unknown
    WORKER "sampler_clock_offset_seconds", Gauge;

    /// Spans that are due; no more than were counted within 2 s
    BOTH "sampler_backlog_spans", Gauge;

    /// How long the span has been due that waits longest; 0 where none is due
    BOTH "sampler_backlog_oldest_seconds", Gauge;

    /// The time until the upstream closes the previous month; absent while no month closes
    BOTH "sampler_month_close_seconds", Gauge;

    /// Spans with intervals of the previous month that are not sampled yet; absent while no month closes
    BOTH "sampler_month_left_spans", Gauge;

    /// Spans that are suspended, because the upstream refuses their usages
    BOTH "sampler_suspended_spans", Gauge;

    /// The percentage of new starts that is admitted, for resources without a rate of their own
    BOTH "sampler_admission_rate", Gauge;

    /// 1 while operators have paused sampling; 0 otherwise
    BOTH "sampler_sampling_paused", Gauge;

    /// 1 while the controller of starts is on and its parameters are right; 0 otherwise
    BOTH "sampler_controller_running", Gauge;

    /// How long the backlog needs, as the controller measured last; absent while it does not run
    BOTH "sampler_controller_needed_seconds", Gauge;

    /// The term of the error, as a share of all starts; absent while the controller does not run
    BOTH "sampler_controller_proportional", Gauge;

    /// The term of the sum of all errors, as a share of all starts; absent while the controller does not run
    BOTH "sampler_controller_integral", Gauge;

    /// The term of the change of the error, as a share of all starts; absent while the controller does not run
    BOTH "sampler_controller_derivative", Gauge;

    /// Requests that were answered
    BOTH "sampler_http_requests_total", Counter,
        route: Bounded("the path as the API documents it, such as `/v1/spans/{id}`; `unknown` for any other path"),
        method: Bounded("the methods of HTTP; `other` for any other word"),
        status: Bounded("the statuses that the program answers");

    /// The time from the head of a request to the head of its answer
    BOTH "sampler_http_request_duration_seconds", Histogram(REQUEST_SECONDS),
        route: Bounded("as above");

    /// Writes that share a command to the database: starts and stops in a receiver; changes of spans and entries of the
    /// ledger in a worker
    BOTH "sampler_commit_batch_events", Histogram(COMMAND_WRITES);

    /// The time of such a command and of the searches before it, until a majority of the replica set has it in its
    /// journals
    BOTH "sampler_commit_seconds", Histogram(COMMAND_SECONDS);

    /// Warnings and errors in the log, as far as `LOG_LEVEL` lets them through
    BOTH "sampler_log_events_total", Counter,
        level: Words(&["warn", "error"]),
        code: Bounded(
            "the codes that [operations.md](operations.md#what-the-log-says) explains; `none` for a line of \
             a library"
        );

    /// Which program this is
    BOTH "sampler_build_info", Gauge,
        program: Bounded("`sampler-receiver`, `sampler-worker`"),
        version: Bounded("the version of the program");

    /// The processor time of the process, in user and in system mode
    BOTH "process_cpu_seconds_total", Counter;

    /// The memory of the process that is in the machine's memory
    BOTH "process_resident_memory_bytes", Gauge;

    /// The open file descriptors of the process; connections are among them
    BOTH "process_open_fds", Gauge;

    /// How many file descriptors the process may open
    BOTH "process_max_fds", Gauge;

    /// When the process was started, in seconds since the epoch
    BOTH "process_start_time_seconds", Gauge;
}
