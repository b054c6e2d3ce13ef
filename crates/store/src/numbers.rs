//! Numbers that callers give are exact up to 2^53 - 1 in all stores: Lua compares them, too.

use adsum_core::{
    Conn, Stamp,
    store::{Result, StoreError},
};

pub(crate) fn check_stamp(stamp: Stamp) -> Result<()> {
    if stamp.rev > Conn::MAX {
        return Err(StoreError::Refused("a rev is at most 2^53 - 1".into()));
    }
    Ok(())
}

/// Of a preference; 0 is one that was never set.
pub(crate) fn check_version(version: u64) -> Result<()> {
    if version == 0 || version > Conn::MAX {
        let message = "a version is between 1 and 2^53 - 1";
        return Err(StoreError::Refused(message.into()));
    }
    Ok(())
}
