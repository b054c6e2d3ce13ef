//! Which device this is, and the number of its connection: the clock in ms, always above the last
//! one used. A hello that was not answered is followed by one with a higher number, on another
//! connection: if the first is heard late, it is the lower one that loses.

use adsum_core::{Conn, DeviceId};

/// The names of the session.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    device: Option<DeviceId>,
    last: u64,
    /// Of the hello that was answered last.
    settled: u64,
    /// Of the last hello that was given up, but may be heard all the same.
    doubted: u64,
}

impl Numbers {
    /// With a device that the app named, or with none: the server makes one up.
    pub(crate) fn new(device: Option<DeviceId>) -> Self {
        Self {
            device,
            ..Self::default()
        }
    }

    /// The device and number of the next hello. Both or none.
    pub(crate) fn next(&mut self, wall_ms: u64) -> (Option<DeviceId>, Option<Conn>) {
        let Some(device) = self.device.clone() else {
            return (None, None);
        };
        let conn = Conn::new(wall_ms.max(self.last.saturating_add(1))).ok();
        self.last = conn.map_or(self.last, Conn::get);
        // Beyond what can be counted: without a number there is no name either.
        (conn.is_some().then_some(device), conn)
    }

    /// The hello was answered: these are the names now, made up by the server or not.
    pub(crate) fn settle(&mut self, device: DeviceId, conn: Conn) {
        self.device = Some(device);
        self.last = self.last.max(conn.get());
        self.settled = conn.get();
    }

    /// The last hello was given up, but may be heard: only a higher one is sure to win.
    pub(crate) const fn doubt(&mut self) {
        self.doubted = self.last;
    }

    /// A higher number than that of the last answered hello may have been heard, or may be yet,
    /// though nobody told us.
    pub(crate) const fn said_more(&self) -> bool {
        self.doubted > self.settled
    }

    /// The number was too low: the next one is above `recorded`, too, if that was told.
    pub(crate) fn raise(&mut self, recorded: Option<Conn>) {
        self.last = self.last.max(recorded.map_or(0, Conn::get));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(number: u64) -> Conn {
        Conn::new(number).unwrap()
    }

    fn laptop() -> DeviceId {
        DeviceId::new("laptop").unwrap()
    }

    #[test]
    fn a_number_is_never_used_twice() {
        let mut numbers = Numbers::new(Some(laptop()));
        assert_eq!(numbers.next(100).1, Some(conn(100)));
        assert_eq!(numbers.next(100).1, Some(conn(101)));
        numbers.settle(laptop(), conn(101));
        assert_eq!(numbers.next(50).1, Some(conn(102)));
        numbers.settle(laptop(), conn(102));
        assert_eq!(numbers.next(300).1, Some(conn(300)));
    }

    #[test]
    fn goes_above_what_superseded_it() {
        let mut numbers = Numbers::new(Some(laptop()));
        numbers.next(100);
        numbers.raise(Some(conn(5000)));
        assert_eq!(numbers.next(100).1, Some(conn(5001)));
        numbers.raise(None);
        assert_eq!(numbers.next(100).1, Some(conn(5002)));
    }

    #[test]
    fn keeps_the_device_that_the_server_made_up() {
        let mut numbers = Numbers::new(None);
        assert_eq!(numbers.next(100), (None, None));
        numbers.settle(laptop(), conn(7000));
        assert_eq!(numbers.next(100), (Some(laptop()), Some(conn(7001))));
    }

    #[test]
    fn the_last_number_ends_the_naming() {
        let mut numbers = Numbers::new(Some(laptop()));
        numbers.raise(Some(conn(Conn::MAX)));
        assert_eq!(numbers.next(1), (None, None));
    }
}
