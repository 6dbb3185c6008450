//! Schedules through the handle: made, changed, switched, run, listed, and the log of their runs.
//!
//! Every change is a command to the loop, like all others. Lists come from the engine, which holds every schedule; older
//! entries of the run log come from the store.

use laneway_core::schedule::{RunMode, preview};
use laneway_core::{
    Command, Name, Origin, Reply, RunLog, Schedule, ScheduleId, SchedulePatch, ScheduleSpec, Timing,
    TimingError, Wall,
};
use laneway_store::{RunLogFilter, RunPage};

use crate::scheduler::{QueryError, Scheduler, Stopped};

/// Most schedules that one call lists: the loop does nothing else meanwhile.
pub const SCHEDULES_LISTED_MAX: usize = 1_000;
/// Most entries of the run log that one call lists.
pub const RUNS_LISTED_MAX: usize = 1_000;

impl Scheduler {
    /// Makes a schedule. `Reply::Schedule`, or `Reply::Refused`.
    pub async fn put_schedule(&self, spec: ScheduleSpec, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::PutSchedule(Box::new(spec), origin)).await
    }

    /// Changes a schedule: all of what is asked, or nothing. `Reply::Schedule`, `Reply::Refused` or `Reply::NotFound`.
    pub async fn update_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        patch: SchedulePatch,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::UpdateSchedule { tenant, id, patch: Box::new(patch), origin }).await
    }

    /// Deletes a schedule. `Reply::Schedule` with the schedule as it was, or `Reply::NotFound`.
    pub async fn delete_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::DeleteSchedule { tenant, id, origin }).await
    }

    /// Switches a schedule on or off. `Reply::Schedule`, `Reply::Refused` or `Reply::NotFound`.
    pub async fn toggle_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        enabled: bool,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::ToggleSchedule { tenant, id, enabled, origin }).await
    }

    /// Runs a schedule by hand. `Reply::ScheduleRan`, `Reply::Refused` or `Reply::NotFound`.
    pub async fn run_schedule(
        &self,
        tenant: Option<Name>,
        id: ScheduleId,
        mode: RunMode,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::RunSchedule { tenant, id, mode, origin }).await
    }

    /// One schedule.
    pub async fn schedule(&self, tenant: Option<Name>, id: ScheduleId) -> Result<Option<Schedule>, Stopped> {
        self.read(move |engine, _| engine.schedule(tenant.as_ref(), id).cloned()).await
    }

    /// The schedule of that name.
    pub async fn schedule_named(&self, tenant: Name, name: Name) -> Result<Option<Schedule>, Stopped> {
        self.read(move |engine, _| engine.schedule_named(&tenant, &name).cloned()).await
    }

    /// Schedules after `after` in the order they were made, at most [`SCHEDULES_LISTED_MAX`].
    pub async fn schedules(
        &self,
        tenant: Option<Name>,
        after: Option<ScheduleId>,
        limit: usize,
        include_disabled: bool,
    ) -> Result<Vec<Schedule>, Stopped> {
        let limit = limit.min(SCHEDULES_LISTED_MAX);
        self.read(move |engine, _| {
            let listed = engine.schedules(tenant.as_ref(), after, limit, include_disabled);
            listed.into_iter().cloned().collect()
        })
        .await
    }

    /// The latest entries of the run log, newest first, from memory: the last 200 of the whole server.
    pub async fn recent_runs(&self, tenant: Option<Name>) -> Result<Vec<RunLog>, Stopped> {
        self.read(move |engine, _| engine.recent_runs(tenant.as_ref()).cloned().collect()).await
    }

    /// Entries of the run log before number `before`, newest first, from the store; also of schedules that are gone.
    pub async fn run_logs(
        &self,
        filter: RunLogFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<RunPage, QueryError> {
        let limit = limit.min(RUNS_LISTED_MAX);
        self.query(move |reader| reader.run_logs(&filter, before, limit)).await
    }

    /// The next runs of a timing, as if it began now.
    pub async fn preview(
        &self,
        mut timing: Timing,
        count: usize,
    ) -> Result<Result<Vec<Wall>, TimingError>, Stopped> {
        if let Timing::Cron { zone: zone @ None, .. } = &mut timing {
            *zone = Some(self.read(|engine, _| engine.settings().schedules.zone.clone()).await?);
        }
        Ok(preview(&timing, self.wall(), count))
    }
}
