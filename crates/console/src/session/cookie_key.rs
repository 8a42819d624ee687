//! The key of an encrypted cookie.
//!
//! The format is that of the crate `cookie`, which was used before: AES-256-GCM, with the name of the
//! cookie as associated data. So people stay signed in when the receiver is updated. That crate
//! brings a second cryptography library; this code uses the library of TLS.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The name of what is derived: a key to sign, and one to encrypt.
const INFO: &[u8] = b"COOKIE;SIGNED:HMAC-SHA256;PRIVATE:AEAD-AES-256-GCM";

pub(super) const KEY_LEN: usize = 32;

pub(super) struct CookieKey(RandomizedNonceKey);

impl CookieKey {
    pub(super) fn of_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        let key = RandomizedNonceKey::new(&AES_256_GCM, bytes);
        Self(key.expect("a key of 32 bytes"))
    }

    /// The second of two blocks that HKDF expands this material to (RFC 5869, section 2.3). The first would be
    /// the key to sign.
    pub(super) fn derived_from(material: &[u8]) -> Self {
        let key = hmac::Key::new(HMAC_SHA256, material);
        let first = hmac::sign(&key, &[INFO, &[1][..]].concat());
        let second = hmac::sign(&key, &[first.as_ref(), INFO, &[2][..]].concat());
        let bytes: Result<&[u8; KEY_LEN], _> = second.as_ref().try_into();
        Self::of_bytes(bytes.expect("SHA-256 has 32 bytes"))
    }

    /// The value of the cookie of this name: a nonce, then the content and its tag.
    pub(super) fn seal(&self, name: &str, content: &str) -> Option<String> {
        let mut sealed = content.as_bytes().to_vec();
        let name = Aad::from(name.as_bytes());
        let nonce = self.0.seal_in_place_append_tag(name, &mut sealed).ok()?;
        Some(STANDARD.encode([&nonce.as_ref()[..], &sealed[..]].concat()))
    }

    /// The content of the cookie of this name, if this key has sealed it.
    pub(super) fn open(&self, name: &str, value: &str) -> Option<String> {
        let mut bytes = STANDARD.decode(value).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let name = Aad::from(name.as_bytes());
        let content = self.0.open_in_place(nonce, name, sealed).ok()?;
        String::from_utf8(content.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a receiver with the crate `cookie` 0.18.2 sent, whose key was derived from this material.
    const MATERIAL: &str = "32:kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk0:0:0:";
    const NAME: &str = "sampler_console";
    const SEALED: &str = "bK6bqQVqzD8Wu7mbRYsxVbvDlcneZknQ128t5/+U/JBzoESy8d8//MpLbu+zqWkcvZ0jOrNzvnuAfoB7ne1N5UtZLEDnN/ULU34Ut3tyn3A1cme6YhaQg1SSzYRBzunFeS7XLJ5PWUteHmJQ8tIkYaU8olzdNQ==";
    const CONTENT: &str = r#"{"csrf":"TFmI8cV6LrDYED8-OXgyKbQjioashgyUcMwvhhWt6lw","until":1796268007302,"person":null}"#;

    #[test]
    fn what_an_earlier_release_sealed_is_opened() {
        let key = CookieKey::derived_from(MATERIAL.as_bytes());
        assert_eq!(key.open(NAME, SEALED).as_deref(), Some(CONTENT));
        assert_eq!(key.open("another", SEALED), None);
        let sealed = key.seal(NAME, CONTENT).unwrap();
        assert_eq!(sealed.len(), SEALED.len());
        assert_ne!(sealed, key.seal(NAME, CONTENT).unwrap());
        for short in ["", "AAAA", "not base64"] {
            assert_eq!(key.open(NAME, short), None);
        }
    }
}
