//! Keys, and tokens signed with them: also such as no honest server would make.

use anyhow::{Result, anyhow};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RsaKeyPair, RsaPublicKeyComponents,
};
use aws_lc_rs::{hmac, rsa};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A key that signs tokens.
#[derive(Debug)]
pub struct SigningKey {
    id: String,
    pair: Pair,
}

#[derive(Debug)]
enum Pair {
    Shared(Vec<u8>),
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
}

impl SigningKey {
    /// A key that both sides know.
    pub fn shared(secret: &[u8]) -> Self {
        Self {
            id: "shared".to_owned(),
            pair: Pair::Shared(secret.to_vec()),
        }
    }

    /// A new RSA key of that name.
    pub fn rsa(id: &str) -> Result<Self> {
        let pair = rsa::KeyPair::generate(KeySize::Rsa2048);
        let pair = pair.map_err(|_| anyhow!("an RSA key could not be made"))?;
        Ok(Self {
            id: id.to_owned(),
            pair: Pair::Rsa(pair),
        })
    }

    /// A new key on the curve P-256, of that name.
    pub fn p256(id: &str) -> Result<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        let pair = pair.map_err(|_| anyhow!("a P-256 key could not be made"))?;
        Ok(Self {
            id: id.to_owned(),
            pair: Pair::P256(pair),
        })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public half as a JWK; of a shared key, the key.
    pub fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Shared(secret) => {
                json!({ "kty": "oct", "kid": self.id, "k": encode(secret) })
            }
            Pair::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                let (n, e) = (encode(&public.n), encode(&public.e));
                json!({ "kty": "RSA", "use": "sig", "kid": self.id, "n": n, "e": e })
            }
            Pair::P256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                let (x, y) = (encode(x), encode(y));
                json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "x": x, "y": y })
            }
        }
    }

    /// The public half as PEM.
    ///
    /// # Panics
    ///
    /// Where it is a shared key.
    pub fn public_pem(&self) -> String {
        let der: Vec<u8> = match &self.pair {
            Pair::Shared(_) => panic!("a shared key has no public half"),
            Pair::Rsa(pair) => {
                let der = pair.public_key().as_der();
                der.expect("a public key has a form").as_ref().to_vec()
            }
            Pair::P256(pair) => {
                let der = pair.public_key().as_der();
                der.expect("a public key has a form").as_ref().to_vec()
            }
        };
        pem("PUBLIC KEY", &der)
    }

    /// The private half as PEM.
    ///
    /// # Panics
    ///
    /// Where it is no RSA key.
    pub fn private_pem(&self) -> String {
        let Pair::Rsa(pair) = &self.pair else {
            panic!("only RSA keys are shown")
        };
        let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> =
            pair.as_der().expect("a private key has a form");
        pem("PRIVATE KEY", der.as_ref())
    }

    /// A token of header and claims, as they are, signed as `algorithm` says whatever the header
    /// says.
    ///
    /// # Panics
    ///
    /// Where the key is none for the algorithm.
    pub fn token(&self, algorithm: &str, header: &str, claims: &str) -> String {
        let message = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.sign(algorithm, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match (&self.pair, algorithm) {
            (Pair::Shared(secret), "HS256" | "HS384" | "HS512") => {
                let digest = match algorithm {
                    "HS256" => hmac::HMAC_SHA256,
                    "HS384" => hmac::HMAC_SHA384,
                    _ => hmac::HMAC_SHA512,
                };
                let key = hmac::Key::new(digest, secret);
                hmac::sign(&key, message).as_ref().to_vec()
            }
            (Pair::Rsa(pair), "RS256" | "RS384" | "RS512") => {
                let padding = match algorithm {
                    "RS256" => &RSA_PKCS1_SHA256,
                    "RS384" => &RSA_PKCS1_SHA384,
                    _ => &RSA_PKCS1_SHA512,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                let signed = pair.sign(padding, &random, message, &mut signature);
                signed.expect("an RSA key signs");
                signature
            }
            (Pair::P256(pair), "ES256") => {
                let signature = pair.sign(&random, message).expect("a P-256 key signs");
                signature.as_ref().to_vec()
            }
            _ => panic!("the key {} does not sign {algorithm}", self.id),
        }
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: Vec<&str> = (0..base64.len())
        .step_by(64)
        .map(|from| &base64[from..base64.len().min(from + 64)])
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}
