//! Claims that hold between test processes: an advisory lock on a file in the temporary folder.
//! The kernel gives it back when its owner ends, however it ends.

use std::env;
use std::fmt::Display;
use std::fs::{self, File, TryLockError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::wait::eventually;

/// A claim, held until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Claims `name` within `group`, or returns `None` when somebody else holds it: another
    /// process, or another fixture of this one.
    pub(crate) fn try_claim(group: &str, name: impl Display) -> Result<Option<Self>> {
        let folder = env::temp_dir().join("adsum-locks").join(group);
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let path = folder.join(name.to_string());
        let file = File::options().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("lock {}", path.display()))
            }
        }
    }

    /// Waits for `count` of the `places` in `group`: a semaphore for the whole machine. Only the
    /// head of the queue collects places; otherwise two who want two places each could take one
    /// each, and wait for ever.
    pub(crate) async fn claim_places(
        group: &str,
        places: usize,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<Self>> {
        ensure!(count <= places, "{group} has only {places} places");
        let _head = Self::claim_any(group, &["queue".to_owned()], limit).await?;
        let places: Vec<String> = (0..places).map(|place| place.to_string()).collect();
        let mut claimed = Vec::new();
        for _ in 0..count {
            claimed.push(Self::claim_any(group, &places, limit).await?);
        }
        Ok(claimed)
    }

    async fn claim_any(group: &str, names: &[String], limit: Duration) -> Result<Self> {
        eventually(&format!("a place in {group}"), limit, || async {
            for name in names {
                if let Some(lock) = Self::try_claim(group, name)? {
                    return Ok(lock);
                }
            }
            bail!("taken: {names:?}")
        })
        .await
    }
}
