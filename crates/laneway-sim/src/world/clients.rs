//! Clients and operators: what they ask of the server.

use std::sync::Arc;

use laneway_core::command::{AdminCommand, SessionCommand};
use laneway_core::command::{Origin, Submission};
use laneway_core::job::IdempotencyKey;
use laneway_core::settings::AgentSettings;
use laneway_core::{
    Bytes, Callback, CapacityRequest, Command, DropPolicy, ExecutorMode, ExecutorOffer, JobId, JobPatch,
    JobSpec, Key, Name, QuietRule, Role, Session, SessionMode, Settings, Span, StartAt, StopWhat,
    TokenRecord, Wall,
};

use super::{REMEMBERED_JOBS, World};
use crate::rng::Rng;
use crate::shape::{
    Habits, POISON_KIND, cap, draw_capacity, draw_kind, draw_lane, draw_lease, draw_pull, draw_retry,
    draw_tenant,
};

impl World {
    pub(super) fn submit(&mut self) -> Command {
        Command::Submit(Arc::new(self.submission()))
    }

    pub(super) fn submit_batch(&mut self) -> Command {
        let items = Arc::new((0..self.rng.between(0, 5)).map(|_| self.submission()).collect());
        Command::SubmitBatch { items, atomic: self.rng.chance(50) }
    }

    pub(super) fn submission(&mut self) -> Submission {
        self.submits += 1;
        let mut payload = self.submits.to_le_bytes().to_vec();
        payload.resize(8 + self.rng.below(8) as usize, 7);
        let spec = self.spec();
        // A job that the store cannot hold cannot be kept as rejected, either.
        let record_rejection =
            self.rng.chance(self.shape.habits.record_rejection) && spec.kind.as_str() != POISON_KIND;
        Submission {
            record_rejection,
            ..Submission::new(spec, Bytes::from(payload), Origin::server("client"))
        }
    }

    pub(super) fn spec(&mut self) -> JobSpec {
        let mut spec = self.any_spec();
        if spec.session.is_none() {
            spec.placement = self.draw_wants(self.clock.moment().now.wall);
            // A job whose resource is gone fails when it would start; the jobs that it blocks until then are not compared.
            let pinned = spec.placement.as_ref().is_some_and(|wants| !wants.resources.is_empty());
            if pinned {
                spec.capacity = CapacityRequest::default();
            }
        }
        let World { rng, shape, .. } = self;
        if spec.session.is_some() && rng.chance(shape.habits.session_alike) {
            // Mostly a session is one conversation with one agent.
            if spec.kind.as_str() != POISON_KIND {
                spec.kind = shape.kinds[0].clone();
            }
            spec.tenant = shape.tenants[0].clone();
            spec.agent = shape.agents[0].clone();
            spec.lane = shape.lanes[0].clone();
            spec.keys.clear();
        }
        spec
    }

    /// A session by name; some jobs ask for more than order.
    fn session(&mut self) -> Option<Session> {
        let wall = self.clock.moment().now.wall;
        let World { rng, shape, .. } = self;
        if !rng.chance(shape.habits.session) {
            return None;
        }
        let key = rng.pick(&shape.sessions).clone();
        let session = Session { max_concurrent: rng.small(1, 2), ..Session::new(key) };
        if !rng.chance(shape.habits.session_rules) {
            return Some(session);
        }
        let mode = match rng.below(10) {
            0..=2 => SessionMode::Interrupt,
            3 => SessionMode::Followup,
            _ => SessionMode::Queue,
        };
        Some(Session {
            mode,
            cap: rng.chance(30).then(|| cap(rng, 3)),
            drop: if rng.chance(60) { DropPolicy::Old } else { DropPolicy::New },
            debounce: rng.chance(60).then(|| Span(if rng.chance(10) { 0 } else { rng.between(1, 5_000) })),
            debounce_max: rng.chance(30).then(|| Span(rng.between(0, 8_000))),
            sent_at: rng.chance(30).then(|| Wall(wall.0 - 3_000 + rng.below(3_500) as i64)),
            ..session
        })
    }

    /// A client stops a session, perhaps one that is not there.
    pub(super) fn stop_session(&mut self) -> Command {
        let what = match self.rng.below(5) {
            0 | 1 => StopWhat::One,
            2 | 3 => StopWhat::All,
            _ => StopWhat::Reset,
        };
        let (tenant, key) = self.some_session();
        Command::Session(SessionCommand::Stop { tenant, key, what, origin: Origin::server("client") })
    }

    /// A client reports how full the context of a session is.
    pub(super) fn session_usage(&mut self) -> Command {
        let (tenant, key) = self.some_session();
        let window = *self.rng.pick(&[0, 10, 100, u64::MAX]);
        let tokens = match self.rng.below(4) {
            0 => 0,
            1 => u64::MAX,
            _ => self.rng.below(101),
        };
        Command::Session(SessionCommand::Usage { tenant, key, tokens, window })
    }

    pub(super) fn some_session(&mut self) -> (Name, Name) {
        let tenant = match self.rng.chance(60) {
            true => &self.shape.tenants[0],
            false => self.rng.pick(&self.shape.tenants),
        };
        (tenant.clone(), self.rng.pick(&self.shape.sessions).clone())
    }

    fn any_spec(&mut self) -> JobSpec {
        let session = self.session();
        let World { rng, shape, clock, .. } = self;
        let habits = &shape.habits;
        let wall = clock.moment().now.wall;
        let poison = rng.chance(shape.faults.poison);
        let tenant = rng.pick(&shape.tenants).clone();
        let kind = if poison { Name::fixed(POISON_KIND) } else { rng.pick(&shape.kinds).clone() };
        JobSpec {
            agent: rng.pick(&shape.agents).clone(),
            lane: rng.pick(&shape.lanes).clone(),
            session,
            keys: if rng.chance(habits.keys) {
                (0..rng.between(1, 2))
                    .map(|_| Key {
                        name: rng.pick(&shape.key_names).clone(),
                        value: rng.pick(&shape.key_values).clone(),
                    })
                    .collect()
            } else {
                Vec::new()
            },
            priority: match rng.chance(habits.priority) {
                true if rng.chance(2) => *rng.pick(&[i32::MIN, i32::MAX]),
                true => rng.between(0, 6) as i32 - 3,
                false => 0,
            },
            not_before: rng.chance(habits.not_before).then(|| {
                let far = if rng.chance(5) { 400 * 24 * 3_600_000 } else { 60_000 };
                Wall(wall.0 - 5_000 + rng.below(far) as i64)
            }),
            deadline: rng.chance(habits.deadline).then(|| Wall(wall.0 - 500 + rng.below(90_000) as i64)),
            queue_timeout: rng.chance(habits.queue_timeout).then(|| Span(rng.between(0, 60_000))),
            timeout: rng.chance(habits.timeout).then(|| Span(rng.between(1, 30_000))),
            retry: rng.chance(habits.retry).then(|| draw_retry(rng)),
            idempotency: rng.chance(habits.idempotency).then(|| {
                let key = Name::new(&format!("idem{}", rng.below(6))).expect("letters and digits are a name");
                // Mostly the same body, now and then another one.
                IdempotencyKey { key, digest: [u8::from(rng.chance(15)); 32] }
            }),
            callback: rng.chance(habits.callback).then(|| Callback {
                url: "https://hooks.example/done".into(),
                format: Name::fixed("laneway"),
            }),
            capacity: draw_needs(rng, habits),
            ..JobSpec::new(tenant, kind)
        }
    }

    /// A client changes a job, perhaps one of another tenant or one that does not wait.
    pub(super) fn update_job(&mut self) -> Option<Command> {
        let (tenant, job) = self.some_job()?;
        let wall = self.clock.moment().now.wall;
        let priority = self.rng.chance(60).then(|| self.rng.below(7) as i32 - 3);
        let reach = *self.rng.pick(&[1, 500, 5_000, 60_000, 7_200_000]);
        let start = match self.rng.below(3) {
            0 => None,
            1 => Some(StartAt::Time(Wall(wall.0 + self.rng.below(2 * reach) as i64 - reach as i64))),
            _ => Some(StartAt::Delay(Span(self.rng.below(reach)))),
        };
        let patch = JobPatch { priority, start };
        Some(Command::Update { tenant, job, patch, origin: Origin::server("client") })
    }

    /// A client deletes a job, perhaps one of another tenant or one that has not ended.
    pub(super) fn delete_job(&mut self) -> Option<Command> {
        let (tenant, job) = self.some_job()?;
        Some(Command::Delete { tenant, job, stored: None, origin: Origin::server("client") })
    }

    /// A job that a client knows, and the tenant that asks.
    fn some_job(&mut self) -> Option<(Option<Name>, JobId)> {
        let (job, owner) = match self.known_jobs.len() {
            0 => return None,
            known => self.known_jobs[self.rng.below(known as u64) as usize].clone(),
        };
        let job = if self.rng.chance(4) { JobId(job.0 ^ 1) } else { job };
        let tenant = match self.rng.below(5) {
            0 => None,
            1 => Some(self.rng.pick(&self.shape.tenants).clone()),
            _ => Some(owner),
        };
        Some((tenant, job))
    }

    pub(super) fn cancel(&mut self) -> Option<Command> {
        let (tenant, job) = self.some_job()?;
        Some(Command::Cancel { tenant, job, origin: Origin::server("client") })
    }

    /// Remembers a job that a client knows.
    pub(super) fn remember_job(&mut self, job: JobId, tenant: Name) {
        if self.known_jobs.len() == REMEMBERED_JOBS {
            self.known_jobs.pop_front();
        }
        self.known_jobs.push_back((job, tenant));
    }

    pub(super) fn configure(&mut self) -> Command {
        let mut settings = self.checker.reference.settings.clone();
        for _ in 0..self.rng.between(1, 3) {
            self.change_a_setting(&mut settings);
        }
        // Settings that are not kept hold until the next start only.
        let kept = self.rng.chance(80);
        self.configure_with(settings, kept)
    }

    pub(super) fn configure_with(&mut self, settings: Settings, kept: bool) -> Command {
        let overrides = kept.then(|| {
            self.settings.push(settings.clone());
            Bytes::from((self.settings.len() as u64 - 1).to_le_bytes().to_vec())
        });
        let detail = "settings changed".into();
        Command::Admin(AdminCommand::Configure {
            settings: Box::new(settings),
            overrides,
            detail,
            origin: Origin::server("operator"),
        })
    }

    fn change_a_setting(&mut self, settings: &mut Settings) {
        let World { rng, shape, .. } = self;
        let lane = rng.pick(shape.real_lanes()).clone();
        match rng.below(18) {
            16 | 17 => change_the_machine(rng, &lane, settings),
            // Changes mostly tighten; now and then the first settings come back, or nothing would move any
            // more.
            13 | 14 => *settings = shape.settings.clone(),
            // A lane that is named no more, or is named again. `main` always exists.
            12 if lane.as_str() != "main" => {
                if settings.lanes.remove(&lane).is_none() {
                    settings.lanes.insert(lane, draw_lane(rng));
                }
            }
            0 => settings.running_max = if rng.chance(50) { 64 } else { cap(rng, 4) },
            1 => settings.queued_max = if rng.chance(50) { 1_000 } else { cap(rng, 12) },
            2 => {
                settings.lanes.insert(lane, draw_lane(rng));
            }
            3 | 4 => {
                if let Some(lane) = settings.lanes.get_mut(&lane) {
                    // Pauses are short: a paused world is a still one.
                    lane.paused = !lane.paused && rng.chance(50);
                }
            }
            5 => {
                if let Some(lane) = settings.lanes.get_mut(&lane) {
                    lane.running_max = cap(rng, 3);
                    lane.running_per_agent_max = if rng.chance(50) { cap(rng, 2) } else { 100 };
                }
            }
            6 => {
                let mut kind = draw_kind(rng);
                if rng.chance(10) {
                    kind.running_max = Some(0);
                }
                settings.kinds.insert(rng.pick(&shape.kinds).clone(), kind);
            }
            7 => {
                settings.kinds.remove(rng.pick(&shape.kinds));
            }
            8 => {
                settings.tenants.insert(rng.pick(&shape.tenants).clone(), draw_tenant(rng));
            }
            9 => {
                settings.agents.insert(
                    rng.pick(&shape.agents).clone(),
                    AgentSettings { weight: rng.small(1, 4), hours: None },
                );
            }
            10 => {
                settings.keys.insert(rng.pick(&shape.key_names).clone(), cap(rng, 3));
            }
            11 => {
                settings.strict_kinds = rng.chance(10);
                settings.key_default = rng.small(1, 2);
                settings.tenant_default = draw_tenant(rng);
            }
            _ if shape.faults.hot_spans => {
                settings.lease = draw_lease(rng);
                settings.ack_timeout = Span(rng.between(1, 10) * 1_000);
                settings.stop_grace = Span(rng.between(1, 20) * 1_000);
            }
            _ => settings.timeout = Span(rng.between(2, 120) * 1_000),
        }
    }

    pub(super) fn token(&mut self) -> Command {
        let id = Name::new(&format!("token{}", self.rng.below(3))).expect("letters and digits are a name");
        let tenant = self.rng.chance(70).then(|| self.rng.pick(&self.shape.tenants).clone());
        let origin = Origin::server("operator");
        if self.rng.chance(40) {
            return Command::Admin(AdminCommand::RevokeToken { id, tenant, origin });
        }
        let record = TokenRecord {
            id,
            tenant,
            role: *self.rng.pick(&Role::ALL),
            digest: [self.rng.below(256) as u8; 32],
            note: "for the world".into(),
            created_at: self.clock.moment().now.wall,
            expires_at: None,
            revoked_at: None,
        };
        Command::Admin(AdminCommand::PutToken(Box::new(record), origin))
    }

    pub(super) fn change_executor(&mut self) -> Command {
        let at = self.rng.below(self.executors.len() as u64) as usize;
        let mut offer = self.executors[at].clone();
        match self.rng.below(6) {
            0 => return Command::Admin(AdminCommand::Withdraw(offer.executor)),
            2 => offer.slots = cap(&mut self.rng, 3),
            3 => {
                offer.kinds = self.shape.kinds.iter().filter(|_| self.rng.chance(50)).cloned().collect();
                // An offer may name a kind twice.
                if self.rng.chance(10) {
                    offer.kinds.extend(offer.kinds.first().cloned());
                }
            }
            4 if self.rng.chance(20) => {
                offer.mode = match offer.mode {
                    ExecutorMode::Attached => ExecutorMode::Leased,
                    ExecutorMode::Leased => ExecutorMode::Attached,
                }
            }
            _ => {}
        }
        Command::Admin(AdminCommand::Offer(offer))
    }

    /// The server took an offer, or removed an executor.
    pub(super) fn executor_changed(&mut self, command: &Command) {
        match command {
            Command::Admin(AdminCommand::Offer(offer)) => {
                if let Some(executor) =
                    self.executors.iter_mut().find(|executor| executor.executor == offer.executor)
                {
                    *executor = ExecutorOffer::clone(offer);
                }
            }
            // An executor that was removed stays away after a start, or comes back with it.
            Command::Admin(AdminCommand::Withdraw(name)) if self.rng.chance(20) => {
                if let Some(executor) = self.executors.iter_mut().find(|executor| executor.executor == *name)
                {
                    executor.kinds.clear();
                }
            }
            _ => {}
        }
    }
}

/// The machine gets larger or smaller, or workers of a lane begin or cease to ask.
fn change_the_machine(rng: &mut Rng, lane: &Name, settings: &mut Settings) {
    match settings.lanes.get_mut(lane) {
        Some(lane) if rng.chance(50) => lane.pull = draw_pull(rng),
        _ => settings.capacity = draw_capacity(rng),
    }
}

/// What a job asks of the machine: small and big costs, so that they get in each other's way.
fn draw_needs(rng: &mut Rng, habits: &Habits) -> CapacityRequest {
    CapacityRequest {
        cost: if rng.chance(habits.cost) { *rng.pick(&[1, 5, 9, 10, 20, 30, 45, 60, 80, 90, 95]) } else { 0 },
        quiet: rng.chance(habits.quiet).then(|| *rng.pick(&QuietRule::ALL)),
        unique: rng.chance(habits.unique),
        expected_duration: rng.chance(habits.expected).then(|| Span(rng.between(0, 30_000))),
        hours: None,
    }
}
