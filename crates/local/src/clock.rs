//! The wall clock of one process, which can be set: a small library, loaded before the process,
//! reads from a file by how much it is off. Clocks that only count on are left alone.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const LIBRARY: &str = include_str!("clock.c");

/// A clock that can be set.
#[derive(Clone, Debug)]
pub struct FakeClock {
    library: PathBuf,
    file: PathBuf,
}

impl FakeClock {
    /// For one process, with its files in `folder`.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        let library = folder.join("clock.so");
        if !library.exists() {
            build(folder, &library)?;
        }
        let file = folder.join(format!("{name}.clock"));
        fs::write(&file, 0_i64.to_ne_bytes())?;
        Ok(Self { library, file })
    }

    /// Has a process go by it.
    pub fn give(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("HARNESS_CLOCK", &self.file);
    }

    /// Sets it ahead by so many ms, or back.
    pub fn set(&self, ms: i64) -> Result<()> {
        // In place: the process has this very file in its memory.
        let file = File::options().write(true).open(&self.file);
        let set = file.and_then(|file| file.write_all_at(&ms.to_ne_bytes(), 0));
        set.with_context(|| format!("set {}", self.file.display()))
    }
}

fn build(folder: &Path, library: &Path) -> Result<()> {
    let source = folder.join("clock.c");
    fs::write(&source, LIBRARY)?;
    let built = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([library, &source])
        .output()
        .context("cc")?;
    let says = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "the clock can't be built: {says}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    /// What `date` takes the time for, in ms from now.
    fn off_by(clock: &FakeClock) -> i128 {
        let mut date = Command::new("date");
        date.arg("+%s%3N");
        clock.give(&mut date);
        let said = String::from_utf8(date.output().unwrap().stdout).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        said.trim().parse::<i128>().unwrap() - now.as_millis() as i128
    }

    #[test]
    fn a_process_goes_by_its_own_clock() {
        let folder = tempfile::tempdir().unwrap();
        let clock = FakeClock::new(folder.path(), "date").unwrap();
        for ms in [0, 90_500, -7_200_001, 0] {
            clock.set(ms).unwrap();
            let off = off_by(&clock) - i128::from(ms);
            assert!((-5_000..=0).contains(&off), "{ms}: {off}");
        }
    }
}
