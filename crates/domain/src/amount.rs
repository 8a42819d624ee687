//! The sums of usages: quantities times durations, exactly where numbers are whole.

use serde_json::{Number, Value};

/// A sum of quantity × duration in ms.
///
/// Products of whole numbers are added up in 128 bits, all others as doubles. One quantity that is not a
/// number leaves no sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amount {
    whole: i128,
    rest: Option<f64>,
    is_odd: bool,
}

impl Amount {
    /// Adds a quantity for as long as usages with it last together, in ms. A duration that is not a
    /// 64-bit integer makes the sum a double.
    pub fn add(&mut self, quantity: &Value, duration: &Number) {
        let Value::Number(quantity) = quantity else {
            self.is_odd = true;
            return;
        };
        match (whole(quantity), duration.as_i64().map(i128::from)) {
            // Both fit 64 bits, so the product fits 128.
            (Some(quantity), Some(duration)) => self.add_whole(quantity * duration),
            _ => self.add_double(double(quantity) * double(duration)),
        }
    }

    fn add_whole(&mut self, product: i128) {
        match self.whole.checked_add(product) {
            Some(sum) => self.whole = sum,
            None => self.add_double(rounded(product)),
        }
    }

    fn add_double(&mut self, product: f64) {
        *self.rest.get_or_insert(0.0) += product;
    }

    /// The sum: an integer where all that was added is whole and it fits 64 bits, or else the nearest
    /// double. None where a quantity is not a number, or the sum is larger than any double.
    pub fn number(&self) -> Option<Number> {
        let whole = i64::try_from(self.whole).ok();
        match (self.is_odd, self.rest, whole) {
            (true, ..) => None,
            (false, None, Some(whole)) => Some(Number::from(whole)),
            (false, rest, _) => Number::from_f64(rounded(self.whole) + rest.unwrap_or(0.0)),
        }
    }
}

/// The number, where it is whole and fits 64 bits, however it is written.
fn whole(number: &Number) -> Option<i128> {
    let integer = number.as_i64().map(i128::from);
    integer.or_else(|| {
        let double = number.as_f64()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "held at the limits of i128"
        )]
        let integer = double as i128;
        let is_whole = double.fract() == 0.0 && i64::try_from(integer).is_ok();
        is_whole.then_some(integer)
    })
}

fn double(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is meant")]
fn rounded(integer: i128) -> f64 {
    integer as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn sum(parts: &[(Value, i64)]) -> String {
        let mut amount = Amount::default();
        for (quantity, duration) in parts {
            amount.add(quantity, &Number::from(*duration));
        }
        amount.number().map_or("null".into(), |it| it.to_string())
    }

    #[test]
    fn integers_are_exact_up_to_64_bits() {
        let max = (1_i64 << 53, 1_i64 << 10);
        assert_eq!(sum(&[]), "0");
        assert_eq!(
            sum(&[(json!(max.0), max.1 - 1), (json!((1_i64 << 53) - 1), 1)]),
            "9223372036854775807"
        );
        assert_eq!(sum(&[(json!(max.0), max.1)]), "9.223372036854776e+18");
        assert_eq!(sum(&[(json!(-max.0), max.1)]), "-9223372036854775808");
        assert_eq!(
            sum(&[(json!(-max.0), max.1), (json!(-1), 1)]),
            "-9.223372036854776e+18"
        );
        // Far beyond in between.
        let far = [
            (json!(i64::MAX), i64::MAX),
            (json!(i64::MAX), -i64::MAX),
            (json!(7), 1),
        ];
        assert_eq!(sum(&far), "7");
        assert_eq!(
            sum(&[(json!(512.0), 3), (json!(9_007_199_254_740_994.0), 1)]),
            "9007199254742530"
        );
    }

    #[test]
    fn what_is_not_whole_is_a_double_and_what_is_no_number_is_nothing() {
        assert_eq!(sum(&[(json!(0.5), 3), (json!(1), 1)]), "2.5");
        assert_eq!(sum(&[(json!(0.5), 2)]), "1.0");
        assert_eq!(sum(&[(json!(1e300), 1)]), "1e+300");
        assert_eq!(sum(&[(json!(1e308), 100)]), "null");
        for odd in [json!("8"), json!([1]), json!({"a": 1}), Value::Null] {
            assert_eq!(sum(&[(json!(1), 1), (odd, 1), (json!(1), 1)]), "null");
        }
        let mut amount = Amount::default();
        amount.add(&json!(2), &Number::from_f64(1e19).unwrap());
        assert_eq!(amount.number(), Number::from_f64(2e19));
    }

    #[test]
    fn beyond_128_bits_is_a_double() {
        let far = [
            (json!(i64::MIN), i64::MIN),
            (json!(i64::MIN), i64::MIN),
            (json!(1), 0),
        ];
        assert_eq!(
            sum(&far),
            2_f64
                .powi(127)
                .to_string()
                .parse::<f64>()
                .map(|it| json!(it).to_string())
                .unwrap()
        );
    }

    proptest! {
        #[test]
        fn the_order_of_whole_parts_changes_nothing(
            parts in proptest::collection::vec((any::<i64>(), -1_000_000_000_i64..1_000_000_000), 0..20)
        ) {
            let exact: i128 = parts.iter().map(|(q, d)| i128::from(*q) * i128::from(*d)).sum();
            let parts: Vec<_> = parts.into_iter().map(|(q, d)| (json!(q), d)).collect();
            let turned: Vec<_> = parts.iter().rev().cloned().collect();
            prop_assert_eq!(sum(&parts), sum(&turned));
            if let Ok(exact) = i64::try_from(exact) {
                prop_assert_eq!(sum(&parts), exact.to_string());
            }
        }
    }
}
