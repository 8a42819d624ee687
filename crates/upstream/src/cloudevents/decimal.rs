//! Numbers as exact decimals: a peer that adds them up as floats gets what was sent.

use serde_json::Number;

/// `number` × `factor` as a decimal, without an exponent and without needless zeros. A double means the
/// shortest decimal that is read as it.
pub(super) fn product(number: &Number, factor: i64) -> String {
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_negative = whole.starts_with('-') != (factor < 0);
    let significand: u128 = format!("{}{fraction}", whole.trim_start_matches('-'))
        .parse()
        .expect("the digits of a 64-bit number");
    let exponent: i64 = exponent.parse().expect("the exponent of a double");
    let scale = exponent - i64::try_from(fraction.len()).expect("a double has few digits");
    // At most 20 digits, or 2^64, times 2^63.
    let product = significand * u128::from(factor.unsigned_abs());
    written(product, scale, is_negative)
}

/// `significand` × 10^`scale`.
fn written(mut significand: u128, mut scale: i64, is_negative: bool) -> String {
    if significand == 0 {
        return "0".to_owned();
    }
    while significand.is_multiple_of(10) {
        significand /= 10;
        scale += 1;
    }
    let digits = significand.to_string();
    let length = i64::try_from(digits.len()).expect("at most 39");
    let point = length + scale;
    let number = if scale >= 0 {
        format!("{digits}{}", zeros(scale))
    } else if point > 0 {
        let (whole, fraction) = digits.split_at(usize::try_from(point).expect("it is positive"));
        format!("{whole}.{fraction}")
    } else {
        format!("0.{}{digits}", zeros(-point))
    };
    if is_negative {
        format!("-{number}")
    } else {
        number
    }
}

fn zeros(count: i64) -> String {
    "0".repeat(usize::try_from(count).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(value: &Value, factor: i64) -> String {
        let Value::Number(number) = value else {
            panic!("a number")
        };
        product(number, factor)
    }

    #[test]
    fn numbers_are_exact_decimals() {
        for (value, text) in [
            (json!(512), "512"),
            (json!(512.0), "512"),
            (json!(0.5), "0.5"),
            (json!(-0.0), "0"),
            (json!(0), "0"),
            (json!(-7), "-7"),
            (json!(0.1), "0.1"),
            (json!(1e-7), "0.0000001"),
            (json!(1.5e-7), "0.00000015"),
            (json!(1e21), "1000000000000000000000"),
            (json!(1.234_567e300), &format!("1234567{}", "0".repeat(294))),
            (json!(123_456.75), "123456.75"),
            (json!(9_007_199_254_740_992_i64), "9007199254740992"),
            (json!(u64::MAX), "18446744073709551615"),
        ] {
            assert_eq!(of(&value, 1), text, "{value}");
        }
    }

    #[test]
    fn products_are_exact() {
        for (value, factor, text) in [
            (json!(512), -3_600_000, "-1843200000"),
            (json!(0.1), 3, "0.3"),
            (json!(-0.1), -3, "0.3"),
            (json!(0.1), 10, "1"),
            (json!(-5), 0, "0"),
            (json!(-0.0), -5, "0"),
            (
                json!(9_007_199_254_740_992_i64),
                i64::MAX,
                "83076749736557242047480742012780544",
            ),
            (
                json!(u64::MAX),
                i64::MIN,
                "-170141183460469231722463931679029329920",
            ),
            (json!(0.333_333_333_333_333_3), 3, "0.9999999999999999"),
        ] {
            assert_eq!(of(&value, factor), text, "{value} * {factor}");
        }
    }
}
