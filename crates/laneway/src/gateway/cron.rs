//! Turns by the clock.

use laneway_core::schedule::{RunMode, SCHEDULE_SELF};
use laneway_core::{CatchUp, Name, Overlap, Reply, ScheduleId, ScheduleSpec, Span, Timing};
use laneway_runtime::agent_turn::AgentTurn;

use super::handle::{Gateway, name, origin};
use super::outcome::GatewayError;

/// A turn that a schedule asks for.
#[derive(Clone, Debug, Default)]
pub struct CronTurn {
    /// The agent. `None`: `default`.
    pub agent: Option<String>,
    /// What is said to it.
    pub message: String,
    /// Where its answer goes: a channel, and whom to. It is published as an [`super::Outbound`], unless it asks for silence.
    pub deliver: Option<(String, String)>,
    /// Whose it is.
    pub user: Option<String>,
}

impl Gateway {
    /// Makes a cron job: a turn in the lane `cron`, in a session of its own. A timing that never comes is refused.
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
            Reply::Refused(refusal) => Err(refusal.into()),
            other => Err(GatewayError::Unknown(format!("{other:?}"))),
        }
    }

    /// Deletes a cron job. A run of it goes on. False: there is none.
    pub async fn remove_cron(&self, id: ScheduleId) -> Result<bool, GatewayError> {
        let tenant = Some(Name::clone(self.tenant()));
        let reply = self.scheduler().delete_schedule(tenant, id, origin()).await?;
        Ok(matches!(reply, Reply::Schedule(_)))
    }

    /// Runs a cron job now. False: it runs already, or there is none.
    pub async fn run_cron(&self, id: ScheduleId) -> Result<bool, GatewayError> {
        let tenant = Some(Name::clone(self.tenant()));
        match self.scheduler().run_schedule(tenant, id, RunMode::Force, origin()).await? {
            Reply::ScheduleRan { ran, .. } => Ok(ran),
            Reply::Refused(refusal) => Err(refusal.into()),
            _ => Ok(false),
        }
    }
}
