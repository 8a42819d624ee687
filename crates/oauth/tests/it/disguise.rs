//! Public keys that are configured as shared ones: whoever has read them could sign tokens.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use sampler_oauth::{Algorithm, KeyError, Keys};
use sampler_testkit::uaa::SigningKey;
use serde_json::json;

/// A self-signed certificate of an RSA key.
const CERTIFICATE: &str = include_str!("certificate.pem");

fn body_of(pem: &str) -> String {
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    lines.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A key as OpenSSH writes it: a name and two numbers, each behind its length.
fn ssh_rsa(key: &SigningKey) -> String {
    let jwk = key.jwk();
    let number = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
    let modulus = [vec![0], number("n")].concat();
    let mut wire = Vec::new();
    for part in [b"ssh-rsa".to_vec(), number("e"), modulus] {
        wire.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
        wire.extend(part);
    }
    STANDARD.encode(wire)
}

/// All ways to write the text of a PEM that manifests, shells and forms are known for.
fn written(pem: &str) -> Vec<String> {
    let der = STANDARD.decode(body_of(pem)).unwrap();
    let lines = pem.lines().collect::<Vec<_>>();
    vec![
        pem.to_owned(),
        format!("\n{pem}"),
        format!("\\n{}", pem.replace('\n', "\\n")),
        pem.replace('\n', "\r\n"),
        pem.replace('\n', " "),
        pem.replace('\n', ""),
        format!("\"{pem}\""),
        format!("'{}'", pem.replace('\n', "\\n")),
        format!("\u{feff}{pem}"),
        format!("\u{200b} {pem}"),
        format!("JWTKEY={pem}"),
        pem.to_lowercase(),
        pem.replace("-----", "----"),
        pem.replace("-----", ""),
        lines[1..].join("\n"),
        body_of(pem),
        body_of(pem).replace('=', ""),
        format!(" {}\\n", body_of(pem)),
        format!("key:{}", body_of(pem)),
        lines[1].to_owned(),
        URL_SAFE.encode(&der),
        URL_SAFE_NO_PAD.encode(&der),
        hex(&der),
        hex(&der).to_uppercase(),
        STANDARD.encode(pem),
        STANDARD_NO_PAD.encode(STANDARD.encode(pem)),
        json!({ "alg": "RS256", "value": pem }).to_string(),
        json!(pem).to_string(),
        pem.replace('\n', "%0A").replace(' ', "%20"),
    ]
}

#[test]
fn a_public_key_is_no_shared_key_however_it_is_written() {
    let (rsa, p256) = (
        SigningKey::rsa("r").unwrap(),
        SigningKey::p256("p").unwrap(),
    );
    let mut disguises: Vec<String> = [&rsa.public_pem(), &p256.public_pem(), CERTIFICATE]
        .into_iter()
        .flat_map(written)
        .collect();
    let (jwk, of_p256) = (rsa.jwk(), p256.jwk());
    let point = [&of_p256["x"], &of_p256["y"]].map(|part| {
        let part = part.as_str().unwrap();
        URL_SAFE_NO_PAD.decode(part).unwrap()
    });
    let point = [vec![4], point.concat()].concat();
    let ssh = ssh_rsa(&rsa);
    disguises.extend([
        jwk.to_string(),
        of_p256.to_string(),
        json!({ "keys": [jwk] }).to_string(),
        json!([jwk]).to_string(),
        format!("\u{feff} {jwk}"),
        URL_SAFE_NO_PAD.encode(jwk.to_string()),
        jwk["n"].as_str().unwrap().to_owned(),
        hex(&URL_SAFE_NO_PAD.decode(jwk["n"].as_str().unwrap()).unwrap()),
        format!("ssh-rsa {ssh} somebody@somewhere"),
        format!("no-pty ssh-rsa {ssh}"),
        ssh,
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY".to_owned(),
        "---- BEGIN SSH2 PUBLIC KEY ----\nAAAA".to_owned(),
        "-----BEGIN nothing at all".to_owned(),
        "<RSAKeyValue><Modulus>AQAB</Modulus></RSAKeyValue>".to_owned(),
        "Modulus=C0FFEE".to_owned(),
        STANDARD.encode(&point),
        hex(&point),
        json!({ "kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMko" }).to_string(),
    ]);
    for disguise in disguises {
        for algorithm in [Algorithm::Hs256, Algorithm::Hs384, Algorithm::Hs512] {
            let said = Keys::configured(&disguise, algorithm).err();
            assert_eq!(said, Some(KeyError::Family), "{disguise:?}");
        }
    }
}

#[test]
fn a_shared_key_is_one() {
    let long = "0123456789abcdef".repeat(16);
    let bytes: Vec<u8> = (0..=255).collect();
    for shared in [
        "encode",
        "a passphrase of words, with spaces: 'quotes' and \"more\"",
        "tokenkey-with-BEGINNING",
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
        "d2hhdCBpcyBpbiBoZXJlIGlzIG5vIGtleSBhdCBhbGw=",
        "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00",
        "100% {braces} [brackets]",
        "30820122",
        &long,
        &STANDARD.encode(bytes),
    ] {
        assert!(
            Keys::configured(shared, Algorithm::Hs256).is_ok(),
            "{shared}"
        );
    }
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
