//! Which agents the fleet screen shows, and in which order: sorted once, then kept sorted as single
//! agents change. Agents are named by their place in the config, which also breaks ties.

use std::cmp::Reverse;
use std::ops::Range;

use chrono::{DateTime, FixedOffset};

use super::sort_order::SortOrder;
use crate::console::agent_row::{AgentRow, known_scratch_lines};
use crate::engine::State;

/// What agents are sorted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SortKey {
    /// The worst state first.
    Severity(State),
    /// By name.
    Name(String),
    /// The largest number first: bytes or lines.
    Largest(Reverse<u64>),
    /// The newest change first, in nanoseconds.
    Changed(Reverse<i64>),
    /// The oldest time first; agents without one before all others.
    LastRun(Option<DateTime<FixedOffset>>),
}

impl SortKey {
    /// Returns the key of an agent in an order.
    pub fn new(order: SortOrder, row: &AgentRow) -> SortKey {
        let readable = row.last_readable_observation();
        let content = || readable.and_then(|seen| seen.content.as_ref());
        match order {
            SortOrder::Severity => SortKey::Severity(row.state()),
            SortOrder::Name => SortKey::Name(row.name.clone()),
            SortOrder::Size => SortKey::Largest(Reverse(content().map_or(0, |it| it.size))),
            SortOrder::Scratch => {
                let lines = readable.and_then(known_scratch_lines);
                SortKey::Largest(Reverse(lines.unwrap_or(0)))
            }
            SortOrder::Changed => {
                let modified = content().map_or(0, |it| it.modified_ns);
                SortKey::Changed(Reverse(modified))
            }
            SortOrder::LastRun => {
                let last = row.latest_observation();
                let last = last.and_then(|seen| seen.last_run.as_ref());
                SortKey::LastRun(last.map(|last| last.time))
            }
        }
    }
}

/// The agents that the filter shows, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetOrder {
    /// The key of each agent; none for one that is not shown.
    keys: Vec<Option<SortKey>>,
    /// The state of each agent.
    states: Vec<State>,
    /// The shown agents by key, then place.
    sorted: Vec<usize>,
    is_reversed: bool,
}

impl FleetOrder {
    /// Sorts agents by their keys, which are in the order of the config, as their states are; an agent
    /// without a key is not shown.
    pub fn new(keys: Vec<Option<SortKey>>, states: Vec<State>, is_reversed: bool) -> FleetOrder {
        let places = 0..keys.len();
        let mut sorted: Vec<usize> = places.filter(|place| keys[*place].is_some()).collect();
        sorted.sort_by(|a, b| keys[*a].cmp(&keys[*b]));
        FleetOrder {
            keys,
            states,
            sorted,
            is_reversed,
        }
    }

    /// Notes the state of an agent, and moves it to where a new key belongs; without a key, it is not
    /// shown.
    pub fn change(&mut self, place: usize, key: Option<SortKey>, state: State) {
        if let Some(known) = self.states.get_mut(place) {
            *known = state;
        }
        if self.keys.get(place).is_none_or(|known| *known == key) {
            return;
        }
        if let Some(index) = self.sorted_index(place) {
            self.sorted.remove(index);
        }
        let is_shown = key.is_some();
        self.keys[place] = key;
        if let (true, Err(index)) = (is_shown, self.search(place)) {
            self.sorted.insert(index, place);
        }
    }

    /// Returns the number of shown agents.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns whether no agent is shown.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Turns the order round.
    pub fn reverse(&mut self) {
        self.is_reversed = !self.is_reversed;
    }

    /// Returns whether an agent is shown.
    pub fn shows(&self, place: usize) -> bool {
        self.keys.get(place).is_some_and(Option::is_some)
    }

    /// Returns the row on which an agent is shown.
    pub fn position(&self, place: usize) -> Option<usize> {
        let index = self.sorted_index(place)?;
        Some(self.turned(index))
    }

    /// Returns the agent on a row.
    pub fn get(&self, position: usize) -> Option<usize> {
        let index = (position < self.len()).then(|| self.turned(position))?;
        self.sorted.get(index).copied()
    }

    /// Returns the shown agents from a row on.
    pub fn iter_from(&self, position: usize) -> impl Iterator<Item = usize> {
        (position..self.len()).filter_map(|position| self.get(position))
    }

    /// Returns how many of the agents on some rows are in a worse state than another one.
    pub fn count_worse(&self, rows: Range<usize>, than: State) -> usize {
        let shown = rows.filter_map(|row| self.get(row));
        shown.filter(|place| self.states[*place] < than).count()
    }

    fn turned(&self, index: usize) -> usize {
        if self.is_reversed {
            self.len() - 1 - index
        } else {
            index
        }
    }

    fn sorted_index(&self, place: usize) -> Option<usize> {
        self.shows(place).then(|| self.search(place).ok()).flatten()
    }

    fn search(&self, place: usize) -> Result<usize, usize> {
        let target = (&self.keys[place], place);
        let key_of = |other: &usize| (&self.keys[*other], *other);
        self.sorted
            .binary_search_by(|other| key_of(other).cmp(&target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Option<SortKey> {
        Some(SortKey::Largest(Reverse(number)))
    }

    fn state(number: Option<u64>) -> State {
        match number {
            Some(0) => State::Clean,
            Some(_) => State::Scratch,
            None => State::Drifted,
        }
    }

    proptest::proptest! {
        /// However agents change one by one, they stand where sorting all of them would put them.
        #[test]
        fn changed_order_equals_sorted_order(
            first in proptest::collection::vec(proptest::option::of(0_u64..4), 1..20),
            changes in proptest::collection::vec((0_usize..20, proptest::option::of(0_u64..4)), 0..40),
            is_reversed in proptest::bool::ANY,
        ) {
            let mut numbers = first;
            let sorted = |numbers: &[Option<u64>], is_reversed| {
                let keys = numbers.iter().map(|it| it.and_then(key)).collect();
                let states = numbers.iter().map(|it| state(*it)).collect();
                FleetOrder::new(keys, states, is_reversed)
            };
            let mut order = sorted(&numbers, is_reversed);
            for (place, number) in changes {
                let place = place % numbers.len();
                numbers[place] = number;
                order.change(place, number.and_then(key), state(number));
                proptest::prop_assert_eq!(&order, &sorted(&numbers, is_reversed));
                for position in 0..order.len() {
                    let shown = order.get(position).unwrap();
                    proptest::prop_assert_eq!(order.position(shown), Some(position));
                }
            }
            order.reverse();
            proptest::prop_assert_eq!(order, sorted(&numbers, !is_reversed));
        }
    }
}
