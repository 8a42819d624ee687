//! Distress: the database cannot keep up. Sampling can wait, so it pauses until the database keeps up
//! again.

/// The bounds of a pause. A value between them changes nothing, so that a value which moves around
/// one bound does not turn the pause on and off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Above it the pause begins.
    pub upper: f64,
    /// Below it the pause ends.
    pub lower: f64,
}

impl Bounds {
    /// Whether there is a pause now, given whether there was one before. An unknown value changes
    /// nothing.
    pub fn pauses(self, was_paused: bool, value: Option<f64>) -> bool {
        match value {
            Some(value) if value > self.upper => true,
            Some(value) if value < self.lower => false,
            _ => was_paused,
        }
    }

    /// The share of new starts that is admitted: all of them up to twice the upper bound, fewer the
    /// further the value is beyond it. The pause of sampling comes long before that.
    pub fn admitted_share(self, value: Option<f64>) -> f64 {
        let begins = 2.0 * self.upper;
        match value {
            Some(value) if value > begins && value > 0.0 => (begins / value).clamp(0.0, 1.0),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these numbers are exact")]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        upper: 20.0,
        lower: 5.0,
    };

    #[test]
    fn a_pause_begins_above_the_upper_bound_and_ends_below_the_lower_one() {
        let mut is_paused = false;
        let mut see = |value| {
            is_paused = BOUNDS.pauses(is_paused, value);
            is_paused
        };
        let values = [
            Some(0.0),
            Some(20.0),
            Some(21.0),
            Some(6.0),
            None,
            Some(5.0),
            Some(4.0),
            Some(6.0),
        ];
        let expected = [false, false, true, true, true, true, false, false];
        assert_eq!(values.map(&mut see), expected);
    }

    #[test]
    fn intake_slows_later_than_sampling() {
        assert_eq!(BOUNDS.admitted_share(None), 1.0);
        assert_eq!(BOUNDS.admitted_share(Some(40.0)), 1.0);
        assert_eq!(BOUNDS.admitted_share(Some(80.0)), 0.5);
    }
}
