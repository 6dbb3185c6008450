//! The history in the loop: batches are counted after their commit, and intervals that are over become records.

use laneway_core::{Command, Now};
use laneway_store::StoreError;

use super::{Caller, Loop};
use crate::batch::Committed;

/// Most records of the history that one batch takes, so that calls do not wait behind them.
const RECORDS_AT_ONCE: usize = 32;

impl Loop {
    /// Counts a committed batch. Whatever is over was closed before.
    pub(super) fn count_batch(&mut self, now: Now, committed: &Committed) {
        if self.shared.history.is_due(now.wall) {
            let depths = self.driver.engine().depths();
            let load = self.driver.engine().load_sample(now);
            self.roll_ups.extend(self.shared.history.advance(now.wall, &depths, load));
        }
        self.shared.history.count(&committed.events, &committed.changes, &committed.notices);
    }

    /// Puts records of the history into the next batch.
    pub(super) fn store_history(&mut self) {
        let count = self.roll_ups.len().min(RECORDS_AT_ONCE);
        for command in self.roll_ups.drain(..count) {
            self.commands.push_back(Command::Record(Box::new(command)));
            self.callers.push_back(Caller::None);
        }
    }

    /// Stores the open minute at the end of the process, so that only a crash loses it.
    pub(super) fn flush_history(&mut self, now: Now) -> Result<(), StoreError> {
        self.roll_ups.extend(self.shared.history.flush());
        let records = self.roll_ups.drain(..).map(|command| Command::Record(Box::new(command)));
        self.commands.extend(records);
        while !self.commands.is_empty() {
            let batch = self.driver.apply(now, &mut self.commands)?;
            let committed = self.driver.commit(batch)?;
            self.driver.take_back(committed);
        }
        Ok(())
    }
}
