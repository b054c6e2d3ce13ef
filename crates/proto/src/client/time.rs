//! RFC 3339 in UTC, both ways. Small enough to own: a time library would be the largest
//! dependency of this crate.

/// The last ms of the year 9999, the last that RFC 3339 can spell.
pub(super) const MAX_MS: u64 = 253_402_300_799_999;

const DAY_MS: u64 = 86_400_000;
/// Days of 400 years, after which the calendar repeats.
const ERA: u64 = 146_097;
/// From 0000-03-01 to 1970-01-01. Years begin in March here, so that the leap day is the last.
const EPOCH: u64 = 719_468;

/// `2026-07-01T12:34:56.789Z`.
pub(super) fn format(ms: u64) -> String {
    let ms = ms.min(MAX_MS);
    let (year, month, day) = civil(ms / DAY_MS);
    let rest = ms % DAY_MS;
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Reads what [`format`] wrote, and any other fraction; only in UTC, not before 1970.
pub(super) fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days(year, month, day)?;
    if civil(days) != (year, month, day) || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let milli: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + milli)
}

fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut out = [0; 3];
    for (slot, width) in out.iter_mut().zip(widths) {
        let part = parts.next()?;
        let digits = part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        *slot = part.parse().ok().filter(|_| digits)?;
    }
    parts.next().is_none().then_some(out)
}

/// The date of a day since 1970.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + EPOCH;
    let of_era = day % ERA;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year + day / ERA * 400 + u64::from(month <= 2);
    (year, month, of_year - (153 * march + 2) / 5 + 1)
}

/// The day since 1970 of a date; nonsense in, nonsense or nothing out.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year.checked_sub(u64::from(month <= 2))?;
    let march = (month + 9) % 12;
    let of_year = (153 * march + 2) / 5 + day - 1;
    let of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + of_year;
    (year / 400 * ERA + of_era).checked_sub(EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_both_ways() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_782_909_296_789, "2026-07-01T12:34:56.789Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (MAX_MS, "9999-12-31T23:59:59.999Z"),
        ];
        for (ms, text) in known {
            assert_eq!(format(ms), text);
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        assert_eq!(format(u64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn every_day_for_centuries() {
        for day in (0..300_000).chain(2_900_000..2_932_896) {
            let ms = day * DAY_MS + day % DAY_MS;
            assert_eq!(parse(&format(ms)), Some(ms));
        }
    }

    #[test]
    fn other_spellings_and_nonsense() {
        assert_eq!(parse("1970-01-01T00:00:01Z"), Some(1000));
        assert_eq!(parse("1970-01-01T00:00:01.5Z"), Some(1500));
        assert_eq!(parse("1970-01-01T00:00:01.123456Z"), Some(1123));
        for bad in [
            "",
            "Z",
            "TZ",
            "1969-12-31T23:59:59Z",
            "0000-01-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-01-00T00:00:00Z",
            "2023-01-01T24:00:00Z",
            "2023-01-01T00:00:00",
            "2023-01-01T00:00:00+01:00",
            "2023-01-01T00:00:00.üZ",
            "2023-01-01T00:00:00.-1Z",
            "2023-01-01T+1:00:00Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
