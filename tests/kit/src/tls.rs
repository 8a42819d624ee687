//! Certificates of an authority of our own, and TLS in front of what speaks without.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An authority that only configured clients trust, with a folder for its certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    /// A new authority of that name.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let folder = TempDir::with_prefix("sampler-tls-").context("a folder for certificates")?;
        fs::write(folder.path().join("ca.pem"), issuer.pem()).context("writing a certificate")?;
        Ok(Self { issuer, folder })
    }

    /// The file of its own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate for 127.0.0.1 and localhost, for a server or a client of that name.
    /// The file holds its key, too, as MongoDB wants it.
    pub fn issue(&self, name: &str) -> Result<PathBuf> {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let path = self.folder.path().join(format!("{name}.pem"));
        let text = format!("{}{}", certificate.pem(), key.serialize_pem());
        fs::write(&path, text).context("writing a certificate")?;
        Ok(path)
    }
}

/// Speaks TLS on a port of its own, and passes on what it hears. It goes when this value goes.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl TlsFront {
    /// Starts in front of `behind`, with the certificate and key of a file.
    pub async fn start(behind: SocketAddr, file: &Path) -> Result<Self> {
        let certificate = CertificateDer::from_pem_file(file).context("a certificate")?;
        let key = PrivateKeyDer::from_pem_file(file).context("a key")?;
        let config = ServerConfig::builder_with_provider(Arc::new(
            tokio_rustls::rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = tokio::spawn(serve(listener, acceptor, behind));
        Ok(Self { address, serving })
    }

    pub fn base_url(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, behind: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // Who does not trust the certificate goes away in the middle of it.
            let mut front = acceptor.accept(stream).await.ok()?;
            let mut back = TcpStream::connect(behind).await.ok()?;
            copy_bidirectional(&mut front, &mut back).await.ok()
        });
        while connections.try_join_next().is_some() {}
    }
}
