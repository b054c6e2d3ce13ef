//! The certificate of the public port, replaced without a restart when its files change. Broken
//! files never take a working certificate away.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use xxhash_rust::xxh3::Xxh3Default;

/// Why a certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// A file can't be read.
    #[error("{path} can't be read: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no PEM, or lacks what it should have.
    #[error("{path} has no {what} in PEM")]
    Pem {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// They can't be used together.
    #[error("{cert} and {key} can't be used together: {source}")]
    Unfit {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// A certificate and its key, in force until newer ones are.
pub struct Certificates {
    current: ArcSwap<ServerConfig>,
    files: Mutex<Files>,
}

struct Files {
    cert: PathBuf,
    key: PathBuf,
    /// What the contents were when last tried, good or bad: a broken file is complained about
    /// once.
    tried: u64,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Loads a chain and its key, both PEM. Blocks on the file system.
    ///
    /// # Errors
    /// When they can't be read or used.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, CertError> {
        let (config, tried) = Self::read(cert, key)?;
        let files = Files {
            cert: cert.to_owned(),
            key: key.to_owned(),
            tried,
        };
        Ok(Self {
            current: ArcSwap::new(config),
            files: Mutex::new(files),
        })
    }

    /// Reads the files again; says whether anything was new. Blocks on the file system.
    ///
    /// # Errors
    /// When the new files are unfit, once for each content of them; the old certificate stays.
    pub fn reload(&self) -> Result<bool, CertError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = Contents::of(&files.cert, &files.key)?;
        if contents.stamp() == files.tried {
            return Ok(false);
        }
        files.tried = contents.stamp();
        let config = contents.build(&files.cert, &files.key)?;
        self.current.store(config);
        Ok(true)
    }

    /// Takes other files from now on. Blocks on the file system.
    ///
    /// # Errors
    /// When they are unfit; the old ones stay.
    pub fn reconfigure(&self, cert: &Path, key: &Path) -> Result<(), CertError> {
        let (config, tried) = Self::read(cert, key)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        *files = Files {
            cert: cert.to_owned(),
            key: key.to_owned(),
            tried,
        };
        self.current.store(config);
        Ok(())
    }

    /// Looks at the files every `every` until `stop`. For a task of its own.
    pub async fn watch(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        // A file that is missing for a moment while it is replaced is said once, not every time.
        let mut said = String::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let this = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || this.reload()).await;
            let problem = match looked {
                Ok(Ok(changed)) => {
                    if changed {
                        info!("certificate reloaded");
                    }
                    said.clear();
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            if problem != said {
                warn!(error = %problem, "new certificate refused, the old one stays");
                said = problem;
            }
        }
    }

    /// For the next handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    fn read(cert: &Path, key: &Path) -> Result<(Arc<ServerConfig>, u64), CertError> {
        let contents = Contents::of(cert, key)?;
        let stamp = contents.stamp();
        Ok((contents.build(cert, key)?, stamp))
    }
}

struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn of(cert: &Path, key: &Path) -> Result<Self, CertError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| CertError::Read {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Self {
            cert: read(cert)?,
            key: read(key)?,
        })
    }

    // Contents, not times: two writes within the file system's clock tick, or a mount that swaps
    // a link, would be missed.
    fn stamp(&self) -> u64 {
        let mut hash = Xxh3Default::new();
        hash.update(&self.cert.len().to_le_bytes());
        hash.update(&self.cert);
        hash.update(&self.key);
        hash.digest()
    }

    fn build(&self, cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, CertError> {
        let pem = |path: &Path, what| CertError::Pem {
            path: path.to_owned(),
            what,
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.cert)
            .collect::<Result<_, _>>()
            .map_err(|_| pem(cert, "certificate"))?;
        if chain.is_empty() {
            return Err(pem(cert, "certificate"));
        }
        let private =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| pem(key, "private key"))?;
        let unfit = |source| CertError::Unfit {
            cert: cert.to_owned(),
            key: key.to_owned(),
            source,
        };
        // Named, not the process's default: other crates may bring another.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(unfit)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
