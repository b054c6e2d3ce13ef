//! What every function reads of a shard first: values packed one behind another under `head` in
//! its `meta`, as `lua/prelude.lua` writes them.

use adsum_core::{
    Version,
    store::{Result, StoreError},
};
use rmp::decode::read_int;

/// As much of it as is looked at from outside.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) version: Version,
    pub(super) unsettled: bool,
}

impl Head {
    /// Reads `shards epoch seq unsettled`, and passes over what follows.
    pub(super) fn read(mut bytes: &[u8]) -> Result<Self> {
        let mut next = || -> Result<u64> {
            read_int(&mut bytes).map_err(|_| StoreError::Corrupt("a shard's head".into()))
        };
        let _shards = next()?;
        Ok(Self {
            version: Version::new(next()?, next()?),
            unsettled: next()? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_head_is_an_error() {
        let head = Head::read(b"\x40\xcd\x01\x00\x07\x01\x00\x01");
        let expected = Head {
            version: Version::new(256, 7),
            unsettled: true,
        };
        assert_eq!(head, Ok(expected));
        for bad in [&b""[..], b"\x40\x07", b"\x40\xa1x\x07\x01"] {
            assert!(matches!(Head::read(bad), Err(StoreError::Corrupt(_))));
        }
    }
}
