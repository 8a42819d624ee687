//! Certificates of authorities of our own, and TLS in front of what speaks without.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The file of a certificate: of an `authority` that only configured clients trust, of `another-authority`, or that the
/// first has issued for a `server` or a `client` on 127.0.0.1 and localhost. These hold the key, too, as MongoDB wants it.
/// All are valid until 2120.
pub fn certificate(name: &str) -> PathBuf {
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("certificates");
    certificates.join(name).with_extension("pem")
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
