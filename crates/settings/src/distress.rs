//! When the database counts as being in distress.

use std::time::Duration;

use sampler_domain::Bounds;
use sampler_service::settings::{Kind, Reader};

use crate::{HOUR, TEN_MILLIS};

sampler_service::settings! {
    /// When sampling pauses because the database cannot keep up.
    pub struct DistressSettings("distress", checked by DistressSettings::check) {
        /// Sampling pauses while a write of the worker takes longer than this to reach the journals
        /// of a majority.
        commit_upper: Duration = "SAMPLER_COMMIT_UPPER", Kind::Duration(TEN_MILLIS, HOUR), or("5s");
        /// Sampling resumes once it takes less than this. It must be less than SAMPLER_COMMIT_UPPER.
        commit_lower: Duration = "SAMPLER_COMMIT_LOWER", Kind::Duration(TEN_MILLIS, HOUR), or("1s");
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

    /// Checks that each pause can end.
    fn check(&self, reader: &mut Reader) {
        reader.require(
            self.commit_lower < self.commit_upper,
            "distress.commit_lower",
            "be less than",
            "distress.commit_upper",
            "sampling would pause and resume without end",
        );
    }
}
