//! The keys in force: loaded from configuration and files, checked against, and replaced as a
//! whole when the files change. Broken files never take working keys away.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use adsum_core::TenantId;
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    AuthConfig, AuthError, KeyConfig, KeyError, crypto, jwks,
    key::{self, KeySet},
    token::Token,
};

/// No key file is this long; something else was named.
const FILE_MAX: u64 = 1 << 20;

/// Verification keys. Cheap to read while they are replaced.
pub struct Keys {
    current: ArcSwap<KeySet>,
    sources: Mutex<Sources>,
}

struct Sources {
    keys: Vec<KeyConfig>,
    jwks: Option<PathBuf>,
    /// What the files were like when they were last tried, good or bad: a broken file is
    /// complained about once.
    tried: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// Loads all keys of a configuration; it may have none.
    ///
    /// # Errors
    /// When a file can't be read or any key is unfit.
    pub fn load(config: &AuthConfig) -> Result<Self, KeyError> {
        crypto::install();
        let mut sources = Sources::new(config);
        let files = sources.read();
        sources.tried = files.stamp;
        let set = sources.build(files)?;
        Ok(Self {
            current: ArcSwap::from_pointee(set),
            sources: Mutex::new(sources),
        })
    }

    /// How many keys are in force.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current.load().len()
    }

    /// Whether there are none, so that no token can be accepted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the files again and puts their keys in force; says whether anything was new.
    /// Blocks on the file system.
    ///
    /// # Errors
    /// When the new files are unfit, once for each content of them; the old keys stay.
    pub fn reload(&self) -> Result<bool, KeyError> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let files = sources.read();
        if files.stamp == sources.tried {
            return Ok(false);
        }
        sources.tried = files.stamp;
        self.current.store(Arc::new(sources.build(files)?));
        Ok(true)
    }

    /// Takes the keys of a new configuration. Blocks on the file system.
    ///
    /// # Errors
    /// When any is unfit; the old keys and the old configuration stay.
    pub fn reconfigure(&self, config: &AuthConfig) -> Result<(), KeyError> {
        let mut new = Sources::new(config);
        let files = new.read();
        new.tried = files.stamp;
        let set = new.build(files)?;
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        *sources = new;
        self.current.store(Arc::new(set));
        Ok(())
    }

    /// Looks at the files every `every` until `stop`. For a task of its own.
    pub async fn watch(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        let every = every.max(Duration::from_millis(10));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let keys = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || keys.reload()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => info!(keys = self.len(), "verification keys reloaded"),
                Ok(Err(error)) => warn!(%error, "new verification keys refused, the old ones stay"),
                Err(error) => warn!(%error, "verification keys could not be looked at"),
            }
        }
    }

    /// The claims of a token whose signature is right, and the tenant its key is bound to.
    pub(super) fn verify(&self, token: &str) -> Result<(Vec<u8>, Option<TenantId>), AuthError> {
        let token = Token::parse(token)?;
        let set = self.current.load();
        let key = set.select(token.kid.as_deref(), token.alg)?;
        let claims = token.verified_claims(key)?;
        Ok((claims, key.tenant.clone()))
    }
}

/// Contents in the order of `Sources`: one for each key with a file, then the JWKS.
struct Files {
    keys: Vec<Option<io::Result<Vec<u8>>>>,
    jwks: Option<io::Result<Vec<u8>>>,
    stamp: u64,
}

impl Sources {
    fn new(config: &AuthConfig) -> Self {
        Self {
            keys: config.keys.clone(),
            jwks: config.jwks.clone(),
            tried: 0,
        }
    }

    // Whole contents, not times: files are small, and two writes within the file system's clock
    // tick, or a mount that swaps a link, would be missed.
    fn read(&self) -> Files {
        let keys: Vec<_> = self
            .keys
            .iter()
            .map(|k| k.file.as_deref().map(read))
            .collect();
        let jwks = self.jwks.as_deref().map(read);
        let mut hash = Xxh3Default::new();
        for file in keys.iter().flatten().chain(&jwks) {
            match file {
                Ok(bytes) => {
                    hash.update(&bytes.len().to_le_bytes());
                    hash.update(bytes);
                }
                Err(error) => hash.update(error.to_string().as_bytes()),
            }
        }
        Files {
            keys,
            jwks,
            stamp: hash.digest(),
        }
    }

    fn build(&self, files: Files) -> Result<KeySet, KeyError> {
        let mut keys = Vec::new();
        for (place, (config, file)) in self.keys.iter().zip(files.keys).enumerate() {
            let file = match (&config.file, file) {
                (Some(path), Some(file)) => Some(readable(path, file)?),
                _ => None,
            };
            keys.push(key::from_config(config, place, file.as_deref())?);
        }
        if let (Some(path), Some(file)) = (&self.jwks, files.jwks) {
            keys.extend(jwks::read(path, &readable(path, file)?)?);
        }
        KeySet::new(keys)
    }
}

fn readable(path: &Path, file: io::Result<Vec<u8>>) -> Result<Vec<u8>, KeyError> {
    file.map_err(|source| KeyError::Read {
        path: path.to_owned(),
        source,
    })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(io::Error::other("longer than 1 MiB"));
    }
    Ok(bytes)
}
