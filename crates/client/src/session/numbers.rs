//! Which device this is, and the number of its connection: the clock in ms, always above the last
//! one used, and the same in every retry of one hello.

use adsum_core::{Conn, DeviceId};

/// The names of the session.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    device: Option<DeviceId>,
    last: u64,
    /// Of a hello that has no answer yet.
    open: Option<Conn>,
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
        let conn = match self.open {
            Some(conn) => Some(conn),
            None => Conn::new(wall_ms.max(self.last.saturating_add(1))).ok(),
        };
        self.open = conn;
        // Beyond what can be counted: without a number there is no name either.
        (conn.is_some().then_some(device), conn)
    }

    /// The hello was answered: these are the names now, made up by the server or not.
    pub(crate) fn settle(&mut self, device: DeviceId, conn: Conn) {
        self.device = Some(device);
        self.last = self.last.max(conn.get());
        self.open = None;
    }

    /// The number was too low: the next one is above it, and above `recorded` if that was told.
    pub(crate) fn raise(&mut self, recorded: Option<Conn>) {
        let used = self.open.take().max(recorded);
        self.last = self.last.max(used.map_or(0, Conn::get));
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
    fn one_number_for_a_hello_and_its_retries() {
        let mut numbers = Numbers::new(Some(laptop()));
        assert_eq!(numbers.next(100).1, Some(conn(100)));
        assert_eq!(numbers.next(200).1, Some(conn(100)));
        numbers.settle(laptop(), conn(100));
        assert_eq!(numbers.next(50).1, Some(conn(101)));
        numbers.settle(laptop(), conn(101));
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
