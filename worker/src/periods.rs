//! How often a worker polls.

use std::time::Duration;

use sampler_steering::{EVENT_AGE_LIFETIME, FOLLOW_INTERVAL};

/// How often a worker polls for each kind of news. A simulation of months polls less often.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// How often a worker says that it is alive. After 20 s without that the others take over its spans.
    pub heartbeat: Duration,
    /// How long after its acceptance the upstream is first asked for a usage, and how often after that.
    pub confirmation: Duration,
    /// How often the worker checks whether a cause is to be probed.
    pub causes: Duration,
    /// How often watches are searched that are due, after a search that changed nothing.
    pub confirmations: Duration,
    /// How often the control document and the backlog are read.
    pub steering: Duration,
    /// How often the worker checks whether a step of the controller of starts is due.
    pub controller: Duration,
    /// The shortest time between two counts of the backlog.
    pub backlog: Duration,
    /// How much earlier receivers refuse an event than its span is removed.
    pub event_margin: Duration,
    /// How long receivers have to learn since when they take events, before spans are removed by that.
    pub notice: Duration,
    /// How often the worker checks whether a pause of sampling is over, and whether it knows the time.
    pub paused: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            confirmation: Duration::from_mins(5),
            causes: Duration::from_secs(5),
            confirmations: Duration::from_secs(5),
            steering: FOLLOW_INTERVAL,
            controller: Duration::from_secs(5),
            backlog: Duration::from_secs(2),
            event_margin: Duration::from_hours(1),
            notice: 2 * EVENT_AGE_LIFETIME,
            paused: Duration::from_millis(250),
        }
    }
}
