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
    /// Whether there is a pause now, given whether there was one before.
    pub fn pauses(self, was_paused: bool, value: f64) -> bool {
        value > self.upper || (was_paused && value >= self.lower)
    }
}

#[cfg(test)]
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
        let values = [0.0, 20.0, 21.0, 6.0, 5.0, 4.0, 6.0];
        let expected = [false, false, true, true, true, false, false];
        assert_eq!(values.map(&mut see), expected);
    }
}
