//! TLS of our own, for deployments without a router that speaks it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// The interval of the checks whether the files have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// In bytes.
const FILE_LEN_MAX: u64 = 1024 * 1024;

/// Where the certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority, as PEM.
    pub certificate: PathBuf,
    /// The key of the certificate, as PEM.
    pub key: PathBuf,
    /// The authorities of clients, as PEM. Where they are given, clients must show a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Why TLS cannot be spoken with these files. Nothing of what is in them is in here.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate {0}")]
    Certificate(FileError),
    #[error("the key {0}")]
    Key(FileError),
    #[error("the file of client authorities {0}")]
    ClientAuthorities(FileError),
    /// The key is another one's.
    #[error("the key is not that of the certificate")]
    Mismatch,
    /// The library will not have them.
    #[error("the certificate or its key is of a kind that cannot be used")]
    Unusable,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("is larger than any that would make sense")]
    TooLarge,
    /// It has no item of this kind.
    #[error("holds none as PEM, or none that is readable without a password")]
    Empty,
}

/// TLS as it is to be spoken now. Clones are the same.
#[derive(Clone)]
pub struct Tls {
    files: Arc<TlsFiles>,
    current: Arc<RwLock<Current>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// The configuration that was read, and the stamps of its files.
struct Current {
    stamps: Stamps,
    config: Arc<ServerConfig>,
}

/// When each of the files was changed last.
type Stamps = Vec<Option<SystemTime>>;

impl Tls {
    /// Reads the files.
    pub fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let current = Current {
            stamps: files.stamps(),
            config: files.load()?,
        };
        Ok(Self {
            files: Arc::new(files),
            current: Arc::new(RwLock::new(current)),
        })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current.config))
    }

    /// The stamps of the files that were read.
    fn stamps(&self) -> Stamps {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.stamps.clone()
    }

    /// Reads the files again whenever they change. If they cannot be used, that is logged, and the
    /// files from before stay in force. Never ends.
    pub async fn keep_fresh(&self) {
        loop {
            sleep(LOOK_INTERVAL).await;
            self.refresh();
        }
    }

    fn refresh(&self) {
        let stamps = self.files.stamps();
        if self.stamps() == stamps {
            return;
        }
        match self.files.load() {
            Ok(config) => {
                let current = Current { stamps, config };
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
                tracing::info!("the certificate was read again");
            }
            // The other file may be about to follow: it is tried again at the next check.
            Err(error) => {
                tracing::warn!(code = "http.certificate", %error, "the new certificate cannot be used");
            }
        }
    }
}

impl TlsFiles {
    fn stamps(&self) -> Stamps {
        let files = [
            Some(&self.certificate),
            Some(&self.key),
            self.client_authorities.as_ref(),
        ];
        files
            .into_iter()
            .map(|path| fs::metadata(path?).ok()?.modified().ok())
            .collect()
    }

    fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(&self.certificate).map_err(TlsError::Certificate)?;
        let key = read(&self.key).map_err(TlsError::Key)?;
        let key =
            PrivateKeyDer::from_pem_slice(&key).map_err(|_| TlsError::Key(FileError::Empty))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|_| TlsError::Unusable)?;
        let builder = match &self.client_authorities {
            Some(path) => builder.with_client_cert_verifier(verifier(path, provider)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => TlsError::Mismatch,
                _ => TlsError::Unusable,
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Accepts only clients with a certificate of one of the authorities in the file.
fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path).map_err(TlsError::ClientAuthorities)? {
        roots
            .add(authority)
            .map_err(|_| TlsError::ClientAuthorities(FileError::Empty))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.build().map_err(|_| TlsError::Unusable)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let bytes = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    // The library's error may quote a broken file, so it is dropped.
    certificates
        .ok()
        .filter(|all| !all.is_empty())
        .ok_or(FileError::Empty)
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    if fs::metadata(path)?.len() > FILE_LEN_MAX {
        return Err(FileError::TooLarge);
    }
    Ok(fs::read(path)?)
}
