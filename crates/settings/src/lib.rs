//! The settings of the two programs.
//!
//! A setting is declared once (`settings.rs`): its name, its kind, its default, its range and its description stand in
//! one place. The code that uses a setting gets its whole group.
//!
//! Settings come from the environment, over a TOML file (`load.rs`). All mistakes are named at once: values that are
//! not of their kind (`kinds.rs`), and those that contradict each other (`check.rs`). The program then ends with exit
//! code 64.

mod check;
mod kinds;
mod load;
mod security;
mod settings;
mod table;

use std::time::Duration;

use sampler_domain::{
    Backoff, Bounds, Contract, Granularities, Granularity, Memory, Policy, Slack, Units,
};
use sampler_store_mongo::MongoOptions;
use secrecy::ExposeSecret;
use url::Url;

pub use kinds::{Horizon, LedgerRetention, UpstreamKind};
pub use load::{EarlyExit, Program, Variables, help, load, start};
pub use settings::*;
pub use table::{Of, Setting};

use table::Reader;

/// How long the driver looks for a suitable server.
const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a span waits after the first failed post of its usage.
const RETRY_FIRST: Duration = Duration::from_secs(1);

impl Settings {
    /// The defaults of the receiver.
    pub fn receiver() -> Self {
        Self::read(&mut Reader::new(Of::Receiver))
    }

    /// The defaults of the worker.
    pub fn worker() -> Self {
        Self::read(&mut Reader::new(Of::Worker))
    }

    /// The address that takes the usages, with the name of its setting.
    pub fn destination(&self) -> (&'static str, Option<&Url>) {
        match self.upstream.kind {
            UpstreamKind::Abacus => ("COLLECTOR_URL", self.delivery.collector_url.as_ref()),
            UpstreamKind::CloudEvents => ("SAMPLER_UPSTREAM_URL", self.upstream.url.as_ref()),
        }
    }

    /// How long the upstream recognises a repeat.
    pub fn contract(&self) -> Contract {
        match self.upstream.horizon {
            Some(Horizon::For(horizon)) => Contract::Forgets(Memory {
                horizon: millis(horizon),
                settles: millis(self.upstream.settles),
                post_timeout: millis(self.delivery.timeout),
            }),
            Some(Horizon::Forever) | None => Contract::Forever,
        }
    }
}

impl DatabaseSettings {
    /// The options of the driver. `app_name` is the program's name in the server's logs.
    pub fn options(&self, app_name: &str) -> MongoOptions {
        MongoOptions {
            uri: self.uri.address.expose_secret().to_owned(),
            database: self.uri.database.clone(),
            collection: self.collection.clone(),
            pool_size: u32::try_from(self.pool_size).unwrap_or(u32::MAX),
            server_selection_timeout: SERVER_SELECTION_TIMEOUT,
            operation_timeout: self.operation_timeout,
            app_name: app_name.to_owned(),
        }
    }
}

impl SamplingSettings {
    /// The policy of the domain. Without a granularity it is the minute: the finest one makes no span due
    /// too late.
    pub fn policy(&self) -> Policy {
        let default = self.dimension.unwrap_or(Granularity::Minute);
        let overrides = self.dimension_overrides.clone().unwrap_or_default();
        Policy {
            granularities: Granularities::new(default, overrides)
                .expect("duplicate overrides are refused when they are read"),
            stop_grace: millis(self.stop_grace),
        }
    }
}

impl SlackSettings {
    /// The slack of the domain.
    pub fn slack(&self) -> Slack {
        Slack {
            past: millis(self.past),
            future: millis(self.future),
        }
    }
}

impl ReadingSettings {
    /// The units of measures; none where they are not set.
    pub fn units(&self) -> Units {
        self.units.clone().unwrap_or_default()
    }
}

impl DeliverySettings {
    /// How long spans wait after failures.
    pub fn backoff(&self) -> Backoff {
        Backoff {
            first: millis(RETRY_FIRST),
            limit: millis(self.retry_limit),
        }
    }
}

impl DistressSettings {
    /// The bounds of the time of a commit, s.
    pub fn commit(&self) -> Bounds {
        Bounds {
            upper: self.commit_upper.as_secs_f64(),
            lower: self.commit_lower.as_secs_f64(),
        }
    }
}

/// Whole milliseconds; no setting takes more than fit.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
