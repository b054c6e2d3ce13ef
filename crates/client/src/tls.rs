//! TLS, set up once and shared: 20,000 clients of one process must not each parse the roots.

use std::sync::{Arc, OnceLock};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::ConfigError;

/// How servers are trusted. Cheap to clone; make one and give it to all clients.
#[derive(Debug, Clone)]
pub struct Tls {
    pub(crate) http1: Arc<ClientConfig>,
    pub(crate) http2: Arc<ClientConfig>,
}

impl Tls {
    /// Trusts the common public authorities.
    ///
    /// # Errors
    /// When TLS can't be set up at all.
    pub fn public() -> Result<Self, ConfigError> {
        static SHARED: OnceLock<Result<Tls, ConfigError>> = OnceLock::new();
        let make = || {
            let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
            Self::trusting(RootCertStore {
                roots: roots.collect(),
            })
        };
        SHARED.get_or_init(make).clone()
    }

    /// Trusts only the authorities in a PEM file.
    ///
    /// # Errors
    /// When there is none in it, or it can't be read.
    pub fn ca_pem(pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let wrong = |e: &dyn std::fmt::Display| ConfigError::Ca(e.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_ref()) {
            let certificate = certificate.map_err(|e| wrong(&e))?;
            roots.add(certificate).map_err(|e| wrong(&e))?;
        }
        if roots.is_empty() {
            return Err(ConfigError::Ca("there is none".into()));
        }
        Self::trusting(roots)
    }

    fn trusting(roots: RootCertStore) -> Result<Self, ConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| ConfigError::Tls(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Self {
            http1: speaking(b"http/1.1"),
            http2: speaking(b"h2"),
        })
    }
}
