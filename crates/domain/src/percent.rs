//! Percentages.

use serde::{Deserialize, Serialize, Serializer};

/// A percentage from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Percent(f64);

#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("must be a number from 0 to 100")]
pub struct PercentError;

impl Percent {
    pub const NONE: Self = Self(0.0);
    pub const ALL: Self = Self(100.0);

    /// Takes a number from 0 to 100.
    pub fn new(percent: f64) -> Result<Self, PercentError> {
        if (0.0..=100.0).contains(&percent) {
            return Ok(Self(percent));
        }
        Err(PercentError)
    }

    /// The percentage of a share from 0 to 1. A share beyond a limit counts as the limit.
    pub fn of_share(share: f64) -> Self {
        if share.is_nan() {
            return Self(0.0);
        }
        Self(share.clamp(0.0, 1.0) * 100.0)
    }

    /// The number, from 0 to 100.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The share, from 0 to 1.
    pub fn share(self) -> f64 {
        self.0 / 100.0
    }

    /// This percentage of another one.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        // No rounding makes this more than either.
        Self((self.0 * other.0 / 100.0).min(self.0).min(other.0))
    }
}

impl TryFrom<f64> for Percent {
    type Error = PercentError;
    fn try_from(percent: f64) -> Result<Self, Self::Error> {
        Self::new(percent)
    }
}

impl From<Percent> for f64 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

/// Writes whole numbers as people write them: 100 and not 100.0.
pub fn plain<S: Serializer>(
    number: &(impl Copy + Into<f64>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    /// Every whole number up to it is exact as a double.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    let number: f64 = (*number).into();
    if number.fract() == 0.0 && number.abs() <= WHOLE_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
        return serializer.serialize_i64(number as i64);
    }
    serializer.serialize_f64(number)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these numbers are exact")]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_from_0_to_100() {
        for number in [0.0, 0.1, 100.0] {
            assert_eq!(Percent::new(number).map(Percent::get), Ok(number));
        }
        for number in [-0.1, 100.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Percent::new(number), Err(PercentError));
        }
        assert_eq!(Percent::of_share(f64::NAN), Percent::NONE);
        assert_eq!(Percent::of_share(7.0), Percent::ALL);
    }

    #[test]
    fn percentages_multiply() {
        let half = Percent::of_share(0.5);
        assert_eq!(half.times(half).get(), 25.0);
        assert_eq!(half.times(Percent::ALL), half);
        assert_eq!(Percent::NONE.times(half), Percent::NONE);
    }
}
