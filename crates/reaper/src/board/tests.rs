//! The rules, with a clock that is set by hand.

use std::time::Duration;

use adsum_core::membership::{Member, Role};

use super::*;

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn members(names: &[&str], stale: bool) -> Arc<Members> {
    let member = |name: &&str| {
        let member = Member {
            node: node(name),
            address: String::new(),
            roles: vec![Role::Reaper],
            zone: String::new(),
            version: String::new(),
        };
        (node(name), Arc::new(member))
    };
    Arc::new(Members {
        nodes: names.iter().map(member).collect(),
        stale,
    })
}

/// The board of node `a`, and a clock that is set by hand.
struct Kit {
    board: Board,
    now: Instant,
    owners: Owners,
}

impl Kit {
    fn new(names: &[&str]) -> Self {
        let now = Instant::now();
        let mut board = Board::new(ReaperConfig::default(), now);
        board.see_node(Some(node("a")));
        board.see_members(members(names, false), now);
        let mut kit = Self {
            board,
            now,
            owners: Owners::new(),
        };
        kit.own(|_| None);
        kit
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Node `a` has a sweeper for what it owns.
    fn moves(&mut self) -> Moves {
        let owners = self.owners.clone();
        let mine = |shard| owners.get(&shard) == Some(&node("a"));
        self.board.moves(self.now, 1.0, mine, |_| None)
    }

    fn own(&mut self, owner: impl Fn(Shard) -> Option<NodeId>) -> Vec<Shard> {
        let owned = |shard| Some((shard, owner(shard)?));
        self.owners = (0..64).filter_map(owned).collect();
        self.board
            .see_owners(Arc::new(self.owners.clone()), self.now)
    }

    /// The shards that are placed with a node among these, while nobody owns any.
    fn placed(names: &[&str], name: &str) -> Vec<Shard> {
        Self::kept(names, name, |_| None)
    }

    /// The shards that are placed with a node among these, given the owners.
    fn kept(names: &[&str], name: &str, owner: impl Fn(Shard) -> Option<NodeId>) -> Vec<Shard> {
        let mut placement = Placement::new(64, names);
        let number = |owner: NodeId| names.iter().position(|name| node(name) == owner);
        placement.keep(|shard| number(owner(shard)?));
        let with = |shard: &Shard| placement.owner(*shard).map(|n| names[n]) == Some(name);
        (0..64).filter(with).collect()
    }
}

const GRACE: Duration = Duration::from_secs(2);

#[test]
fn takes_its_own_at_once_and_the_rest_after_the_grace() {
    let mut kit = Kit::new(&["a", "b"]);
    let own = Kit::placed(&["a", "b"], "a");
    let moves = kit.moves();
    assert_eq!(moves.take, own);
    assert_eq!(
        moves.wake,
        Some(kit.now + GRACE),
        "when the rest is anybody's"
    );

    kit.own(|shard| own.contains(&shard).then(|| node("a")));
    kit.pass(GRACE - Duration::from_millis(1));
    assert!(kit.moves().take.is_empty());
    kit.pass(Duration::from_millis(1));
    assert_eq!(kit.moves().take.len(), 64 - own.len());
}

#[test]
fn a_busy_owner_that_leaves_one_shard_is_followed_by_the_next_on_the_ring() {
    let names = ["a", "b", "c"];
    let mut kit = Kit::new(&names);
    let placement = Placement::new(64, &names);
    let orphan = Kit::placed(&names, "b")
        .into_iter()
        .find(|s| placement.order(*s).nth(1) == Some(2));
    let orphan = orphan.unwrap();
    kit.own(|shard| (shard != orphan).then(|| node(names[placement.owner(shard).unwrap()])));
    kit.moves();
    kit.pass(GRACE);
    let moves = kit.moves();
    let step = kit.board.config.ownerless_step;
    assert_eq!(
        (moves.take, moves.wake),
        (vec![], Some(kit.now + step)),
        "c comes first"
    );
    kit.pass(step);
    assert_eq!(kit.moves().take, [orphan]);
}

#[test]
fn hands_over_one_by_one_when_the_placement_stands() {
    let mut kit = Kit::new(&["a"]);
    assert_eq!(kit.moves().take.len(), 64);
    kit.own(|_| Some(node("a")));
    kit.board.see_members(members(&["a", "b"], false), kit.now);
    let heirs = Kit::kept(&["a", "b"], "b", |_| Some(node("a")));
    assert_eq!(heirs.len(), 32, "its share, and no more");
    let moves = kit.moves();
    let after = kit.board.config.handover_after;
    assert_eq!((moves.give, moves.wake), (None, Some(kit.now + after)));

    kit.pass(after);
    assert_eq!(kit.moves().give, Some(heirs[0]));
    let lost = kit.own(|shard| (shard != heirs[0]).then(|| node("a")));
    assert_eq!(lost, [heirs[0]]);
    kit.pass(Duration::from_secs(1));
    let moves = kit.moves();
    assert_eq!(
        (moves.give, moves.take),
        (None, vec![]),
        "b has not taken the first one"
    );

    kit.own(|shard| Some(node(if shard == heirs[0] { "b" } else { "a" })));
    assert_eq!(kit.moves().give, Some(heirs[1]));
    assert_eq!(kit.moves().give, None, "the pace is bounded");
}

#[test]
fn a_shard_that_came_back_is_kept_for_a_while() {
    let mut kit = Kit::new(&["a", "b"]);
    kit.own(|_| Some(node("a")));
    kit.moves();
    kit.pass(Duration::from_secs(1));
    let given = kit.moves().give.unwrap();
    kit.pass(Duration::from_secs(1));
    let next = kit.moves().give.unwrap();
    assert_ne!(next, given);
    kit.pass(kit.board.config.handover_again - Duration::from_secs(1));
    assert_eq!(
        kit.moves().give,
        Some(given),
        "it was tried, and is still here"
    );
}

#[test]
fn nothing_moves_while_the_members_are_only_remembered() {
    let mut kit = Kit::new(&["a", "b"]);
    let own = Kit::placed(&["a", "b"], "a");
    kit.own(|shard| (shard > 9).then(|| node("a")));
    kit.board.see_members(members(&["a", "b"], true), kit.now);
    kit.pass(GRACE * 10);
    assert_eq!(kit.moves(), Moves::default());
    kit.board.see_members(members(&["a", "b"], false), kit.now);
    let taken = kit.moves().take;
    assert!(
        taken.iter().all(|s| own.contains(s)),
        "the grace begins anew: {taken:?}"
    );
}

#[test]
fn who_resigned_everything_is_not_waited_for() {
    let mut kit = Kit::new(&["a", "b", "c"]);
    let placement = Placement::new(64, &["a", "b", "c"]);
    let placed = |shard| node(["a", "b", "c"][placement.owner(shard).unwrap()]);
    kit.own(|shard| Some(placed(shard)));
    assert_eq!(kit.moves(), Moves::default());
    // b drains: it has resigned, and stays a member.
    let left = |shard| Some(placed(shard)).filter(|owner| *owner != node("b"));
    kit.own(left);
    let heir = Kit::kept(&["a", "c"], "a", left);
    let taken = kit.moves().take;
    assert!(!taken.is_empty() && taken.iter().all(|s| heir.contains(s)));
    kit.own(|shard| Some(node(if heir.contains(&shard) { "a" } else { "c" })));
    kit.pass(Duration::from_secs(10));
    assert_eq!(kit.moves().give, None, "and nothing is handed back to it");
    // It was not draining after all: as soon as it owns something it counts again.
    kit.own(|shard| Some(node(if shard == 63 { "b" } else { "a" })));
    kit.moves();
    assert_eq!(kit.board.candidates(), 3);
}

#[test]
fn who_never_takes_anything_is_passed_over_and_tried_again_later() {
    let mut kit = Kit::new(&["a", "b"]);
    let own = kit.moves().take;
    kit.own(|shard| own.contains(&shard).then(|| node("a")));
    kit.pass(GRACE);
    kit.moves();
    assert_eq!(kit.board.candidates(), 1);
    kit.own(|_| Some(node("a")));
    kit.pass(kit.board.config.retired_for);
    kit.moves();
    assert_eq!(kit.board.candidates(), 2);
    kit.pass(kit.board.config.handover_after);
    assert!(kit.moves().give.is_some());
}

#[test]
fn without_a_lease_nothing_is_taken() {
    let mut kit = Kit::new(&["a", "b"]);
    kit.board.see_node(None);
    assert_eq!((kit.moves().take, kit.board.placed_here()), (vec![], 0));
}
