//! Owners that were replaced: a process that does not know that another one has taken the store over, and goes on.

use std::collections::VecDeque;

use laneway_core::Command;
use laneway_core::command::AdminCommand;
use laneway_runtime::Driver;
use laneway_store::Epoch;

use super::World;
use crate::panics::caught;
use crate::violation::{Checked, hold};

impl World {
    /// The process before goes on beside the one that has replaced it. Nothing that it decides may be written, and nothing may be
    /// published, not even what needs no commit.
    pub(super) fn replaced_owner_goes_on(&mut self, mut old: Driver, epoch: Epoch) -> Checked {
        // A store that is opened without a new epoch has no owners.
        if self.disk.epoch() == epoch {
            return Ok(());
        }
        let writes = self.boots.is_multiple_of(2);
        let mut commands = VecDeque::new();
        if writes {
            commands.push_back(Command::Admin(AdminCommand::Drain));
        }
        self.log.note(|| format!("the server of epoch {} goes on, although it was replaced", epoch.0));
        let now = self.clock.moment().now;
        let published = caught(|| {
            let batch = old.apply(now, &mut commands).ok()?;
            old.commit(batch).ok()
        })?;
        // What it was answered is no part of the story of the server that has replaced it.
        drop(self.disk.noted());
        let rule = if writes { "I30" } else { "I32" };
        hold(rule, published.is_none(), || {
            format!("the server of epoch {} published {published:?} after it was replaced", epoch.0)
        })
    }
}
