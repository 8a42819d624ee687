//! All metrics. Names and labels are what dashboards and alerts rest on: they stay as they are.

use crate::metric::{Kind, Label, Metric, Program, Values};

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

/// Which program this is.
pub static BUILD_INFO: Metric = Metric {
    name: "sampler_build_info",
    program: Program::Both,
    kind: Kind::Info,
    labels: &[
        Label {
            name: "program",
            values: Values::Words(&["sampler-receiver", "sampler-worker"]),
        },
        Label {
            name: "version",
            values: Values::Bounded("the version of the program"),
        },
    ],
    help: "Which program this is",
};

/// Processor time of the process.
pub static PROCESS_CPU_SECONDS: Metric = Metric {
    name: "process_cpu_seconds_total",
    program: Program::Both,
    kind: Kind::Counter,
    labels: &[],
    help: "The processor time of the process, in user and in system mode",
};

/// Memory of the process.
pub static PROCESS_RESIDENT_MEMORY_BYTES: Metric = Metric {
    name: "process_resident_memory_bytes",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The memory of the process that is in the machine's memory",
};

/// Files and connections of the process.
pub static PROCESS_OPEN_FDS: Metric = Metric {
    name: "process_open_fds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The open file descriptors of the process; connections are among them",
};

/// How many files and connections it may have.
pub static PROCESS_MAX_FDS: Metric = Metric {
    name: "process_max_fds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "How many file descriptors the process may open",
};

/// When the process was started.
pub static PROCESS_START_TIME_SECONDS: Metric = Metric {
    name: "process_start_time_seconds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "When the process was started, in seconds since the epoch",
};

/// Requests that were answered.
pub static HTTP_REQUESTS: Metric = Metric {
    name: "sampler_http_requests_total",
    program: Program::Both,
    kind: Kind::Counter,
    labels: &[
        Label {
            name: "route",
            values: Values::Bounded(
                "the path as the API documents it, such as `/v1/spans/{id}`; `unknown` for any \
                 other path, `none` for a request that no route has seen",
            ),
        },
        Label {
            name: "method",
            values: Values::Bounded("the methods of HTTP; `other` for any other word"),
        },
        Label {
            name: "status",
            values: Values::Bounded("the statuses that the program answers"),
        },
    ],
    help: "Requests that were answered",
};

/// How long requests take.
pub static HTTP_REQUEST_DURATION_SECONDS: Metric = Metric {
    name: "sampler_http_request_duration_seconds",
    program: Program::Both,
    kind: Kind::Histogram(REQUEST_SECONDS),
    labels: &[Label {
        name: "route",
        values: Values::Bounded("as above"),
    }],
    help: "The time from the head of a request to the head of its answer",
};

/// Events, by their results.
pub static EVENTS: Metric = Metric {
    name: "sampler_events_total",
    program: Program::Receiver,
    kind: Kind::Counter,
    labels: &[
        Label {
            name: "event",
            values: Values::Words(&["start", "stop", "update", "unknown"]),
        },
        Label {
            name: "outcome",
            values: Values::Words(&["accepted", "replayed", "refused", "turned_away", "failed"]),
        },
    ],
    help: "Events by their answer: accepted and new; replayed, which were kept before; refused with \
           4xx; turned_away with 503 or 429, because there were too many; failed with any other 5xx",
};

/// Events that wait.
pub static QUEUE_EVENTS: Metric = Metric {
    name: "sampler_queue_events",
    program: Program::Receiver,
    kind: Kind::Gauge,
    labels: &[],
    help: "Events that wait for their turn",
};

/// How many writes share a command.
pub static COMMIT_BATCH_EVENTS: Metric = Metric {
    name: "sampler_commit_batch_events",
    program: Program::Both,
    kind: Kind::Histogram(BATCH_WRITES),
    labels: &[],
    help: "Writes that share a command to the database: starts and stops in a receiver; changes of \
           spans and entries of the ledger in a worker",
};

/// How long a command takes.
pub static COMMIT_SECONDS: Metric = Metric {
    name: "sampler_commit_seconds",
    program: Program::Both,
    kind: Kind::Histogram(COMMAND_SECONDS),
    labels: &[],
    help: "The time of such a command and of the searches before it, until a majority of the replica set has \
           it in its journals",
};

/// Usages, by what the upstream answers.
pub static USAGES: Metric = Metric {
    name: "sampler_usages_total",
    program: Program::Worker,
    kind: Kind::Counter,
    labels: &[Label {
        name: "outcome",
        values: Values::Words(&["accepted", "refused", "throttled", "failed"]),
    }],
    help: "Posts of usages by their answer: accepted; refused, which an operator must look at; \
           throttled with 429; failed, which are repeated",
};

/// Questions whether usages count, by their outcome.
pub static CONFIRMATIONS: Metric = Metric {
    name: "sampler_confirmations_total",
    program: Program::Worker,
    kind: Kind::Counter,
    labels: &[Label {
        name: "outcome",
        values: Values::Words(&[
            "counted",
            "set_aside",
            "not_yet",
            "given_up",
            "throttled",
            "failed",
        ]),
    }],
    help: "With `SAMPLER_CONFIRM`, questions to the upstream whether a usage counts that it has accepted, by \
           their outcome: counted; set_aside, which an operator must look at; not_yet, which are \
           repeated; given_up, which the upstream did not know until `SAMPLER_CONFIRM_TIMEOUT`, or gave \
           no `Location`; throttled \
           with 429; failed, which are repeated",
};

/// How long posts take.
pub static POST_SECONDS: Metric = Metric {
    name: "sampler_post_seconds",
    program: Program::Worker,
    kind: Kind::Histogram(POST_BOUNDS),
    labels: &[],
    help: "The time from posting a usage to the upstream's answer",
};

/// How many posts are allowed at once.
pub static POST_CONCURRENCY: Metric = Metric {
    name: "sampler_post_concurrency",
    program: Program::Worker,
    kind: Kind::Gauge,
    labels: &[],
    help: "How many posts may be in flight at once, as the upstream can take them now",
};

/// Spans that are due.
pub static BACKLOG_SPANS: Metric = Metric {
    name: "sampler_backlog_spans",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "Spans that are due",
};

/// How long the span that waits longest has been due.
pub static BACKLOG_OLDEST_SECONDS: Metric = Metric {
    name: "sampler_backlog_oldest_seconds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "How long the span has been due that waits longest; 0 where none is due",
};

/// Spans that are not sampled yet.
pub static BACKLOG_SPAN_SECONDS: Metric = Metric {
    name: "sampler_backlog_span_seconds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The time of due spans that is not sampled yet, over all of them",
};

/// Until the month closes.
pub static MONTH_CLOSE_SECONDS: Metric = Metric {
    name: "sampler_month_close_seconds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The time until the upstream closes the previous month; absent while no month closes",
};

/// The backlog of the closing month.
pub static MONTH_LEFT_SPANS: Metric = Metric {
    name: "sampler_month_left_spans",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "Spans with intervals of the previous month that are not sampled yet; absent while no month \
           closes",
};

pub static SUSPENDED_SPANS: Metric = Metric {
    name: "sampler_suspended_spans",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "Spans that are suspended, because the upstream refuses their usages",
};

/// The part of starts that is admitted.
pub static ADMISSION_RATE: Metric = Metric {
    name: "sampler_admission_rate",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The percentage of new starts that is admitted, for resources without a rate of their own",
};

/// Whether operators have paused sampling.
pub static SAMPLING_PAUSED: Metric = Metric {
    name: "sampler_sampling_paused",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while operators have paused sampling; 0 otherwise",
};

/// Whether the controller runs.
pub static CONTROLLER_RUNNING: Metric = Metric {
    name: "sampler_controller_running",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while the controller of starts is on and its parameters are right; 0 otherwise",
};

/// The measurement of the controller.
pub static CONTROLLER_NEEDED_SECONDS: Metric = Metric {
    name: "sampler_controller_needed_seconds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "How long the backlog needs, as the controller measured last; absent while it does not run",
};

/// A term of the controller: of the error.
pub static CONTROLLER_PROPORTIONAL: Metric = Metric {
    name: "sampler_controller_proportional",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The term of the error, as a share of all starts; absent while the controller does not run",
};

/// A term of the controller: of the sum of all errors.
pub static CONTROLLER_INTEGRAL: Metric = Metric {
    name: "sampler_controller_integral",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The term of the sum of all errors, as a share of all starts; absent while the controller does not run",
};

/// A term of the controller: of the change of the error.
pub static CONTROLLER_DERIVATIVE: Metric = Metric {
    name: "sampler_controller_derivative",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "The term of the change of the error, as a share of all starts; absent while the controller does not run",
};

/// How far a majority is behind.
pub static COMMIT_LAG_SECONDS: Metric = Metric {
    name: "sampler_commit_lag_seconds",
    program: Program::Both,
    kind: Kind::Gauge,
    labels: &[],
    help: "How far a majority of the replica set is behind its primary; absent while it is unknown",
};

/// Whether sampling pauses for the database.
pub static DISTRESS: Metric = Metric {
    name: "sampler_distress",
    program: Program::Worker,
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while this worker pauses sampling because the database cannot keep up; 0 otherwise",
};

/// Sums that do not add up.
pub static CONSERVATION_VIOLATIONS: Metric = Metric {
    name: "sampler_conservation_violations_total",
    program: Program::Worker,
    kind: Kind::Counter,
    labels: &[],
    help: "Spans whose durations were found not to add up to what was used",
};

/// The clock of the machine against the upstream's.
pub static CLOCK_OFFSET_SECONDS: Metric = Metric {
    name: "sampler_clock_offset_seconds",
    program: Program::Worker,
    kind: Kind::Gauge,
    labels: &[],
    help: "How far the clock of this machine is ahead of the upstream's; negative where it is behind. \
           Accurate to about a second, because `Date` has whole seconds. Absent while it is unknown, \
           and with `SAMPLER_SHADOW=true`",
};

/// Warnings and errors.
pub static LOG_EVENTS: Metric = Metric {
    name: "sampler_log_events_total",
    program: Program::Both,
    kind: Kind::Counter,
    labels: &[
        Label {
            name: "level",
            values: Values::Words(&["warn", "error"]),
        },
        Label {
            name: "code",
            values: Values::Bounded(
                "the codes that [operations.md](operations.md#what-the-log-says) explains; `none` for \
                 a line of a library",
            ),
        },
    ],
    help: "Warnings and errors in the log, as far as `LOG_LEVEL` lets them through",
};

/// All of them, in the order of the document.
pub static ALL: &[&Metric] = &[
    &HTTP_REQUESTS,
    &HTTP_REQUEST_DURATION_SECONDS,
    &EVENTS,
    &QUEUE_EVENTS,
    &COMMIT_BATCH_EVENTS,
    &COMMIT_SECONDS,
    &USAGES,
    &CONFIRMATIONS,
    &POST_SECONDS,
    &POST_CONCURRENCY,
    &BACKLOG_SPANS,
    &BACKLOG_OLDEST_SECONDS,
    &BACKLOG_SPAN_SECONDS,
    &MONTH_CLOSE_SECONDS,
    &MONTH_LEFT_SPANS,
    &SUSPENDED_SPANS,
    &ADMISSION_RATE,
    &SAMPLING_PAUSED,
    &CONTROLLER_RUNNING,
    &CONTROLLER_NEEDED_SECONDS,
    &CONTROLLER_PROPORTIONAL,
    &CONTROLLER_INTEGRAL,
    &CONTROLLER_DERIVATIVE,
    &COMMIT_LAG_SECONDS,
    &DISTRESS,
    &CONSERVATION_VIOLATIONS,
    &CLOCK_OFFSET_SECONDS,
    &LOG_EVENTS,
    &BUILD_INFO,
    &PROCESS_CPU_SECONDS,
    &PROCESS_RESIDENT_MEMORY_BYTES,
    &PROCESS_OPEN_FDS,
    &PROCESS_MAX_FDS,
    &PROCESS_START_TIME_SECONDS,
];
