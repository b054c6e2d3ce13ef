//! Temporary folders that go away: on drop, or, when their process was killed or kept them in a
//! static, by the next process that makes one. `ADSUM_KEEP=1` keeps them and prints where.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

const MEMORY: &str = "/dev/shm";

/// A folder for one fixture: its data, its configuration, its logs.
#[derive(Debug)]
pub struct TestDir {
    folder: TempDir,
    /// Held for as long as the folder is in use; a folder that nobody has locked is swept.
    _lock: File,
}

impl TestDir {
    /// A folder in the temporary folder of the system.
    pub fn new(name: &str) -> Result<Self> {
        Self::within(&env::temp_dir(), name, kept())
    }

    /// A folder in memory where the system has such a place: for data that is synced to disk
    /// at every write, and that no test wants to survive.
    pub fn in_memory(name: &str) -> Result<Self> {
        let memory = Path::new(MEMORY);
        if memory.is_dir() {
            Self::within(memory, name, kept())
        } else {
            Self::new(name)
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a folder below it.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(path)
    }

    fn within(base: &Path, name: &str, kept: bool) -> Result<Self> {
        let root = base.join(if kept { "adsum-kept" } else { "adsum-running" });
        fs::create_dir_all(&root).with_context(|| format!("create {}", root.display()))?;
        if !kept {
            sweep(&root);
        }
        loop {
            if let Some(made) = Self::make(&root, name, kept)? {
                return Ok(made);
            }
        }
    }

    /// `None` when a sweep came between making the folder and locking it.
    fn make(root: &Path, name: &str, kept: bool) -> Result<Option<Self>> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .disable_cleanup(kept)
            .tempdir_in(root)
            .with_context(|| format!("make a folder in {}", root.display()))?;
        let Ok(lock) = File::open(folder.path()) else {
            return Ok(None);
        };
        lock.lock().context("lock the folder")?;
        let made = Self {
            folder,
            _lock: lock,
        };
        if kept {
            made.announce();
        }
        Ok(made.path().exists().then_some(made))
    }

    #[allow(
        clippy::print_stderr,
        reason = "the folder was kept for a person to look at"
    )]
    fn announce(&self) {
        eprintln!("kept: {}", self.path().display());
    }
}

fn kept() -> bool {
    env::var_os("ADSUM_KEEP").is_some_and(|value| !value.is_empty())
}

/// Removes the folders whose owners are gone. Errors are left to whoever owns the folder.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(folder) = File::open(entry.path()) else {
            continue;
        };
        if folder.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner() -> Result<()> {
        let dir = TestDir::within(&env::temp_dir(), "dropped", false)?;
        let path = dir.path().to_owned();
        assert!(path.is_dir());
        drop(dir);
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn a_sweep_takes_only_folders_without_an_owner() -> Result<()> {
        let root = TestDir::new("sweep")?;
        let owned = TestDir::within(root.path(), "owned", false)?;
        let orphan = root.folder("adsum-running/orphan")?;
        let other = TestDir::within(root.path(), "other", false)?;
        assert!(owned.path().is_dir() && other.path().is_dir());
        assert!(!orphan.exists());
        Ok(())
    }
}
