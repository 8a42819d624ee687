//! Numbers, which are kept as they were sent, or not at all.
//!
//! They are read later by readers of JSON, and by programs in a language whose only number is the
//! double. An integer that a double holds is read by all of them alike; beyond 2^53 not every
//! integer is one. Those that are become doubles here, because a driver for such a language hands
//! out a 64-bit integer beyond 2^53 as something else than a number.

use serde_json::Number;

/// Up to this magnitude each integer is a double of its own.
const INTEGER_MAX: u64 = 1 << 53;

/// A double distinguishes numbers of up to 15 digits, and its shortest text never has more than 17.
const DIGITS_MAX: usize = 17;

/// So much of a number is repeated where it is refused, in bytes.
const SHOWN_MAX: usize = 40;

/// Why a number cannot be kept as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// An integer beyond 2^53 that no double is equal to.
    #[error("holds the integer {0}, which a double does not hold exactly: send it as a text")]
    Integer(String),
    /// A number that is larger than any double.
    #[error("holds the number {0}, which is larger than any double")]
    TooLarge(String),
    /// A number that is not zero, and would be as a double.
    #[error("holds the number {0}, which is so small that a double takes it for zero")]
    TooSmall(String),
    /// A number with more digits than a double can distinguish.
    #[error(
        "holds the number {0}, which has more than {DIGITS_MAX} digits: round it, or send it as a text"
    )]
    Digits(String),
}

/// Reads a number as JSON writes it.
pub fn read(text: &str) -> Result<Number, NumberError> {
    let is_integer = !text.contains(['.', 'e', 'E']);
    let number = if is_integer {
        integer(text)?
    } else {
        Number::from_f64(double(text)?)
    };
    number.ok_or_else(|| NumberError::TooLarge(shown(text)))
}

/// Whether each integer of this magnitude is a double of its own.
pub const fn is_safe(magnitude: u64) -> bool {
    magnitude <= INTEGER_MAX
}

fn integer(text: &str) -> Result<Option<Number>, NumberError> {
    // An integer knows no -0, a double does.
    if let Ok(small) = text.parse::<i64>()
        && is_safe(small.unsigned_abs())
        && text != "-0"
    {
        return Ok(Some(Number::from(small)));
    }
    match parsed(text) {
        Some(double) if format!("{double:.0}") == text => Ok(Number::from_f64(double)),
        _ => Err(NumberError::Integer(shown(text))),
    }
}

/// The nearest double of a number with a fraction or an exponent.
fn double(text: &str) -> Result<f64, NumberError> {
    let double = parsed(text).ok_or_else(|| NumberError::TooLarge(shown(text)))?;
    let digits = significant_digits(text);
    if double == 0.0 && digits > 0 {
        return Err(NumberError::TooSmall(shown(text)));
    }
    if digits > DIGITS_MAX {
        return Err(NumberError::Digits(shown(text)));
    }
    Ok(double)
}

/// The standard library rounds correctly, whatever the number of digits.
fn parsed(text: &str) -> Option<f64> {
    text.parse().ok().filter(|double: &f64| double.is_finite())
}

/// Digits without the zeros in front and behind.
fn significant_digits(text: &str) -> usize {
    let end = text.find(['e', 'E']).unwrap_or(text.len());
    let digits = text[..end].bytes().filter(u8::is_ascii_digit);
    let numbered = (1..).zip(digits.skip_while(|digit| *digit == b'0'));
    let last = numbered.filter(|(_, digit)| *digit != b'0').last();
    last.map_or(0, |(number, _)| number)
}

fn shown(text: &str) -> String {
    match text.get(..SHOWN_MAX) {
        Some(front) if text.len() > SHOWN_MAX => format!("{front}…"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(text: &str) -> String {
        read(text).unwrap().to_string()
    }

    #[test]
    fn integers_are_kept_exactly_or_refused() {
        for text in ["0", "-1", "9007199254740992", "-9007199254740992"] {
            assert!(read(text).unwrap().is_i64(), "{text}");
            assert_eq!(kept(text), text);
        }
        for text in [
            "9007199254740994",
            "9223372036854775808",
            "-9223372036854775808",
            "18446744073709549568",
            "10000000000000000000000",
            "-0",
        ] {
            let number = read(text).unwrap();
            assert!(number.is_f64(), "{text}");
            assert_eq!(format!("{:.0}", number.as_f64().unwrap()), text);
        }
        for text in [
            "9007199254740993",
            "9223372036854775807",
            "-9223372036854775809",
            "18446744073709551615",
            "100000000000000000000000001",
            "100000000000000000000000000",
        ] {
            assert_eq!(read(text), Err(NumberError::Integer(text.to_owned())));
        }
        let long = "9".repeat(400);
        assert_eq!(
            read(&long).unwrap_err().to_string().len(),
            NumberError::Integer(String::new()).to_string().len() + SHOWN_MAX + "…".len()
        );
    }

    #[test]
    fn fractions_are_rounded_correctly_or_refused() {
        for (text, double) in [
            ("1.0", 1.0),
            ("1e2", 100.0),
            ("31.245270191439438", 31.245_270_191_439_438),
            ("0.10000000000000001", 0.1),
            ("0.1000000000000000000000000000000", 0.1),
            ("00.5", 0.5),
            ("-0.0", -0.0),
            ("0e-999", 0.0),
            ("5e-324", 5e-324),
            ("1.7976931348623157E+308", f64::MAX),
        ] {
            let number = read(text).unwrap().as_f64().unwrap();
            assert_eq!(number.to_bits(), double.to_bits(), "{text}");
        }
        let refused = |text: &str| read(text).unwrap_err();
        assert_eq!(refused("1.8e308"), NumberError::TooLarge("1.8e308".into()));
        assert_eq!(refused("-1e-324"), NumberError::TooSmall("-1e-324".into()));
        for text in [
            "0.100000000000000012",
            "123456789.0123456789",
            "1.00000000000000000001e3",
        ] {
            assert_eq!(refused(text), NumberError::Digits(text.into()));
        }
    }

    proptest! {
        #[test]
        fn the_shortest_text_of_each_double_is_read_as_that_double(bits in any::<u64>()) {
            let double = f64::from_bits(bits);
            prop_assume!(double.is_finite());
            let text = Number::from_f64(double).unwrap().to_string();
            let number = read(&text).unwrap().as_f64().unwrap();
            prop_assert_eq!(number.to_bits(), bits, "{}", text);
        }

        #[test]
        fn an_integer_is_kept_exactly_or_refused(integer in any::<i128>(), shift in 0_u32..127) {
            let text = (integer >> shift).to_string();
            if let Ok(number) = read(&text) {
                let whole = number.as_i64().map(|integer| integer.to_string());
                let kept = whole.unwrap_or_else(|| format!("{:.0}", number.as_f64().unwrap()));
                prop_assert_eq!(kept, text);
            } else {
                prop_assert!((integer >> shift).unsigned_abs() > u128::from(INTEGER_MAX));
            }
        }
    }
}
