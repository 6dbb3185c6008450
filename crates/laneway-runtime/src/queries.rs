//! Queries to the live engine: the loop answers them between two batches.
//!
//! Every query is a [`Query`], so that another process could answer it as well. The methods here name the type of the
//! answer. Queries to the store are in `scheduler.rs`.

use std::collections::BTreeSet;

use laneway_core::engine::{AgentStats, CapacityView, Explanation, Hold, LeaseView, SessionView, Stats};
use laneway_core::lease::Decision;
use laneway_core::worker::WorkerView;
use laneway_core::{
    Answer, AttemptId, CapacitySettings, ExecutorOffer, FiringLogEntry, JobId, JobState, KeptKeys, Key,
    KeyUse, LaneUse, Name, Query, Record, RecordName, Schedule, ScheduleId, Settings, Span, Wall,
};
use tokio::sync::{mpsc, oneshot};

use crate::event_loop::ClientRequest;
use crate::history::{HistoryView, Range};
use crate::records::RECORDS_LISTED_MAX;
use crate::scheduler::{Scheduler, Stopped};
use crate::schedules::SCHEDULES_LISTED_MAX;

/// Asks, and takes the content out of the answer of the same name.
macro_rules! ask {
    ($scheduler:expr, $query:expr, $answer:pat => $content:expr) => {
        match $scheduler.query($query).await? {
            $answer => Ok($content),
            other => unreachable!("the engine gave the answer to another question: {other:?}"),
        }
    };
}

/// Asks the engine without a handle.
pub(crate) async fn query(requests: &mpsc::Sender<ClientRequest>, query: Query) -> Result<Answer, Stopped> {
    let (reply, answer) = oneshot::channel();
    requests.send(ClientRequest::Query(query, reply)).await.map_err(|_| Stopped)?;
    answer.await.map_err(|_| Stopped)
}

impl Scheduler {
    /// Asks the engine between two batches. The answer holds for the moment at which it was given.
    pub async fn query(&self, query: Query) -> Result<Answer, Stopped> {
        self::query(&self.requests, query).await
    }

    /// Returns when the loop has published everything that it had taken before.
    pub async fn barrier(&self) -> Result<(), Stopped> {
        ask!(self, Query::Barrier, Answer::Barrier => ())
    }

    /// How many jobs wait and run; of one tenant, or of all.
    pub async fn stats(&self, tenant: Option<Name>) -> Result<Stats, Stopped> {
        ask!(self, Query::Stats { tenant }, Answer::Stats(stats) => *stats)
    }

    /// What happened in the last hour or day; of one tenant, or of all. `lane`, `kind`: only of these. It is as of the last
    /// committed batch, and the loop is not asked.
    pub fn history(
        &self,
        tenant: Option<&Name>,
        range: Range,
        lane: Option<&Name>,
        kind: Option<&Name>,
    ) -> HistoryView {
        let now = self.shared.clock.now().wall;
        self.shared.history.view(now, tenant, range, lane, kind)
    }

    /// The statistics for the metrics page.
    pub(crate) async fn engine_metrics(&self) -> Result<(Stats, CapacityView), Stopped> {
        ask!(self, Query::Metrics, Answer::Metrics(stats, capacity) => (*stats, *capacity))
    }

    /// The agents of a lane, with the statistics of the same moment; of one tenant, or of all.
    pub async fn agents_in(
        &self,
        tenant: Option<Name>,
        lane: Name,
    ) -> Result<(Stats, Vec<AgentStats>), Stopped> {
        ask!(self, Query::Agents { tenant, lane }, Answer::Agents(stats, agents) => (*stats, agents))
    }

    /// How many jobs wait in a lane.
    pub async fn waiting_in(&self, lane: Name) -> Result<u32, Stopped> {
        ask!(self, Query::Waiting { lane }, Answer::Waiting(count) => count)
    }

    /// The use of these lanes, in the order of their names.
    pub async fn lane_use(&self, lanes: BTreeSet<Name>) -> Result<Vec<LaneUse>, Stopped> {
        ask!(self, Query::LaneUse { lanes }, Answer::LaneUse(lanes) => lanes)
    }

    /// The machine and its jobs.
    pub async fn capacity(&self) -> Result<CapacityView, Stopped> {
        ask!(self, Query::Capacity, Answer::Capacity(view) => *view)
    }

    /// The settings of the machine's capacity, as they are in force.
    pub async fn capacity_settings(&self) -> Result<CapacitySettings, Stopped> {
        ask!(self, Query::CapacitySettings, Answer::CapacitySettings(settings) => *settings)
    }

    /// How long a lease of this lane lives without a renewal.
    pub async fn lease_ttl(&self, lane: Name) -> Result<Span, Stopped> {
        ask!(self, Query::LeaseTtl { lane }, Answer::LeaseTtl(span) => span)
    }

    /// The open attempts of pull workers; of one tenant, or of all.
    pub async fn leases(&self, tenant: Option<Name>) -> Result<Vec<LeaseView>, Stopped> {
        ask!(self, Query::Leases { tenant }, Answer::Leases(leases) => leases)
    }

    /// The lease of this id.
    pub async fn lease(&self, tenant: Option<Name>, lease: AttemptId) -> Result<Option<LeaseView>, Stopped> {
        ask!(self, Query::Lease { tenant, lease }, Answer::Lease(view) => view.map(|view| *view))
    }

    /// The latest decisions about jobs with a capacity request, the newest first; of one tenant, or of all.
    pub async fn decisions(&self, tenant: Option<Name>) -> Result<Vec<Decision>, Stopped> {
        ask!(self, Query::Decisions { tenant }, Answer::Decisions(decisions) => decisions)
    }

    /// The registered workers by tenant and name, and the time of the answer; of one tenant, or of all.
    pub async fn workers(&self, tenant: Option<Name>) -> Result<(Vec<WorkerView>, Wall), Stopped> {
        ask!(self, Query::Workers { tenant }, Answer::Workers(at, workers) => (workers, at))
    }

    /// One worker, and the time of the answer.
    pub async fn worker(&self, tenant: Name, worker: Name) -> Result<Option<(WorkerView, Wall)>, Stopped> {
        let query = Query::Worker { tenant, worker };
        ask!(self, query, Answer::Worker(at, view) => view.map(|view| (*view, at)))
    }

    /// The kinds that an executor or a worker serves for a tenant.
    pub async fn kinds_served(&self, tenant: Name) -> Result<BTreeSet<Name>, Stopped> {
        ask!(self, Query::KindsServed { tenant }, Answer::KindsServed(kinds) => kinds)
    }

    /// The offers of the executors.
    pub async fn offers(&self) -> Result<Vec<ExecutorOffer>, Stopped> {
        ask!(self, Query::Offers, Answer::Offers(offers) => offers)
    }

    /// How a session stands. `None`: it has no job, and nothing is remembered of it.
    pub async fn session(&self, tenant: Name, key: Name) -> Result<Option<SessionView>, Stopped> {
        ask!(self, Query::Session { tenant, key }, Answer::Session(view) => view.map(|view| *view))
    }

    /// A tenant's sessions by name, those after `after`, `limit` at most.
    pub async fn sessions(
        &self,
        tenant: Name,
        after: Option<Name>,
        limit: usize,
    ) -> Result<Vec<SessionView>, Stopped> {
        ask!(self, Query::Sessions { tenant, after, limit }, Answer::Sessions(sessions) => sessions)
    }

    /// The tenants that have sessions.
    pub(crate) async fn session_tenants(&self) -> Result<Vec<Name>, Stopped> {
        ask!(self, Query::SessionTenants, Answer::SessionTenants(tenants) => tenants)
    }

    /// How many sessions run a job of this agent.
    pub async fn active_sessions_of(&self, tenant: Name, agent: Name) -> Result<u32, Stopped> {
        ask!(self, Query::ActiveSessions { tenant, agent }, Answer::ActiveSessions(count) => count)
    }

    /// One schedule.
    pub async fn schedule(&self, tenant: Option<Name>, id: ScheduleId) -> Result<Option<Schedule>, Stopped> {
        ask!(self, Query::Schedule { tenant, id }, Answer::Schedule(found) => found.map(|found| *found))
    }

    /// The schedule of that name.
    pub async fn schedule_named(&self, tenant: Name, name: Name) -> Result<Option<Schedule>, Stopped> {
        let query = Query::ScheduleNamed { tenant, name };
        ask!(self, query, Answer::Schedule(found) => found.map(|found| *found))
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
        let query = Query::Schedules { tenant, after, limit, include_disabled };
        ask!(self, query, Answer::Schedules(schedules) => schedules)
    }

    /// The time zone of schedules that name none.
    pub(crate) async fn schedule_zone(&self) -> Result<Name, Stopped> {
        ask!(self, Query::ScheduleZone, Answer::ScheduleZone(zone) => zone)
    }

    /// The latest entries of the firing log, newest first, from memory: the last 200 of the whole server.
    pub async fn recent_firings(&self, tenant: Option<Name>) -> Result<Vec<FiringLogEntry>, Stopped> {
        ask!(self, Query::RecentFirings { tenant }, Answer::RecentFirings(entries) => entries)
    }

    /// The entry of the firing log with this number, if it is one of the latest.
    pub async fn recent_firing(&self, tenant: Name, number: u64) -> Result<Option<FiringLogEntry>, Stopped> {
        let query = Query::RecentFiring { tenant: Some(tenant), number };
        ask!(self, query, Answer::RecentFiring(entry) => entry.map(|entry| *entry))
    }

    /// Why a job waits, or where it runs. `None`: there is no such live job.
    pub async fn explain(&self, tenant: Option<Name>, job: JobId) -> Result<Option<Explanation>, Stopped> {
        ask!(self, Query::Explain { tenant, job }, Answer::Explain(found) => found.map(|found| *found))
    }

    /// The first reason why each of these jobs waits, in their order.
    pub async fn first_holds(
        &self,
        tenant: Option<Name>,
        jobs: Vec<JobId>,
    ) -> Result<Vec<Option<Hold>>, Stopped> {
        ask!(self, Query::FirstHolds { tenant, jobs }, Answer::FirstHolds(holds) => holds)
    }

    /// The state of a live job.
    pub async fn state_of(&self, job: JobId) -> Result<Option<JobState>, Stopped> {
        ask!(self, Query::JobState { job }, Answer::JobState(state) => state)
    }

    /// The keys that ended jobs keep, in the order of the jobs; of one tenant, or of all.
    pub async fn kept_keys(&self, tenant: Option<Name>) -> Result<Vec<KeptKeys>, Stopped> {
        ask!(self, Query::KeptKeys { tenant }, Answer::KeptKeys(rows) => rows)
    }

    /// How much of a key is taken. Another job may take the rest before the caller acts on the answer.
    pub async fn key_use(&self, tenant: Name, key: Key) -> Result<KeyUse, Stopped> {
        ask!(self, Query::KeyUse { tenant, key }, Answer::KeyUse(key) => key)
    }

    /// One record.
    pub async fn record(&self, name: RecordName) -> Result<Option<Record>, Stopped> {
        ask!(self, Query::Record { name }, Answer::Record(found) => found.map(|found| *found))
    }

    /// Records of a collection after the id `after`, in the order of their ids, at most [`RECORDS_LISTED_MAX`].
    pub async fn records(
        &self,
        tenant: Name,
        collection: Name,
        after: Option<Name>,
        limit: usize,
    ) -> Result<Vec<Record>, Stopped> {
        let limit = limit.min(RECORDS_LISTED_MAX);
        let query = Query::Records { tenant, collection, after, limit };
        ask!(self, query, Answer::Records(records) => records)
    }

    /// All settings in force.
    pub async fn settings(&self) -> Result<Settings, Stopped> {
        ask!(self, Query::Settings, Answer::Settings(settings) => *settings)
    }

    /// Counts everything in the engine again. The inner error names what disagrees.
    pub async fn check_invariants(&self) -> Result<Result<(), String>, Stopped> {
        ask!(self, Query::Invariants, Answer::Invariants(checked) => checked)
    }
}
