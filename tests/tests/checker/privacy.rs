//! Private: nobody sees what visibility forbids, nor for long what it forbids from now on.

use adsum_core::{Manual, Visibility};
use adsum_tests::{
    checker::Invariant,
    history::{Event, Gone, Setting},
};

use crate::script::{Script, seen};

const HIDING: [Setting; 3] = [
    Setting::Status(Some(Manual::Invisible)),
    Setting::Visibility(Visibility::Nobody),
    Setting::Visibility(Visibility::Contacts),
];

#[test]
fn who_hides_is_not_shown() {
    for hiding in HIDING {
        let shown = Script::new().set(500, hiding.clone()).ann_comes(6_000, 5);
        assert_eq!(shown.verdict(), [Invariant::Private], "{hiding:?}");
        let before = Script::new().ann_comes(6_000, 5).set(6_500, hiding);
        assert_eq!(before.verdict(), []);
    }
}

#[test]
fn who_hides_disappears_in_time() {
    for hiding in HIDING {
        let script = |at| {
            Script::new()
                .ann_comes(1_000, 5)
                .set(10_000, hiding.clone())
                .left(at, 6)
                .at(100_000, Event::End)
        };
        assert_eq!(script(12_000).verdict(), [], "{hiding:?}");
        let late = script(16_000).verdict();
        assert_eq!(late, [Invariant::BoundedSilence], "{hiding:?}");
    }
}

#[test]
fn what_was_asked_for_but_not_recorded_may_be_either() {
    let user = "ann".to_owned();
    let setting = Setting::Visibility(Visibility::Nobody);
    let script = Script::new()
        .at(500, Event::Asked { user, setting })
        .ann_comes(6_000, 5)
        .updated(7_000, seen(6, 1))
        .ann_goes(8_000, Gone::Goodbye)
        .left(8_100, 7);
    assert_eq!(script.verdict(), []);
}
