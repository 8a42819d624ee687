//! Finds public keys that are configured as shared keys.
//!
//! With HS256 and its like, everybody with the key can sign tokens. A public key is known to
//! everybody, and has many forms. So a text that can be read as a public key in any form, or as a
//! piece of one, is refused as a shared key. A random key does not look like one.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// How many times a text is decoded, such as a PEM in JSON in base64.
const DEPTH: u32 = 3;

/// Texts that occur in keys, in capitals and without white space.
const MARKS: [&str; 15] = [
    "BEGINPUBLIC",
    "BEGINRSA",
    "BEGINEC",
    "BEGINCERTIFICATE",
    "BEGINSSH",
    "-----BEGIN",
    "SSH-RSA",
    "SSH-DSS",
    "SSH-ED25519",
    "ECDSA-SHA2-",
    "PUTTY-USER-KEY",
    "<RSAKEYVALUE",
    "MODULUS=",
    "MODULUS:",
    "\"KTY\"",
];

/// Base64 that occurs in keys, at any position: object identifiers of RSA and of elliptic curves, the
/// names that OpenSSH writes, `-----BEGIN`.
const PIECES: [&str; 8] = [
    "BgkqhkiG9w0BAQ",
    "YHKoZIzj0CAQ",
    "MIIBCgKCAQEA",
    "MIICCgKCAgEA",
    "AAAAB3NzaC1yc2E",
    "AAAAE2VjZHNhLX",
    "AAAAC3NzaC1lZDI1",
    "LS0tLS1CRUdJTi",
];

/// Object identifiers of RSA and of keys on elliptic curves, in DER.
const IDENTIFIERS: [&[u8]; 2] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01],
];

/// Lengths of RSA moduli, in bytes.
const MODULI: [usize; 4] = [256, 384, 512, 1024];

/// Lengths of points on P-256, P-384 and P-521, uncompressed, in bytes.
const POINTS: [usize; 3] = [65, 97, 133];

/// The shortest DER that can be a key, in bytes.
const DER_LEN_MIN: usize = 32;

const ENGINE: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// Whether a text is a public key, a piece of one, or contains one.
pub(crate) fn looks_public(text: &str) -> bool {
    is_key(text.as_bytes(), DEPTH)
}

fn is_key(bytes: &[u8], depth: u32) -> bool {
    is_binary_key(bytes) || std::str::from_utf8(bytes).is_ok_and(|text| is_text_key(text, depth))
}

fn is_text_key(text: &str, depth: u32) -> bool {
    // Line breaks are often written as `\n`. These characters belong to no form of a key.
    let text = text.replace("\\n", "\n").replace("\\r", "\n");
    let is_filler =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{feff}' | '\u{200b}');
    let packed = text.replace(is_filler, "");
    let capitals = packed.to_ascii_uppercase();
    if MARKS.iter().any(|mark| capitals.contains(mark))
        || PIECES.iter().any(|piece| packed.contains(piece))
    {
        return true;
    }
    match serde_json::from_str(&packed) {
        Ok(Value::Object(_) | Value::Array(_)) => return true,
        Ok(Value::String(inner)) if depth > 0 && is_key(inner.as_bytes(), depth - 1) => {
            return true;
        }
        _ => {}
    }
    depth > 0
        && decoded(&packed)
            .iter()
            .any(|bytes| is_key(bytes, depth - 1))
}

/// A text decoded in each possible way: percent-encoding, hexadecimal digits, base64.
fn decoded(packed: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if packed.contains('%') {
        all.push(percent_decode_str(packed).collect());
    }
    let digits: Vec<u8> = packed.bytes().filter(|byte| *byte != b':').collect();
    all.extend(from_hex(&digits));
    for alphabet in [&STANDARD, &URL_SAFE] {
        let is_digit = |c: &char| c.is_ascii() && alphabet.as_str().contains(*c);
        let digits: String = packed.chars().filter(is_digit).collect();
        let engine = GeneralPurpose::new(alphabet, ENGINE);
        // Text before it, such as a name, can shift the groups of four digits.
        all.extend((0..4).filter_map(|skipped| {
            let digits = digits.get(skipped..)?;
            // A single last digit carries no whole byte. Without it the rest can be decoded.
            let whole = digits.len() - usize::from(digits.len() % 4 == 1);
            engine.decode(&digits[..whole]).ok()
        }));
    }
    all
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(value(*high)? * 16 + value(*low)?).ok(),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

fn is_binary_key(bytes: &[u8]) -> bool {
    let holds = |identifier: &&[u8]| {
        bytes
            .windows(identifier.len())
            .any(|part| part == *identifier)
    };
    let is_of_openssh = |name: &[u8]| bytes.starts_with(&[0, 0, 0]) && bytes[3..].starts_with(name);
    let is_point = POINTS.contains(&bytes.len()) && bytes.first() == Some(&4);
    is_der(bytes)
        || IDENTIFIERS.iter().any(holds)
        || (0..32).any(|length| is_of_openssh(&[&[length], &b"ssh-"[..]].concat()))
        || is_point
        || is_modulus(bytes)
}

/// Whether this is one DER sequence, or the beginning of a sequence within a sequence.
fn is_der(bytes: &[u8]) -> bool {
    let length = match bytes {
        [0x30, 0x82, _, _, 0x30, ..] => return true,
        [0x30, 0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        [0x30, 0x81, length, ..] => 3 + usize::from(*length),
        [0x30, length @ ..=0x7f, ..] => 2 + usize::from(*length),
        _ => return false,
    };
    bytes.len() >= DER_LEN_MIN && bytes.len() == length
}

/// Whether these bytes can be an RSA modulus. Random bytes of that length usually have small factors;
/// a modulus has none.
fn is_modulus(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(&[0]).unwrap_or(bytes);
    let remainder = |divisor: u32| {
        let next = |rest: u32, byte: &u8| (rest * 256 + u32::from(*byte)) % divisor;
        bytes.iter().fold(0, next)
    };
    MODULI.contains(&bytes.len())
        && bytes.first().is_some_and(|first| *first >= 0x80)
        && (2..1_000).all(|divisor| remainder(divisor) != 0)
}
