//! Claims that hold between test processes: an advisory lock on a file in the temporary folder.
//! The kernel gives it back when its owner ends, however it ends.

use std::env;
use std::fmt::Display;
use std::fs::{self, File, TryLockError};
use std::time::Duration;

use anyhow::{Context, Result};

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

    /// Waits for one of `slots` places in `group`: a semaphore for the whole machine.
    pub(crate) async fn claim_one_of(group: &str, slots: usize, limit: Duration) -> Result<Self> {
        eventually(&format!("a free place in {group}"), limit, async || {
            for slot in 0..slots {
                if let Some(lock) = Self::try_claim(group, slot)? {
                    return Ok(lock);
                }
            }
            anyhow::bail!("all {slots} are taken")
        })
        .await
    }
}
