//! Shared keys: whoever has read a public key that is configured as one could sign tokens.

use sampler_oauth::{Algorithm, KeyError, Keys};
use sampler_testkit::uaa::SigningKey;

#[test]
fn a_public_key_is_refused_as_a_shared_one() {
    let pem = SigningKey::rsa("r").unwrap().public_pem();
    for public in [
        pem.clone(),
        format!("\n  {pem}"),
        format!("\\n{}", pem.replace('\n', "\\n")),
        "-----BEGIN CERTIFICATE-----".to_owned(),
        "ssh-rsa AAAAB3NzaC1yc2E somebody@somewhere".to_owned(),
        " ssh-ed25519 AAAAC3NzaC1lZDI1".to_owned(),
    ] {
        for algorithm in [Algorithm::Hs256, Algorithm::Hs384, Algorithm::Hs512] {
            let said = Keys::configured(&public, algorithm).err();
            assert_eq!(said, Some(KeyError::Family), "{public:?}");
        }
    }
}

#[test]
fn any_other_text_is_a_shared_key() {
    for shared in [
        "encode",
        "a passphrase of words, with spaces: 'quotes' and \"more\"",
        "tokenkey-with-BEGINNING",
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
        "100% {braces} [brackets]",
    ] {
        let key = Keys::configured(shared, Algorithm::Hs256);
        assert!(key.is_ok(), "{shared}");
    }
    let empty = Keys::configured(" \n", Algorithm::Hs256);
    assert_eq!(empty.err(), Some(KeyError::Family));
}

#[test]
fn a_shared_key_is_as_long_as_the_hash() {
    for (algorithm, length) in [
        (Algorithm::Hs256, 32),
        (Algorithm::Hs384, 48),
        (Algorithm::Hs512, 64),
    ] {
        assert!(Keys::is_short(&"x".repeat(length - 1), algorithm));
        assert!(!Keys::is_short(&"x".repeat(length), algorithm));
    }
    assert!(!Keys::is_short("", Algorithm::Rs256));
}
