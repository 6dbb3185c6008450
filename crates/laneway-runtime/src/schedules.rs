//! Schedules through the handle: made, changed, switched, run, listed, and the log of their runs.
//!
//! Every change is a command to the loop, like all others. Lists come from the engine, which holds every schedule; older
//! entries of the firing log come from the store.

use laneway_core::command::ScheduleCommand;
use laneway_core::schedule::{FireMode, preview};
use laneway_core::{
    Command, Name, Origin, Reply, ScheduleId, SchedulePatch, ScheduleSpec, Timing, TimingError, Wall,
};
use laneway_store::{FiringLogFilter, FiringLogPage};

use crate::scheduler::{ReadError, Scheduler, Stopped};

/// Most schedules that one call lists: the loop does nothing else meanwhile.
pub const SCHEDULES_LISTED_MAX: usize = 1_000;
/// Most entries of the firing log that one call lists.
pub const RUNS_LISTED_MAX: usize = 1_000;

impl Scheduler {
    /// Makes a schedule. `Reply::Schedule`, or `Reply::Rejected`.
    pub async fn put_schedule(&self, spec: ScheduleSpec, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::Schedule(ScheduleCommand::Put(Box::new(spec), origin))).await
    }

    /// Changes a schedule: all of what is asked, or nothing. `Reply::Schedule`, `Reply::Rejected` or `Reply::NotFound`.
    pub async fn update_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        patch: SchedulePatch,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Schedule(ScheduleCommand::Update { tenant, id, patch: Box::new(patch), origin }))
            .await
    }

    /// Deletes a schedule. `Reply::Schedule` with the schedule as it was, or `Reply::NotFound`.
    pub async fn delete_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Schedule(ScheduleCommand::Delete { tenant, id, origin })).await
    }

    /// Switches a schedule on or off. `Reply::Schedule`, `Reply::Rejected` or `Reply::NotFound`.
    pub async fn toggle_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        enabled: bool,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Schedule(ScheduleCommand::Toggle { tenant, id, enabled, origin })).await
    }

    /// Runs a schedule by hand. `Reply::ScheduleFiredByHand`, `Reply::Rejected` or `Reply::NotFound`.
    pub async fn run_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        mode: FireMode,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Schedule(ScheduleCommand::Fire { tenant, id, mode, origin })).await
    }

    /// Entries of the firing log before number `before`, newest first, from the store; also of schedules that are gone.
    pub async fn firing_log(
        &self,
        filter: FiringLogFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<FiringLogPage, ReadError> {
        let limit = limit.min(RUNS_LISTED_MAX);
        let tenant = filter.tenant.clone();
        self.list(tenant, move |reader| reader.firing_log(&filter, before, limit)).await
    }

    /// The next runs of a timing, as if it began now.
    pub async fn preview(
        &self,
        mut timing: Timing,
        count: usize,
    ) -> Result<Result<Vec<Wall>, TimingError>, Stopped> {
        if let Timing::Cron { zone: zone @ None, .. } = &mut timing {
            *zone = Some(self.schedule_zone().await?);
        }
        Ok(preview(&timing, self.wall(), count))
    }
}
