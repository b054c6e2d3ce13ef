//! Clusters that live at the same time and are measured in turns. The machine is another one
//! within minutes; but what it does to one turn it does to its neighbour. So each turn is compared
//! with the one beside it, and of these pairs the middle one counts.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{
    args::Manner,
    fanout::{Crowd, FanoutResult, Load},
    stage::Stage,
};

/// While all rest, each is listened to for so long: short, so that nobody's beats come in bunches.
const SLICE: Duration = Duration::from_millis(1);

/// One of the clusters, and who is on it.
pub(crate) struct Side<'a> {
    name: &'static str,
    crowd: Crowd<'a>,
    pub(crate) stage: &'a Stage,
    pub(crate) turns: Vec<FanoutResult>,
}

impl<'a> Side<'a> {
    /// Connects everybody.
    pub(crate) fn gather(
        name: &'static str,
        stage: &'a Stage,
        load: &'a Load,
        manner: &'a Manner,
    ) -> Result<Self> {
        Ok(Self {
            name,
            crowd: Crowd::gather(stage, load, manner)?,
            stage,
            turns: Vec::new(),
        })
    }

    /// Takes its turn. The others do not beat meanwhile.
    pub(crate) fn turn(&mut self) -> Result<()> {
        let result = self.crowd.measure(self.stage)?;
        let (lost, twice) = (result.lost, result.duplicated);
        ensure!(
            lost == 0 && twice == 0,
            "{}: {lost} lost, {twice} twice",
            self.name
        );
        self.turns.push(result);
        Ok(())
    }

    /// Of all turns.
    pub(crate) fn middle(&self, of: impl Fn(&FanoutResult) -> f64) -> f64 {
        middle(self.turns.iter().map(of))
    }
}

/// Waits until all have settled, and runs each for as long as it takes to be warm.
pub(crate) fn warm_up(sides: &mut [Side<'_>]) -> Result<()> {
    // All of them beat meanwhile.
    while !all_settled(sides)? {
        rest(sides, Duration::from_secs(1))?;
    }
    let mut sides = sides.iter_mut();
    sides.try_for_each(|side| side.crowd.warm_up(side.stage))
}

fn all_settled(sides: &[Side<'_>]) -> Result<bool> {
    for side in sides {
        if !side.stage.is_settled()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Nobody moves for so long: all beat who are due.
pub(crate) fn rest(sides: &mut [Side<'_>], time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        for side in sides.iter_mut() {
            side.crowd.idle(SLICE)?;
        }
    }
    Ok(())
}

/// Who goes after whom: nobody is always the first.
pub(crate) fn order(turn: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |n| (turn + n) % sides)
}

/// The middle one, or what lies between the two in the middle.
pub(crate) fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::{middle, order};

    #[test]
    fn the_middle_is_not_moved_by_one_that_is_far_off() {
        assert!((middle([9.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((middle([4.0, 900.0, 1.0, 2.0]) - 3.0).abs() < 1e-9);
        assert!(middle([]).is_nan());
    }

    #[test]
    fn everybody_goes_once_in_a_turn_and_first_in_some() {
        let orders: Vec<Vec<_>> = (0..3).map(|turn| order(turn, 3).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
    }
}
