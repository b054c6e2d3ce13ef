//! When bytes arrived by the system's own clock, however late somebody reads them: tells how much
//! of a time is the clients' own, where they share the processors with what is measured.

use std::{
    io::{self, IoSliceMut},
    os::fd::AsRawFd,
    time::{Duration, Instant, SystemTime},
};

use mio::net::TcpStream;
use nix::{
    cmsg_space,
    sys::{
        socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns},
        time::TimeSpec,
    },
};

/// From now on, or a moment later, it is noted when something arrives.
pub(crate) fn note(stream: &TcpStream) -> io::Result<()> {
    Ok(setsockopt(stream, ReceiveTimestampns, &true)?)
}

/// Reads what is there, and when the last of it arrived.
pub(crate) fn read(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<(usize, Option<Instant>)> {
    let mut space = cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg::<()>(
        stream.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::empty(),
    )?;
    let at = got.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
        _ => None,
    });
    Ok((got.bytes, at.and_then(on_our_clock)))
}

/// The same moment by the clock that never jumps.
fn on_our_clock(at: Duration) -> Option<Instant> {
    let (wall, now) = (SystemTime::now(), Instant::now());
    let ago = wall.duration_since(SystemTime::UNIX_EPOCH + at).ok()?;
    now.checked_sub(ago)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_waits_arrived_before_it_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let near = TcpStream::from_std(near);
        note(&near).unwrap();
        let mut buffer = [0; 16];
        // The system needs a moment before it notes anything.
        while near.peek(&mut buffer).is_err() || read(&near, &mut buffer).unwrap().1.is_none() {
            far.write_all(b"soon").unwrap();
        }
        while read(&near, &mut buffer).is_ok() {}

        far.write_all(b"late").unwrap();
        // Being late is what this is about.
        std::thread::sleep(Duration::from_millis(50));
        let late = Instant::now();
        let (count, at) = read(&near, &mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"late");
        assert!(at.unwrap() < late);
    }
}
