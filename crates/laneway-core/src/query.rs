//! Queries of the live engine, and their answers.
//!
//! Both are plain data: a query can be stored, logged or sent to another machine. [`Engine::query`] answers all of
//! them and changes nothing. Queries do not read the store.

use std::collections::BTreeSet;

use crate::capacity::CapacitySettings;
use crate::command::ExecutorOffer;
use crate::engine::{AgentStats, CapacityView, Engine, Explanation, Hold, LeaseView, SessionView, Stats};
use crate::id::{AttemptId, JobId, ScheduleId};
use crate::job::{JobState, Key};
use crate::kept_keys::{KeptKeys, KeyUse};
use crate::lease::Decision;
use crate::name::Name;
use crate::record::{Record, RecordName};
use crate::schedule::{FiringLogEntry, Schedule};
use crate::settings::Settings;
use crate::time::{Now, Span, Wall};
use crate::worker::WorkerView;

/// A query. A `tenant` of `None` means every tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Nothing. The answer shows that every earlier command has been applied.
    Barrier,
    /// How many jobs wait and run.
    Stats {
        /// Of this tenant.
        tenant: Option<Name>,
    },
    /// What the metrics page shows of the engine.
    Metrics,
    /// The agents of a lane, with the statistics of the same moment.
    Agents {
        /// Of this tenant.
        tenant: Option<Name>,
        /// In this lane.
        lane: Name,
    },
    /// How many jobs wait in a lane.
    Waiting {
        /// The lane.
        lane: Name,
    },
    /// What still uses these lanes.
    LaneUse {
        /// The lanes. The answer leaves out those that the engine does not know.
        lanes: BTreeSet<Name>,
    },
    /// The machine and its jobs.
    Capacity,
    /// The settings of the machine's capacity.
    CapacitySettings,
    /// How long a lease of this lane lives without a renewal.
    LeaseTtl {
        /// The lane.
        lane: Name,
    },
    /// The open attempts of pull workers.
    Leases {
        /// Of this tenant.
        tenant: Option<Name>,
    },
    /// One lease.
    Lease {
        /// Of this tenant.
        tenant: Option<Name>,
        /// The id of its attempt.
        lease: AttemptId,
    },
    /// The latest decisions about jobs with a capacity request, the newest first.
    Decisions {
        /// Of this tenant.
        tenant: Option<Name>,
    },
    /// The registered workers, by tenant and name.
    Workers {
        /// Of this tenant.
        tenant: Option<Name>,
    },
    /// One worker.
    Worker {
        /// Of this tenant.
        tenant: Name,
        /// Its name.
        worker: Name,
    },
    /// The kinds that an executor or a worker serves for a tenant.
    KindsServed {
        /// The tenant.
        tenant: Name,
    },
    /// What the executors offer.
    Offers,
    /// One session.
    Session {
        /// Of this tenant.
        tenant: Name,
        /// Its key.
        key: Name,
    },
    /// Sessions in the order of their keys.
    Sessions {
        /// Of this tenant.
        tenant: Name,
        /// Only those after this key.
        after: Option<Name>,
        /// At most this many.
        limit: usize,
    },
    /// The tenants that have sessions.
    SessionTenants,
    /// How many sessions run a job of this agent.
    ActiveSessions {
        /// Of this tenant.
        tenant: Name,
        /// The agent.
        agent: Name,
    },
    /// One schedule.
    Schedule {
        /// Of this tenant.
        tenant: Option<Name>,
        /// Its id.
        id: ScheduleId,
    },
    /// One schedule.
    ScheduleNamed {
        /// Of this tenant.
        tenant: Name,
        /// Its name.
        name: Name,
    },
    /// Schedules in the order of their creation.
    Schedules {
        /// Of this tenant.
        tenant: Option<Name>,
        /// Only those after this one.
        after: Option<ScheduleId>,
        /// At most this many.
        limit: usize,
        /// Disabled ones, too.
        include_disabled: bool,
    },
    /// The time zone of schedules that name none.
    ScheduleZone,
    /// The latest entries of the firing log, the newest first.
    RecentFirings {
        /// Of this tenant.
        tenant: Option<Name>,
    },
    /// One of the latest entries of the firing log.
    RecentFiring {
        /// Of this tenant.
        tenant: Option<Name>,
        /// Its number.
        number: u64,
    },
    /// Why a job waits, or where it runs.
    Explain {
        /// Of this tenant.
        tenant: Option<Name>,
        /// The job.
        job: JobId,
    },
    /// The first reason why each of these jobs waits.
    FirstHolds {
        /// Of this tenant.
        tenant: Option<Name>,
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// The state of a live job.
    JobState {
        /// The job.
        job: JobId,
    },
    /// The keys that ended jobs keep, in the order of the jobs.
    KeptKeys {
        /// Of this tenant.
        tenant: Option<Name>,
    },
    /// How much of a key is taken. The answer holds for this moment: another job may take the rest before the caller
    /// acts on it.
    KeyUse {
        /// Of this tenant.
        tenant: Name,
        /// The key.
        key: Key,
    },
    /// One record.
    Record {
        /// Its full name.
        name: RecordName,
    },
    /// Records of a collection in the order of their ids.
    Records {
        /// Of this tenant.
        tenant: Name,
        /// In this collection.
        collection: Name,
        /// Only those after this id.
        after: Option<Name>,
        /// At most this many.
        limit: usize,
    },
    /// All settings in force.
    Settings,
    /// Whether the engine's counters agree with its jobs. Slow: it counts everything again.
    Invariants,
}

/// The answer to the [`Query`] of the same name. A `None` or a missing item: there is none, or it is another tenant's.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Query::Barrier`].
    Barrier,
    /// To [`Query::Stats`].
    Stats(Box<Stats>),
    /// To [`Query::Metrics`].
    Metrics(Box<Stats>, Box<CapacityView>),
    /// To [`Query::Agents`].
    Agents(Box<Stats>, Vec<AgentStats>),
    /// To [`Query::Waiting`].
    Waiting(u32),
    /// To [`Query::LaneUse`].
    LaneUse(Vec<LaneUse>),
    /// To [`Query::Capacity`].
    Capacity(Box<CapacityView>),
    /// To [`Query::CapacitySettings`].
    CapacitySettings(Box<CapacitySettings>),
    /// To [`Query::LeaseTtl`].
    LeaseTtl(Span),
    /// To [`Query::Leases`].
    Leases(Vec<LeaseView>),
    /// To [`Query::Lease`].
    Lease(Option<Box<LeaseView>>),
    /// To [`Query::Decisions`].
    Decisions(Vec<Decision>),
    /// To [`Query::Workers`], with the time at which the engine answered.
    Workers(Wall, Vec<WorkerView>),
    /// To [`Query::Worker`], with the time at which the engine answered.
    Worker(Wall, Option<Box<WorkerView>>),
    /// To [`Query::KindsServed`].
    KindsServed(BTreeSet<Name>),
    /// To [`Query::Offers`].
    Offers(Vec<ExecutorOffer>),
    /// To [`Query::Session`].
    Session(Option<Box<SessionView>>),
    /// To [`Query::Sessions`].
    Sessions(Vec<SessionView>),
    /// To [`Query::SessionTenants`].
    SessionTenants(Vec<Name>),
    /// To [`Query::ActiveSessions`].
    ActiveSessions(u32),
    /// To [`Query::Schedule`] and [`Query::ScheduleNamed`].
    Schedule(Option<Box<Schedule>>),
    /// To [`Query::Schedules`].
    Schedules(Vec<Schedule>),
    /// To [`Query::ScheduleZone`].
    ScheduleZone(Name),
    /// To [`Query::RecentFirings`].
    RecentFirings(Vec<FiringLogEntry>),
    /// To [`Query::RecentFiring`].
    RecentFiring(Option<Box<FiringLogEntry>>),
    /// To [`Query::Explain`].
    Explain(Option<Box<Explanation>>),
    /// To [`Query::FirstHolds`], one for each job, in their order.
    FirstHolds(Vec<Option<Hold>>),
    /// To [`Query::JobState`].
    JobState(Option<JobState>),
    /// To [`Query::KeptKeys`].
    KeptKeys(Vec<KeptKeys>),
    /// To [`Query::KeyUse`].
    KeyUse(KeyUse),
    /// To [`Query::Record`].
    Record(Option<Box<Record>>),
    /// To [`Query::Records`].
    Records(Vec<Record>),
    /// To [`Query::Settings`].
    Settings(Box<Settings>),
    /// To [`Query::Invariants`]. The error names what disagrees.
    Invariants(Result<(), String>),
}

/// What still uses a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUse {
    /// The lane.
    pub lane: Name,
    /// How many schedules make jobs in it.
    pub schedules: usize,
    /// How many of its jobs wait.
    pub waiting: u64,
    /// How many of its jobs run.
    pub open: u64,
}

impl Engine {
    /// Answers a question about this moment.
    pub fn query(&self, now: Now, query: Query) -> Answer {
        match query {
            Query::Barrier => Answer::Barrier,
            Query::Stats { tenant } => Answer::Stats(self.stats(tenant.as_ref()).into()),
            Query::Metrics => Answer::Metrics(self.stats(None).into(), self.capacity(now).into()),
            Query::Agents { tenant, lane } => {
                Answer::Agents(self.stats(tenant.as_ref()).into(), self.agents_in(tenant.as_ref(), &lane))
            }
            Query::Waiting { lane } => Answer::Waiting(self.waiting_in(&lane)),
            Query::LaneUse { lanes } => Answer::LaneUse(self.lane_use(&lanes)),
            Query::Capacity => Answer::Capacity(self.capacity(now).into()),
            Query::CapacitySettings => Answer::CapacitySettings(self.settings().capacity.clone().into()),
            Query::LeaseTtl { lane } => Answer::LeaseTtl(self.lease_ttl(&lane)),
            Query::Leases { tenant } => Answer::Leases(self.leases(now, tenant.as_ref())),
            Query::Lease { tenant, lease } => {
                Answer::Lease(self.lease(now, tenant.as_ref(), lease).map(Box::new))
            }
            Query::Decisions { tenant } => {
                Answer::Decisions(self.decisions(tenant.as_ref()).cloned().collect())
            }
            Query::Workers { tenant } => Answer::Workers(now.wall, self.workers(now, tenant.as_ref())),
            Query::Worker { tenant, worker } => {
                Answer::Worker(now.wall, self.worker(now, &tenant, &worker).map(Box::new))
            }
            Query::KindsServed { tenant } => Answer::KindsServed(self.kinds_served(&tenant)),
            Query::Offers => Answer::Offers(self.offers()),
            Query::Session { tenant, key } => Answer::Session(self.session(&tenant, &key).map(Box::new)),
            Query::Sessions { tenant, after, limit } => {
                Answer::Sessions(self.sessions(&tenant, after.as_ref(), limit))
            }
            Query::SessionTenants => Answer::SessionTenants(self.session_tenants()),
            Query::ActiveSessions { tenant, agent } => {
                Answer::ActiveSessions(self.active_sessions_of(&tenant, &agent))
            }
            Query::Schedule { tenant, id } => {
                Answer::Schedule(self.schedule(tenant.as_ref(), id).cloned().map(Box::new))
            }
            Query::ScheduleNamed { tenant, name } => {
                Answer::Schedule(self.schedule_named(&tenant, &name).cloned().map(Box::new))
            }
            Query::Schedules { tenant, after, limit, include_disabled } => {
                let listed = self.schedules(tenant.as_ref(), after, limit, include_disabled);
                Answer::Schedules(listed.into_iter().cloned().collect())
            }
            Query::ScheduleZone => Answer::ScheduleZone(self.settings().schedules.zone.clone()),
            Query::RecentFirings { tenant } => {
                Answer::RecentFirings(self.recent_firings(tenant.as_ref()).cloned().collect())
            }
            Query::RecentFiring { tenant, number } => {
                let found = self.recent_firings(tenant.as_ref()).find(|entry| entry.number == number);
                Answer::RecentFiring(found.cloned().map(Box::new))
            }
            Query::Explain { tenant, job } => {
                Answer::Explain(self.explain(now, tenant.as_ref(), job).map(Box::new))
            }
            Query::FirstHolds { tenant, jobs } => {
                let hold = |job| self.first_hold(now, tenant.as_ref(), job);
                Answer::FirstHolds(jobs.into_iter().map(hold).collect())
            }
            Query::JobState { job } => Answer::JobState(self.state_of(job)),
            Query::KeptKeys { tenant } => Answer::KeptKeys(self.kept_keys(tenant.as_ref())),
            Query::KeyUse { tenant, key } => Answer::KeyUse(self.key_use(&tenant, &key)),
            Query::Record { name } => Answer::Record(self.record(&name).cloned().map(Box::new)),
            Query::Records { tenant, collection, after, limit } => {
                Answer::Records(self.records_in(&tenant, &collection, after.as_ref(), limit))
            }
            Query::Settings => Answer::Settings(self.settings().clone().into()),
            Query::Invariants => Answer::Invariants(self.check_invariants()),
        }
    }

    fn lane_use(&self, lanes: &BTreeSet<Name>) -> Vec<LaneUse> {
        let stats = self.stats(None).lanes.into_iter();
        let of = |stats: crate::engine::LaneStats| LaneUse {
            schedules: self.schedules_in(&stats.lane),
            waiting: stats.waiting,
            open: stats.open,
            lane: stats.lane,
        };
        stats.filter(|stats| lanes.contains(&stats.lane)).map(of).collect()
    }

    fn lease_ttl(&self, lane: &Name) -> Span {
        let settings = self.settings();
        let own = settings.lanes.get(lane).and_then(|lane| lane.pull.lease);
        own.unwrap_or(settings.lease)
    }
}
