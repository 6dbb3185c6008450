//! Whose news is handed out next: deliveries wait in lines, one for each tenant and host, and lines take turns.
//!
//! Each line has only so many under way. A receiver that does not answer fills its own line and keeps nobody else's news
//! from being handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{DeliveryRow, Mono, Name, Seq};

/// Names a line: a tenant, and a host that it has called.
pub(super) type LineKey = (Name, Arc<str>);

/// Every line that something waits in or is under way of.
#[derive(Default)]
pub(super) struct Lines {
    lines: BTreeMap<LineKey, Line>,
    /// Lines with room whose first delivery is not due yet, by when it is.
    later: BTreeSet<(Mono, LineKey)>,
    /// Lines with room whose first delivery is due, least recently served first.
    turns: BTreeSet<(u64, LineKey)>,
    /// Turns that were taken; dates whose was the last.
    served: u64,
    /// How many of one line may be under way.
    open_max: u32,
}

#[derive(Default)]
struct Line {
    /// Deliveries that are not under way, by when they are due.
    due: BTreeSet<(Mono, Seq)>,
    /// How many are under way.
    open: u32,
    /// When its turn last came.
    served: u64,
    filed: Option<Filed>,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filed {
    Later(Mono),
    Turn(u64),
}

/// The line of a delivery.
pub(super) fn line_of(row: &DeliveryRow) -> LineKey {
    (row.tenant.clone(), row.host.clone())
}

impl Lines {
    /// Something waits, from now on or from some time.
    pub(super) fn wait(&mut self, key: &LineKey, due: Mono, seq: Seq) {
        self.change(key, |line| {
            line.due.insert((due, seq));
        });
    }

    /// Something waits no longer, and is not under way.
    pub(super) fn leave(&mut self, key: &LineKey, due: Mono, seq: Seq) {
        self.change(key, |line| {
            line.due.remove(&(due, seq));
        });
    }

    /// Something is under way that was not handed out here.
    pub(super) fn opened(&mut self, key: &LineKey) {
        self.change(key, |line| line.open += 1);
    }

    /// Something is under way no longer.
    pub(super) fn closed(&mut self, key: &LineKey) {
        self.change(key, |line| line.open -= 1);
    }

    /// Hands out what is due in the line whose turn it is; it is under way from here on.
    pub(super) fn next(&mut self, now: Mono) -> Option<Seq> {
        while let Some((at, key)) = self.later.first().filter(|(at, _)| *at <= now).cloned() {
            self.later.remove(&(at, key.clone()));
            let line = self.lines.get_mut(&key).expect("a line that is filed is there");
            line.filed = Some(Filed::Turn(line.served));
            self.turns.insert((line.served, key));
        }
        let (_, key) = self.turns.first().cloned()?;
        self.served += 1;
        let served = self.served;
        let mut taken = None;
        self.change(&key, |line| {
            taken = line.due.pop_first().map(|(_, seq)| seq);
            line.open += 1;
            line.served = served;
        });
        taken
    }

    /// When something is due next in a line that has room.
    pub(super) fn next_at(&self) -> Option<Mono> {
        let first = |(_, key): &(u64, LineKey)| self.lines[key].due.first().map(|(at, _)| *at);
        self.turns.first().and_then(first).or(self.later.first().map(|(at, _)| *at))
    }

    /// Lets so many of one line be under way at once.
    pub(super) fn limit(&mut self, open_max: u32) {
        if self.open_max == open_max {
            return;
        }
        self.open_max = open_max;
        let keys: Vec<LineKey> = self.lines.keys().cloned().collect();
        keys.iter().for_each(|key| self.change(key, |_| {}));
    }

    /// Changes a line and files it where it now belongs.
    fn change(&mut self, key: &LineKey, change: impl FnOnce(&mut Line)) {
        let line = self.lines.entry(key.clone()).or_default();
        change(line);
        let filed = line.place(self.open_max);
        let before = std::mem::replace(&mut line.filed, filed);
        let idle = line.due.is_empty() && line.open == 0;
        if before != filed {
            match before {
                Some(Filed::Later(at)) => drop(self.later.remove(&(at, key.clone()))),
                Some(Filed::Turn(served)) => drop(self.turns.remove(&(served, key.clone()))),
                None => {}
            }
            match filed {
                Some(Filed::Later(at)) => drop(self.later.insert((at, key.clone()))),
                Some(Filed::Turn(served)) => drop(self.turns.insert((served, key.clone()))),
                None => {}
            }
        }
        if idle {
            self.lines.remove(key);
        }
    }

    /// Does this delivery wait in this line?
    pub(super) fn holds(&self, key: &LineKey, due: Mono, seq: Seq) -> bool {
        self.lines.get(key).is_some_and(|line| line.due.contains(&(due, seq)))
    }

    /// Checks that every line stands where it belongs; gives how many wait and how many are under way.
    pub(super) fn check(&self) -> Result<(usize, u32), String> {
        let mut filed = (0, 0);
        for (key, line) in &self.lines {
            let stands = match line.filed {
                None => line.place(self.open_max).is_none(),
                Some(Filed::Later(at)) => {
                    filed.0 += 1;
                    let first = line.due.first().map(|(at, _)| *at);
                    line.open < self.open_max && first == Some(at) && self.later.contains(&(at, key.clone()))
                }
                Some(Filed::Turn(served)) => {
                    filed.1 += 1;
                    let may = line.open < self.open_max && !line.due.is_empty();
                    may && self.turns.contains(&(served, key.clone()))
                }
            };
            if !stands || (line.due.is_empty() && line.open == 0) {
                return Err(format!("the line of {key:?} stands as {:?}", line.filed));
            }
        }
        if filed != (self.later.len(), self.turns.len()) {
            return Err(format!("{filed:?} lines are filed, {} and {}", self.later.len(), self.turns.len()));
        }
        let lines = self.lines.values();
        Ok(lines.fold((0, 0), |(due, open), line| (due + line.due.len(), open + line.open)))
    }
}

impl Line {
    /// Where the line belongs until the clock is looked at: [`Lines::next`] gives it a turn when its first is due.
    fn place(&self, open_max: u32) -> Option<Filed> {
        let (first, _) = self.due.first().filter(|_| self.open < open_max)?;
        Some(Filed::Later(*first))
    }
}
