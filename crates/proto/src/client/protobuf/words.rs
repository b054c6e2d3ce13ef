//! Between the enums of the messages and the words of core.

use adsum_core::{Activity, Manual, Reason, Status, Visibility};

use crate::client::{Fault, Mode, check, error::Field, v1};

type Result<T> = std::result::Result<T, Fault>;

const STATUSES: [(Status, v1::Status); 6] = [
    (Status::Online, v1::Status::Online),
    (Status::Away, v1::Status::Away),
    (Status::Busy, v1::Status::Busy),
    (Status::Dnd, v1::Status::Dnd),
    (Status::Invisible, v1::Status::Invisible),
    (Status::Offline, v1::Status::Offline),
];

/// What a device reports; `None` when it is not specified.
///
/// # Errors
/// When the number means nothing.
pub fn activity(number: i32) -> Result<Option<Activity>> {
    match v1::Activity::try_from(number) {
        Ok(v1::Activity::Unspecified) => Ok(None),
        Ok(v1::Activity::Online) => Ok(Some(Activity::Online)),
        Ok(v1::Activity::Away) => Ok(Some(Activity::Away)),
        Err(_) => Err(check::unknown_activity(&number.to_string())),
    }
}

/// A manual status.
///
/// # Errors
/// When the number is none that can be set by hand.
pub fn manual(number: i32) -> Result<Manual> {
    match v1::Status::try_from(number) {
        Ok(v1::Status::Away) => Ok(Manual::Away),
        Ok(v1::Status::Busy) => Ok(Manual::Busy),
        Ok(v1::Status::Dnd) => Ok(Manual::Dnd),
        Ok(v1::Status::Invisible) => Ok(Manual::Invisible),
        Ok(other) => Err(check::unknown_manual(other.as_str_name())),
        Err(_) => Err(check::unknown_manual(&number.to_string())),
    }
}

/// A visibility.
///
/// # Errors
/// When the number means nothing, or nothing was said; never widened.
pub fn visibility(number: i32) -> Result<Visibility> {
    match v1::Visibility::try_from(number) {
        Ok(v1::Visibility::Everyone) => Ok(Visibility::Everyone),
        Ok(v1::Visibility::Contacts) => Ok(Visibility::Contacts),
        Ok(v1::Visibility::Nobody) => Ok(Visibility::Nobody),
        Ok(v1::Visibility::Unspecified) => Err(Fault::Missing("visibility")),
        Err(_) => check::visibility(&number.to_string()),
    }
}

pub(super) const fn activity_to(activity: Activity) -> v1::Activity {
    match activity {
        Activity::Online => v1::Activity::Online,
        Activity::Away => v1::Activity::Away,
    }
}

pub(super) fn status(number: i32) -> Result<Status> {
    let known = STATUSES.iter().find(|(_, to)| i32::from(*to) == number);
    known.map(|(status, _)| *status).ok_or_else(|| Fault::Word {
        field: Field::Status,
        word: number.to_string(),
        expected: "one of the six that v1 has",
    })
}

pub(super) fn status_to(status: Status) -> v1::Status {
    let known = STATUSES.iter().find(|(from, _)| *from == status);
    known.map_or(v1::Status::Unspecified, |(_, to)| *to)
}

pub(super) fn mode(number: i32) -> Result<Option<Mode>> {
    match v1::Mode::try_from(number) {
        Ok(v1::Mode::Unspecified) => Ok(None),
        Ok(v1::Mode::Members) => Ok(Some(Mode::Members)),
        Ok(v1::Mode::Interval) => Ok(Some(Mode::Interval)),
        Ok(v1::Mode::Count) => Ok(Some(Mode::Count)),
        Err(_) => Err(check::unknown_mode(&number.to_string())),
    }
}

pub(super) const fn mode_to(mode: Mode) -> v1::Mode {
    match mode {
        Mode::Members => v1::Mode::Members,
        Mode::Interval => v1::Mode::Interval,
        Mode::Count => v1::Mode::Count,
    }
}

/// One that is not known is a newer server's: none.
pub(super) fn reason(number: i32) -> Option<Reason> {
    let code = u64::try_from(number).ok()?;
    Reason::from_code(code).flatten()
}

/// The numbers are those of core.
pub(super) fn reason_to(reason: Option<Reason>) -> i32 {
    reason
        .and_then(|r| i32::try_from(r.code()).ok())
        .unwrap_or_default()
}
