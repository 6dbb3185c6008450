//! Agent turns by schedule.

use laneway_core::schedule::{FireMode, SCHEDULE_SELF};
use laneway_core::{
    CatchUp, FiringLogEntry, FiringStatus, JobSpec, Name, Overlap, Reply, Schedule, ScheduleId,
    SchedulePatch, ScheduleSpec, Span, Timing, Wall,
};
use laneway_runtime::agent_turn::{AGENT_TURN, AgentTurn};
use laneway_runtime::schedules::SCHEDULES_LISTED_MAX;
use laneway_runtime::store::FiringLogFilter;

use super::handle::{Gateway, name, origin};
use super::outcome::GatewayError;

/// Most firings that one call returns.
const RUNS_MAX: usize = 200;
/// How often a change is repeated because the schedule changed meanwhile.
const UPDATE_TRIES_MAX: u32 = 16;

/// The agent turn of a schedule.
#[derive(Clone, Debug, Default)]
pub struct CronTurn {
    /// The agent. `None`: `default`.
    pub agent: Option<String>,
    /// The message to the agent.
    pub message: String,
    /// The channel and recipient of its answer. It is published as an [`super::Outbound`], unless it asks for
    /// silence.
    pub deliver: Option<(String, String)>,
    /// The owner.
    pub user: Option<String>,
}

/// The changes of a cron job; `None` keeps the current value.
#[derive(Clone, Debug, Default)]
pub struct CronPatch {
    /// A new name.
    pub name: Option<String>,
    /// A new timing.
    pub timing: Option<Timing>,
    /// Another agent; `Some(None)`: `default`.
    pub agent: Option<Option<String>>,
    /// Another message.
    pub message: Option<String>,
    /// The target of its answer; `Some(None)`: none.
    pub deliver: Option<Option<(String, String)>>,
    /// On or off.
    pub enabled: Option<bool>,
    /// Whether it is deleted after its firing.
    pub delete_after_run: Option<bool>,
}

/// A cron job.
#[derive(Clone, Debug, PartialEq)]
pub struct CronJob {
    /// Its id.
    pub id: ScheduleId,
    /// Its name.
    pub name: String,
    /// The agent.
    pub agent: String,
    /// The message to the agent.
    pub message: String,
    /// The target of its answer.
    pub deliver: Option<(String, String)>,
    /// The owner.
    pub user: Option<String>,
    /// The timing.
    pub timing: Timing,
    /// False: it is disabled.
    pub enabled: bool,
    /// Its next slot.
    pub next_at: Option<Wall>,
    /// When its latest firing ended.
    pub last_run_at: Option<Wall>,
    /// The state of its latest firing. `Queued`: it has not started, for instance because there is no
    /// handler.
    pub last_status: Option<FiringStatus>,
    /// The error of its latest firing.
    pub last_error: Option<String>,
}

impl CronJob {
    /// `None`: the payload of the schedule is not an agent turn.
    fn of(schedule: &Schedule) -> Option<CronJob> {
        let Schedule { id, spec, state, .. } = schedule;
        let turn =
            (spec.job.kind.as_str() == AGENT_TURN).then(|| AgentTurn::read(&spec.payload).ok()).flatten()?;
        Some(CronJob {
            id: *id,
            name: spec.name.to_string(),
            agent: spec.job.agent.to_string(),
            message: turn.message,
            deliver: turn.deliver.then_some((turn.deliver_channel, turn.deliver_to)),
            user: spec.owner.as_ref().map(Name::to_string),
            timing: spec.timing.clone(),
            enabled: spec.enabled,
            next_at: state.next_at,
            last_run_at: state.last_ended_at,
            last_status: state.last_status,
            last_error: state.last_error.as_deref().map(str::to_owned),
        })
    }
}

impl Gateway {
    /// Creates a cron job: an agent turn in the lane `cron`, in its own session. A timing without a future
    /// slot is rejected.
    pub async fn add_cron(
        &self,
        job_name: &str,
        timing: Timing,
        turn: CronTurn,
    ) -> Result<ScheduleId, GatewayError> {
        let CronTurn { agent, message, deliver, user } = turn;
        let job = AgentTurn::of_cron(self.tenant(), agent.as_deref(), SCHEDULE_SELF)
            .map_err(|problem| GatewayError::Invalid { field: "agent", problem })?;
        let mut turn = AgentTurn { job_name: Some(job_name.to_owned()), ..AgentTurn::new(message) };
        turn.user_id.clone_from(&user);
        if let Some((channel, to)) = deliver {
            (turn.deliver, turn.deliver_channel, turn.deliver_to) = (true, channel, to);
        }
        let spec = ScheduleSpec {
            tenant: self.tenant().clone(),
            name: name("name", job_name)?,
            timing,
            job,
            payload: turn.write(),
            enabled: true,
            delete_after_run: None,
            catch_up: CatchUp::Skip,
            overlap: Overlap::Skip,
            jitter: Span(0),
            note: Vec::new().into(),
            owner: user.map(|user| name("user", &user)).transpose()?,
        };
        match self.scheduler().put_schedule(spec, origin()).await? {
            Reply::Schedule(schedule) => Ok(schedule.id),
            Reply::Rejected(rejection) => Err(rejection.into()),
            other => Err(GatewayError::Unknown(format!("{other:?}"))),
        }
    }

    /// Every cron job of the gateway's tenant, oldest first, with or without disabled ones.
    pub async fn list_cron(&self, include_disabled: bool) -> Result<Vec<CronJob>, GatewayError> {
        let tenant = Name::clone(self.tenant());
        let mut jobs = Vec::new();
        let mut after = None;
        loop {
            let page =
                self.scheduler().schedules(Some(tenant.clone()), after, SCHEDULES_LISTED_MAX, true).await?;
            jobs.extend(page.iter().filter_map(CronJob::of));
            match page.last() {
                Some(last) if page.len() >= SCHEDULES_LISTED_MAX => after = Some(last.id),
                _ => break,
            }
        }
        jobs.retain(|job| include_disabled || job.enabled);
        Ok(jobs)
    }

    /// One cron job. `None`: there is none with this id.
    pub async fn cron(&self, id: ScheduleId) -> Result<Option<CronJob>, GatewayError> {
        let schedule = self.scheduler().schedule(Some(Name::clone(self.tenant())), id).await?;
        Ok(schedule.as_ref().and_then(CronJob::of))
    }

    /// The latest firings, newest first, of one cron job or of all; at most `limit`, and never more than 200.
    pub async fn cron_runs(
        &self,
        id: Option<ScheduleId>,
        limit: usize,
    ) -> Result<Vec<FiringLogEntry>, GatewayError> {
        let filter = FiringLogFilter { tenant: Some(Name::clone(self.tenant())), schedule: id };
        let page = self.scheduler().firing_log(filter, None, limit.clamp(1, RUNS_MAX)).await;
        page.map(|page| page.items).map_err(|error| GatewayError::Unknown(error.to_string()))
    }

    /// Enables a cron job: it continues with its first slot after now. False: there is none. A cron job
    /// without a future slot is rejected and stays disabled.
    pub async fn enable_cron(&self, id: ScheduleId) -> Result<bool, GatewayError> {
        self.toggle_cron(id, true).await
    }

    /// Disables a cron job. A running turn goes on. False: there is none.
    pub async fn disable_cron(&self, id: ScheduleId) -> Result<bool, GatewayError> {
        self.toggle_cron(id, false).await
    }

    async fn toggle_cron(&self, id: ScheduleId, enabled: bool) -> Result<bool, GatewayError> {
        let tenant = Some(Name::clone(self.tenant()));
        match self.scheduler().toggle_schedule(tenant, id, enabled, origin()).await? {
            Reply::Schedule(_) => Ok(true),
            Reply::Rejected(rejection) => Err(rejection.into()),
            _ => Ok(false),
        }
    }

    /// Changes a cron job, all fields or none. Returns the changed job. `None`: there is none.
    pub async fn update_cron(
        &self,
        id: ScheduleId,
        patch: CronPatch,
    ) -> Result<Option<CronJob>, GatewayError> {
        let tenant = Some(Name::clone(self.tenant()));
        for _ in 0..UPDATE_TRIES_MAX {
            let found = self.scheduler().schedule(tenant.clone(), id).await?;
            let Some(schedule) = found.filter(|schedule| CronJob::of(schedule).is_some()) else {
                return Ok(None);
            };
            let change = self.cron_change(schedule, patch.clone())?;
            match self.scheduler().update_schedule(tenant.clone(), id, change, origin()).await? {
                Reply::Schedule(schedule) => return Ok(CronJob::of(&schedule)),
                Reply::Rejected(rejection) => return Err(rejection.into()),
                // The job changed meanwhile: the patch is applied to the new version.
                Reply::Stale => {}
                _ => return Ok(None),
            }
        }
        Err(GatewayError::Unknown("too many concurrent changes of the cron job; try again".to_owned()))
    }

    /// The change of the schedule for a patch.
    fn cron_change(&self, schedule: Schedule, patch: CronPatch) -> Result<SchedulePatch, GatewayError> {
        let CronPatch { name: new_name, timing, agent, message, deliver, enabled, delete_after_run } = patch;
        let spec = schedule.spec;
        let mut turn = AgentTurn::read(&spec.payload)
            .map_err(|error| GatewayError::Unknown(format!("the payload is not an agent turn: {error}")))?;
        if let Some(message) = message {
            turn.message = message;
        }
        match deliver {
            Some(Some((channel, to))) => {
                (turn.deliver, turn.deliver_channel, turn.deliver_to) = (true, channel, to);
            }
            Some(None) => turn.deliver = false,
            None => {}
        }
        if new_name.is_some() {
            turn.job_name.clone_from(&new_name);
        }
        let job = agent
            .map(|agent| {
                let fresh = AgentTurn::of_cron(self.tenant(), agent.as_deref(), &schedule.id.to_string())
                    .map_err(|problem| GatewayError::Invalid { field: "agent", problem })?;
                let JobSpec { agent, session, .. } = fresh;
                Ok::<_, GatewayError>(Box::new(JobSpec { agent, session, ..spec.job.clone() }))
            })
            .transpose()?;
        Ok(SchedulePatch {
            name: new_name.map(|new| name("name", &new)).transpose()?,
            timing,
            job,
            payload: Some(turn.write()).filter(|payload| *payload != spec.payload),
            enabled,
            delete_after_run,
            made_from: Some(Box::new(spec)),
            ..SchedulePatch::default()
        })
    }

    /// Deletes a cron job. A running turn goes on. False: there is none.
    pub async fn remove_cron(&self, id: ScheduleId) -> Result<bool, GatewayError> {
        let tenant = Some(Name::clone(self.tenant()));
        let reply = self.scheduler().delete_schedule(tenant, id, origin()).await?;
        Ok(matches!(reply, Reply::Schedule(_)))
    }

    /// Fires a cron job now. False: it is running already, or there is none.
    pub async fn run_cron(&self, id: ScheduleId) -> Result<bool, GatewayError> {
        let tenant = Some(Name::clone(self.tenant()));
        match self.scheduler().run_schedule(tenant, id, FireMode::Force, origin()).await? {
            Reply::ScheduleFiredByHand { fired, .. } => Ok(fired),
            Reply::Rejected(rejection) => Err(rejection.into()),
            _ => Ok(false),
        }
    }
}
