//! All metrics. Names and labels are what dashboards and alerts rest on: they stay as they are.
//!
//! A declaration is what Prometheus and `docs/metrics.md` know of a metric. It is here and not where the
//! metric is measured, because some are measured in two places, and because the text that a program
//! serves has neither the program nor what the values of a label are.

use crate::metric::{Label, Metric, MetricKind, Program, Values};

/// From half a millisecond, for what a receiver answers from memory, to the longest wait for a turn
/// and for the database.
const REQUEST_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// From a fast disk alone to a replica set in distress.
const COMMAND_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// From an upstream nearby to the longest time limit of a post.
const POST_BOUNDS: &[f64] = &[
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Up to the most writes in one command.
const BATCH_WRITES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Declares metrics, and the list of all. The comment on a metric is its help.
macro_rules! metrics {
    ($(
        $(#[doc = $help:literal])+
        $program:ident $metric:ident = $name:literal, $kind:expr
            $(, $label:ident: $values:expr)*;
    )+) => {
        $(
            $(#[doc = $help])+
            #[allow(clippy::doc_markdown, reason = "operators read the comments as they stand")]
            pub static $metric: Metric = Metric {
                name: $name,
                program: Program::$program,
                kind: $kind,
                labels: &[$(Label {
                    name: stringify!($label),
                    values: $values,
                }),*],
                help: concat!($($help),+).trim_ascii_start(),
            };
        )+

        /// All of them, in the order of the document.
        pub static ALL: &[&Metric] = &[$(&$metric),+];
    };
}

metrics! {
    /// Requests that were answered
    Both HTTP_REQUESTS = "sampler_http_requests_total", MetricKind::Counter,
        route: Values::Bounded(
            "the path as the API documents it, such as `/v1/spans/{id}`; `unknown` for any other \
             path, `none` for a request that no route has seen",
        ),
        method: Values::Bounded("the methods of HTTP; `other` for any other word"),
        status: Values::Bounded("the statuses that the program answers");

    /// The time from the head of a request to the head of its answer
    Both HTTP_REQUEST_DURATION_SECONDS = "sampler_http_request_duration_seconds", MetricKind::Histogram(REQUEST_SECONDS),
        route: Values::Bounded("as above");

    /// Events by their answer: accepted and new; replayed, which were kept before; refused with 4xx;
    /// turned_away with 503 or 429, because there were too many; failed with any other 5xx
    Receiver EVENTS = "sampler_events_total", MetricKind::Counter,
        event: Values::Words(&["start", "stop", "update", "unknown"]),
        outcome: Values::Words(&["accepted", "replayed", "refused", "turned_away", "failed"]);

    /// Events that wait for their turn
    Receiver QUEUE_EVENTS = "sampler_queue_events", MetricKind::Gauge;

    /// Writes that share a command to the database: starts and stops in a receiver; changes of spans
    /// and entries of the ledger in a worker
    Both COMMIT_BATCH_EVENTS = "sampler_commit_batch_events", MetricKind::Histogram(BATCH_WRITES);

    /// The time of such a command and of the searches before it, until a majority of the replica set
    /// has it in its journals
    Both COMMIT_SECONDS = "sampler_commit_seconds", MetricKind::Histogram(COMMAND_SECONDS);

    /// Posts of usages by their answer: accepted; refused, which an operator must look at; throttled
    /// with 429; failed, which are repeated
    Worker USAGES = "sampler_usages_total", MetricKind::Counter,
        outcome: Values::Words(&["accepted", "refused", "throttled", "failed"]);

    /// With `SAMPLER_CONFIRM`, questions to the upstream whether a usage counts that it has accepted,
    /// by their outcome: counted; set_aside, which an operator must look at; not_yet, which are
    /// repeated; given_up, which the upstream did not know until `SAMPLER_CONFIRM_TIMEOUT`, or gave no
    /// `Location`; throttled with 429; failed, which are repeated
    Worker CONFIRMATIONS = "sampler_confirmations_total", MetricKind::Counter,
        outcome: Values::Words(&[
            "counted", "set_aside", "not_yet", "given_up", "throttled", "failed",
        ]);

    /// The time from posting a usage to the upstream's answer
    Worker POST_SECONDS = "sampler_post_seconds", MetricKind::Histogram(POST_BOUNDS);

    /// How many posts may be in flight at once, as the upstream can take them now
    Worker POST_CONCURRENCY = "sampler_post_concurrency", MetricKind::Gauge;

    /// Spans that are due
    Both BACKLOG_SPANS = "sampler_backlog_spans", MetricKind::Gauge;

    /// How long the span has been due that waits longest; 0 where none is due
    Both BACKLOG_OLDEST_SECONDS = "sampler_backlog_oldest_seconds", MetricKind::Gauge;

    /// The time of due spans that is not sampled yet, over all of them
    Both BACKLOG_SPAN_SECONDS = "sampler_backlog_span_seconds", MetricKind::Gauge;

    /// The time until the upstream closes the previous month; absent while no month closes
    Both MONTH_CLOSE_SECONDS = "sampler_month_close_seconds", MetricKind::Gauge;

    /// Spans with intervals of the previous month that are not sampled yet; absent while no month
    /// closes
    Both MONTH_LEFT_SPANS = "sampler_month_left_spans", MetricKind::Gauge;

    /// Spans that are suspended, because the upstream refuses their usages
    Both SUSPENDED_SPANS = "sampler_suspended_spans", MetricKind::Gauge;

    /// The percentage of new starts that is admitted, for resources without a rate of their own
    Both ADMISSION_RATE = "sampler_admission_rate", MetricKind::Gauge;

    /// 1 while operators have paused sampling; 0 otherwise
    Both SAMPLING_PAUSED = "sampler_sampling_paused", MetricKind::Gauge;

    /// 1 while the controller of starts is on and its parameters are right; 0 otherwise
    Both CONTROLLER_RUNNING = "sampler_controller_running", MetricKind::Gauge;

    /// How long the backlog needs, as the controller measured last; absent while it does not run
    Both CONTROLLER_NEEDED_SECONDS = "sampler_controller_needed_seconds", MetricKind::Gauge;

    /// The term of the error, as a share of all starts; absent while the controller does not run
    Both CONTROLLER_PROPORTIONAL = "sampler_controller_proportional", MetricKind::Gauge;

    /// The term of the sum of all errors, as a share of all starts; absent while the controller does
    /// not run
    Both CONTROLLER_INTEGRAL = "sampler_controller_integral", MetricKind::Gauge;

    /// The term of the change of the error, as a share of all starts; absent while the controller does
    /// not run
    Both CONTROLLER_DERIVATIVE = "sampler_controller_derivative", MetricKind::Gauge;

    /// How far a majority of the replica set is behind its primary; absent while it is unknown
    Both COMMIT_LAG_SECONDS = "sampler_commit_lag_seconds", MetricKind::Gauge;

    /// 1 while this worker pauses sampling because the database cannot keep up; 0 otherwise
    Worker DISTRESS = "sampler_distress", MetricKind::Gauge;

    /// Spans whose durations were found not to add up to what was used
    Worker CONSERVATION_VIOLATIONS = "sampler_conservation_violations_total", MetricKind::Counter;

    /// How far the clock of this machine is ahead of the upstream's; negative where it is behind.
    /// Accurate to about a second, because `Date` has whole seconds. Absent while it is unknown, and
    /// with `SAMPLER_SHADOW=true`
    Worker CLOCK_OFFSET_SECONDS = "sampler_clock_offset_seconds", MetricKind::Gauge;

    /// Warnings and errors in the log, as far as `LOG_LEVEL` lets them through
    Both LOG_EVENTS = "sampler_log_events_total", MetricKind::Counter,
        level: Values::Words(&["warn", "error"]),
        code: Values::Bounded(
            "the codes that [operations.md](operations.md#what-the-log-says) explains; `none` for \
             a line of a library",
        );

    /// Which program this is
    Both BUILD_INFO = "sampler_build_info", MetricKind::Info,
        program: Values::Words(&["sampler-receiver", "sampler-worker"]),
        version: Values::Bounded("the version of the program");

    /// The processor time of the process, in user and in system mode
    Both PROCESS_CPU_SECONDS = "process_cpu_seconds_total", MetricKind::Counter;

    /// The memory of the process that is in the machine's memory
    Both PROCESS_RESIDENT_MEMORY_BYTES = "process_resident_memory_bytes", MetricKind::Gauge;

    /// The open file descriptors of the process; connections are among them
    Both PROCESS_OPEN_FDS = "process_open_fds", MetricKind::Gauge;

    /// How many file descriptors the process may open
    Both PROCESS_MAX_FDS = "process_max_fds", MetricKind::Gauge;

    /// When the process was started, in seconds since the epoch
    Both PROCESS_START_TIME_SECONDS = "process_start_time_seconds", MetricKind::Gauge;
}
