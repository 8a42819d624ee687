//! When the database counts as being in distress.

use std::time::Duration;

use sampler_domain::Bounds;
use sampler_service::settings::{Kind, Reader, Setting};

use crate::{HOUR, SECOND, TEN_MILLIS};

/// Help of a setting that the receiver only checks.
const OF_WORKER: &str = "As for the worker. The receiver only checks it.";

sampler_service::settings! {
    /// When sampling pauses because the database cannot keep up.
    pub struct DistressSettings("distress", checked by DistressSettings::check) {
        /// Sampling pauses while a majority of the replica set is further behind its primary than
        /// this. At twice as much, the receiver admits fewer new starts.
        lag_upper: Duration = "SAMPLER_LAG_UPPER", Kind::Duration(SECOND, HOUR), or("20s");
        /// Sampling resumes once a majority is less far behind than this. It must be less than
        /// SAMPLER_LAG_UPPER.
        lag_lower: Duration = "SAMPLER_LAG_LOWER", Kind::Duration(SECOND, HOUR), or("5s");
        /// Sampling pauses while a write of the worker takes longer than this to reach the journals
        /// of a majority.
        commit_upper: Duration = "SAMPLER_COMMIT_UPPER", Kind::Duration(TEN_MILLIS, HOUR), or("5s");
        /// Sampling resumes once it takes less than this. It must be less than SAMPLER_COMMIT_UPPER.
        commit_lower: Duration = "SAMPLER_COMMIT_LOWER", Kind::Duration(TEN_MILLIS, HOUR), or("1s");
    }
}

impl DistressSettings {
    /// The receiver's table. It admits starts by one of these; the others are the worker's.
    pub const RECEIVER_TABLE: [Setting; 4] = {
        let [mut lag, mut lag_lower, mut commit_upper, mut commit_lower] = Self::TABLE;
        lag.doc = "The lag of a majority of the replica set at which sampling pauses, as for the \
            worker. At twice as much, the receiver admits fewer new starts.";
        lag_lower.doc = OF_WORKER;
        commit_upper.doc = OF_WORKER;
        commit_lower.doc = OF_WORKER;
        [lag, lag_lower, commit_upper, commit_lower]
    };

    /// The bounds of the lag, s.
    pub fn lag(&self) -> Bounds {
        bounds(self.lag_upper, self.lag_lower)
    }

    /// The bounds of the time of a commit, s.
    pub fn commit(&self) -> Bounds {
        bounds(self.commit_upper, self.commit_lower)
    }

    /// Checks that each pause can end.
    fn check(&self, reader: &mut Reader) {
        let otherwise = "sampling would pause and resume without end";
        for (lower, upper, fits) in [
            (
                "distress.lag_lower",
                "distress.lag_upper",
                self.lag_lower < self.lag_upper,
            ),
            (
                "distress.commit_lower",
                "distress.commit_upper",
                self.commit_lower < self.commit_upper,
            ),
        ] {
            reader.require(fits, lower, "be less than", upper, otherwise);
        }
    }
}

fn bounds(upper: Duration, lower: Duration) -> Bounds {
    Bounds {
        upper: upper.as_secs_f64(),
        lower: lower.as_secs_f64(),
    }
}
