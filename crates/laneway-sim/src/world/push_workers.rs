//! Push workers: they register, take tasks, send messages twice, lose their connections and come back.

use laneway_core::command::WorkerCommand;
use laneway_core::effect::{Offer, OfferTo};
use laneway_core::worker::{
    Affinity, AffinityMode, Beat, Orders, Package, Register, ResourceRef, WorkerMessage, WorkerReport,
};
use laneway_core::{
    Command, ConnectionId, Name, Origin, Outcome, Placement, Reply, Span, Task, TasksKept, Wall, WorkerOffer,
};

use super::World;
use crate::attempts::{At, Phase, SimAttempt};
use crate::reference::workers;
use crate::rng::Rng;
use crate::violation::{Checked, hold};

/// Connections that are remembered, those that are out included.
const REMEMBERED_SOCKETS: usize = 8;
/// Tasks that a worker may report about again.
const REMEMBERED_TASKS: usize = 16;
/// Names of workers.
const WORKERS: [&str; 3] = ["r1", "r2", "r3"];

/// One connection, as the world knows it.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) connection: ConnectionId,
    pub(super) offer: WorkerOffer,
    /// The socket is still there as far as its worker knows.
    pub(super) live: bool,
    /// Whose it is.
    pub(super) process: Process,
}

/// A process of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Never given to another one.
    pub(super) number: u64,
    /// The boot id that it sends, if it sends one.
    pub(super) boot: Option<Name>,
}

impl World {
    /// A worker connects: its first process, the same one again, one that replaces a process that has crashed, or a second
    /// one beside a process that lives.
    pub(super) fn connect(&mut self) -> Command {
        let who = self.connecting_worker();
        let heartbeat = Span(self.rng.between(1, 20) * 1_000);
        let offer = self.draw_offer(who.0.clone(), who.1.clone());
        let dice = self.rng.below(100);
        let process = match self.processes.get(&who).cloned() {
            Some(process) if dice < 60 => process,
            Some(_) if dice < 70 && self.is_live(&who) => {
                let second = self.start_process();
                return self.register(offer, heartbeat, second);
            }
            before => {
                if let Some(before) = before {
                    self.crash(&before);
                }
                self.start_process()
            }
        };
        self.processes.insert(who.clone(), process.clone());
        for socket in &mut self.sockets {
            // A process has one connection: its older one is one that it gave up.
            socket.live &= (&socket.offer.tenant, &socket.offer.worker) != (&who.0, &who.1);
        }
        self.register(offer, heartbeat, process)
    }

    fn start_process(&mut self) -> Process {
        self.processes_started += 1;
        let number = self.processes_started;
        // One in four is of the old sort, which sends no boot id.
        let boot = self.rng.chance(75).then(|| Name::new(&format!("b{number}")).expect("a short name"));
        Process { number, boot }
    }

    /// A process dies, and everything that it ran with it.
    fn crash(&mut self, process: &Process) {
        self.log.note(|| format!("process {} crashes", process.number));
        let theirs =
            |attempt: &SimAttempt| attempt.at.as_ref().is_some_and(|at| at.process == process.number);
        while let Some(at) = self.attempts.iter().position(theirs) {
            self.forget_attempt(at);
        }
    }

    /// Has a worker a connection, as far as its process knows?
    fn is_live(&self, who: &workers::WorkerKey) -> bool {
        let theirs = |socket: &Socket| (&socket.offer.tenant, &socket.offer.worker) == (&who.0, &who.1);
        self.sockets.iter().any(|socket| socket.live && theirs(socket))
    }

    /// A registration was answered.
    pub(super) fn register_answered(&mut self, register: &Register, reply: &Reply) {
        let Some(at) = self.sockets.iter().position(|socket| socket.connection == register.connection) else {
            return;
        };
        if !matches!(reply, Reply::Registered(_)) {
            self.sockets[at].live = false;
            return;
        }
        let process = self.sockets[at].process.clone();
        let who = (register.offer.tenant.clone(), register.offer.worker.clone());
        if let Some(before) = self.processes.insert(who.clone(), process.clone())
            && before != process
        {
            // A process that may register although another one was there has come after its end.
            self.crash(&before);
            for socket in &mut self.sockets {
                let theirs = (&socket.offer.tenant, &socket.offer.worker) == (&who.0, &who.1);
                socket.live &= !theirs || socket.process == process;
            }
        }
    }

    /// Mostly one that holds something and has lost its connection, if there is one.
    fn connecting_worker(&mut self) -> (Name, Name) {
        let open = self.checker.ledger.open().filter_map(|entry| {
            let open = entry.open.as_ref().filter(|open| open.executor.as_str() == workers::WORKERS)?;
            Some((entry.row.spec.tenant.clone(), open.holder.as_ref()?.worker.clone()))
        });
        let is_there = |who: &workers::WorkerKey| {
            let member = self.checker.reference.workers.members.get(who);
            member.is_some_and(|member| member.connection.is_some())
        };
        let away: Vec<workers::WorkerKey> = open.filter(|who| !is_there(who)).collect();
        if !away.is_empty() && self.rng.chance(60) {
            return self.rng.pick(&away).clone();
        }
        (self.rng.pick(&self.shape.tenants).clone(), pick_name(&mut self.rng, &WORKERS))
    }

    fn register(&mut self, offer: WorkerOffer, heartbeat: Span, process: Process) -> Command {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        if self.sockets.len() == REMEMBERED_SOCKETS {
            let out = self.sockets.iter().position(|socket| !socket.live).unwrap_or(0);
            self.sockets.remove(out);
        }
        let has = self.attempts.iter().filter_map(|attempt| {
            let at = attempt.at.as_ref().filter(|at| at.process == process.number)?;
            Some(Task { job: attempt.fence.job, dispatch_seq: at.dispatch_seq })
        });
        let (tasks, boot) = (TasksKept::Listed(has.collect()), process.boot.clone());
        self.sockets.push(Socket { connection, offer: offer.clone(), live: true, process });
        let orders = Orders::default();
        Command::Worker(WorkerCommand::Register(Box::new(Register {
            connection,
            offer,
            heartbeat,
            orders,
            boot,
            tasks,
        })))
    }

    fn draw_offer(&mut self, tenant: Name, worker: Name) -> WorkerOffer {
        let (rng, kinds) = (&mut self.rng, &self.shape.kinds);
        let lanes = if rng.chance(25) { some_lanes(rng, &self.shape.lanes) } else { Vec::new() };
        let named =
            |rng: &mut Rng, name: &'static str, percent: u32| rng.chance(percent).then(|| Name::fixed(name));
        WorkerOffer {
            tenant,
            worker,
            version: "1".into(),
            hostname: "host".into(),
            max_parallel: rng.small(1, 3),
            kind_limits: kinds.iter().filter(|_| rng.chance(15)).map(|kind| (kind.clone(), 1)).collect(),
            kinds: kinds.iter().filter(|_| rng.chance(80)).cloned().collect(),
            packages: rng.chance(50).then(package).into_iter().collect(),
            features: named(rng, "gpu", 40).into_iter().collect(),
            runtimes: Vec::new(),
            labels: named(rng, "zone", 40).map(|zone| (zone, Name::fixed("a"))).into_iter().collect(),
            lanes,
        }
    }

    fn some_socket(&mut self) -> Option<Socket> {
        if self.sockets.is_empty() {
            return None;
        }
        let at = self.rng.below(self.sockets.len() as u64) as usize;
        Some(self.sockets[at].clone())
    }

    /// A connection ends: one that was probed and did not answer, mostly one that is there, now and then one that lost its
    /// registration long ago.
    pub(super) fn disconnect(&mut self) -> Option<Command> {
        let dead = |connection: &ConnectionId| {
            !self.sockets.iter().any(|socket| socket.live && socket.connection == *connection)
        };
        if let Some(probed) = std::mem::take(&mut self.probed).into_iter().find(dead) {
            return Some(message(probed, WorkerReport::Gone));
        }
        let socket = self.some_socket()?;
        for known in &mut self.sockets {
            known.live &= known.connection != socket.connection;
        }
        Some(message(socket.connection, WorkerReport::Gone))
    }

    /// A worker gives a sign of life, or offers something else.
    pub(super) fn pulse(&mut self) -> Option<Command> {
        let socket = self.some_socket()?;
        if self.rng.chance(8) {
            let offer = self.draw_offer(socket.offer.tenant.clone(), socket.offer.worker.clone());
            return Some(message(socket.connection, WorkerReport::Offers(Box::new(offer))));
        }
        let rng = &mut self.rng;
        let beat = Beat {
            healthy: !rng.chance(5),
            draining: rng.chance(3),
            memory: rng.chance(20).then(|| rng.between(800, 950) as u16),
            disk: rng.chance(10).then(|| rng.between(850, 1_000) as u16),
            ..Beat::default()
        };
        Some(message(socket.connection, WorkerReport::Beat(beat)))
    }

    /// An operator wants a worker to drain, or no longer.
    pub(super) fn drain_worker(&mut self) -> Command {
        Command::Worker(WorkerCommand::Drain {
            tenant: self.rng.pick(&self.shape.tenants).clone(),
            worker: pick_name(&mut self.rng, &WORKERS),
            drain: self.rng.chance(50),
            origin: Origin::server("operator"),
        })
    }

    /// An operator sets which lanes a worker serves: now and then every one, or one that is not there.
    pub(super) fn rebind_worker(&mut self) -> Command {
        let there = if self.rng.chance(10) { &self.shape.lanes[..] } else { self.shape.real_lanes() };
        Command::Worker(WorkerCommand::Rebind {
            tenant: self.rng.pick(&self.shape.tenants).clone(),
            worker: pick_name(&mut self.rng, &WORKERS),
            lanes: some_lanes(&mut self.rng, there),
            origin: Origin::server("operator"),
        })
    }

    /// A message about a task arrives: again, too late, over another connection, or with a wrong number.
    pub(super) fn report_task_again(&mut self) -> Option<Command> {
        let socket = self.some_socket()?;
        if self.old_tasks.is_empty() {
            return None;
        }
        let at = self.rng.below(self.old_tasks.len() as u64) as usize;
        let (connection, mut task) = self.old_tasks[at];
        let connection = if self.rng.chance(60) { connection } else { socket.connection };
        match self.rng.below(8) {
            0 => task.dispatch_seq += 1,
            1 => task.dispatch_seq = task.dispatch_seq.saturating_sub(1),
            _ => {}
        }
        let what = match self.rng.below(5) {
            // An attempt that goes on is not ended by another message of its worker.
            _ if self.is_running(connection, task) => WorkerReport::Accepted(task),
            0 => WorkerReport::Accepted(task),
            1 => WorkerReport::Rejected(task, Name::fixed("E.INTERNAL")),
            _ => WorkerReport::Ended { task, outcome: self.outcome(task.job), stored: None },
        };
        Some(message(connection, what))
    }

    /// Would the server accept a message about this task for an attempt that lives?
    fn is_running(&self, connection: ConnectionId, task: Task) -> bool {
        self.attempts.iter().any(|attempt| {
            let at = attempt.at.as_ref();
            attempt.fence.job == task.job
                && at.is_some_and(|at| at.dispatch_seq == task.dispatch_seq && at.connection == connection)
        })
    }

    /// An attempt at a worker reports.
    pub(super) fn task_reports(&mut self, at: usize) -> Option<Command> {
        let attempt = &self.attempts[at];
        let (phase, stops) = (attempt.phase, attempt.asked_to_stop && !attempt.stubborn);
        let task_at = attempt.at.clone()?;
        let task = Task { job: attempt.fence.job, dispatch_seq: task_at.dispatch_seq };
        let connection = task_at.connection;
        let dice = self.rng.below(100);
        let what = match phase {
            Phase::Offered if dice < 70 => WorkerReport::Accepted(task),
            Phase::Offered if dice < 85 => {
                self.attempts[at].phase = Phase::Ended;
                WorkerReport::Rejected(task, Name::fixed("E.CMD.CONCURRENCY_VIOLATION"))
            }
            // Its message is lost on the way.
            Phase::Offered if dice < 95 => return None,
            Phase::Working if !task_at.accepted && dice < 70 => WorkerReport::Accepted(task),
            Phase::Working if stops && dice < 80 => return Some(self.task_ends(at, Outcome::Canceled)),
            Phase::Working if dice < 30 => WorkerReport::Beat(Beat::default()),
            _ => {
                let outcome = self.outcome(task.job);
                return Some(self.task_ends(at, outcome));
            }
        };
        self.remember_task(connection, task);
        Some(message(connection, what))
    }

    /// An attempt at a worker has ended, and reports it.
    pub(super) fn task_ends(&mut self, at: usize, outcome: Outcome) -> Command {
        let attempt = &mut self.attempts[at];
        attempt.phase = Phase::Ended;
        let (connection, dispatch_seq) =
            attempt.at.as_ref().map_or((ConnectionId(0), 0), |at| (at.connection, at.dispatch_seq));
        let task = Task { job: attempt.fence.job, dispatch_seq };
        self.remember_task(connection, task);
        message(connection, WorkerReport::Ended { task, outcome, stored: None })
    }

    fn remember_task(&mut self, connection: ConnectionId, task: Task) {
        if self.old_tasks.len() == REMEMBERED_TASKS {
            self.old_tasks.pop_front();
        }
        self.old_tasks.push_back((connection, task));
    }

    /// Can an attempt at a worker reach the server?
    pub(super) fn is_connected(&self, attempt: &SimAttempt) -> bool {
        attempt.at.as_ref().is_none_or(|at| {
            self.sockets.iter().any(|socket| socket.live && socket.connection == at.connection)
        })
    }

    /// What a worker makes of an answer.
    pub(super) fn message_answered(&mut self, message: &WorkerMessage, reply: &Reply, at: u64) {
        if let (WorkerReport::Beat(_), Reply::Alive { lease, .. }) = (&message.report, reply) {
            let theirs = |attempt: &&mut SimAttempt| {
                attempt.at.as_ref().is_some_and(|at| at.connection == message.connection && at.accepted)
            };
            for attempt in self.attempts.iter_mut().filter(theirs).filter(|attempt| attempt.works()) {
                attempt.renewed(at, lease.0);
            }
            return;
        }
        let task = match &message.report {
            WorkerReport::Accepted(task)
            | WorkerReport::Rejected(task, _)
            | WorkerReport::Ended { task, .. } => *task,
            _ => return,
        };
        let found = self.attempts.iter().position(|attempt| {
            let at = attempt.at.as_ref();
            attempt.fence.job == task.job
                && at.is_some_and(|at| {
                    at.connection == message.connection && at.dispatch_seq == task.dispatch_seq
                })
        });
        let Some(found) = found else { return };
        match (&message.report, reply) {
            (WorkerReport::Accepted(_), Reply::Alive { lease, stop }) => {
                let attempt = &mut self.attempts[found];
                if let Some(at) = attempt.at.as_mut() {
                    at.accepted = true;
                }
                match attempt.phase {
                    Phase::Offered if *stop => attempt.phase = Phase::Ended,
                    Phase::Ended => {}
                    _ => attempt.renewed(at, lease.0),
                }
                attempt.asked_to_stop |= *stop;
            }
            _ => self.forget_attempt(found),
        }
    }

    /// A worker gets a task, perhaps one that it knows. A message over a dead connection is lost.
    pub(super) fn task_offered(&mut self, offer: &Offer, to: &OfferTo, at: u64) -> Checked {
        let socket = self.sockets.iter().find(|socket| socket.live && socket.connection == to.connection);
        let Some(process) = socket.map(|socket| socket.process.number) else { return Ok(()) };
        let task = (offer.fence.job, offer.dispatch_seq);
        let first = *self.given_to.entry(task).or_insert(process);
        hold("I38", first == process, || {
            format!("dispatch {} of job {} is given to two processes", offer.dispatch_seq, offer.seq.0)
        })?;
        let known =
            self.attempts.iter().position(|attempt| attempt.fence.attempt_id == offer.fence.attempt_id);
        if let Some(known) = known.filter(|&known| self.attempts[known].lives()) {
            let attempt = &mut self.attempts[known];
            attempt.fence = offer.fence;
            attempt.at = Some(At {
                connection: to.connection,
                process,
                dispatch_seq: offer.dispatch_seq,
                accepted: false,
            });
            return Ok(());
        }
        if let Some(known) = known {
            self.forget_attempt(known);
        }
        let mut attempt = SimAttempt::new(offer, true, at);
        let open = self.checker.ledger.fits(&offer.fence).and_then(|entry| entry.open.as_ref());
        attempt.timed = to.again && open.is_some_and(|open| open.started_at.is_some());
        attempt.at = Some(At {
            connection: to.connection,
            process,
            dispatch_seq: offer.dispatch_seq,
            accepted: false,
        });
        attempt.stubborn = !self.healed && self.rng.chance(self.shape.faults.stubborn);
        attempt.cut = !self.healed && self.rng.chance(self.shape.faults.cut);
        attempt.caller = self.caller_of(&offer.fence);
        self.attempts.push(attempt);
        Ok(())
    }

    /// What a job wants of a worker: mostly nothing.
    pub(super) fn draw_wants(&mut self, wall: Wall) -> Option<Box<Placement>> {
        let (rng, percent) = (&mut self.rng, self.shape.habits.wants);
        if !rng.chance(percent) {
            return None;
        }
        let later = |rng: &mut Rng| rng.chance(30).then(|| Wall(wall.0 + rng.below(40_000) as i64));
        let mut wants = Placement::default();
        match rng.below(6) {
            0 => wants.package = Some(package()),
            1 => wants.features = vec![Name::fixed("gpu")],
            2 => wants.labels = vec![(Name::fixed("zone"), Name::fixed("a"))],
            3 => {
                let worker = pick_name(rng, &WORKERS);
                let (id, sort) = (Name::fixed("thing"), Name::fixed("file"));
                wants.resources = vec![ResourceRef { id, worker, sort, scope: None, expires_at: later(rng) }];
            }
            _ => {
                let key = pick_name(rng, &["k1", "k2"]);
                let mode = if rng.chance(70) { AffinityMode::Sticky } else { AffinityMode::Preferred };
                wants.affinity = Some(Affinity { key, mode, expires_at: later(rng) });
            }
        }
        Some(Box::new(wants))
    }

    /// The world heals: old connections end, and every tenant has one worker that can do everything.
    pub(super) fn heal_workers(&mut self) -> Checked {
        let connections: Vec<ConnectionId> =
            self.checker.reference.workers.connections.keys().copied().collect();
        self.sockets.clear();
        for connection in connections {
            self.batch(vec![message(connection, WorkerReport::Gone)])?;
        }
        for tenant in self.shape.tenants.clone() {
            let offer = WorkerOffer {
                max_parallel: 3,
                kind_limits: Vec::new(),
                kinds: self.shape.kinds.clone(),
                packages: vec![package()],
                features: vec![Name::fixed("gpu")],
                labels: vec![(Name::fixed("zone"), Name::fixed("a"))],
                lanes: Vec::new(),
                ..self.draw_offer(tenant, Name::fixed("healer"))
            };
            let who = (offer.tenant.clone(), offer.worker.clone());
            let process = match self.processes.get(&who) {
                Some(process) => process.clone(),
                None => self.start_process(),
            };
            let command = self.register(offer, Span::mins(10), process);
            self.batch(vec![command])?;
        }
        Ok(())
    }

    /// In a healed world workers give signs of life.
    pub(super) fn heal_pulse(&mut self) -> Checked {
        let at = self.clock.moment().at;
        let silent = |connection: ConnectionId, world: &World| {
            let workers = &world.checker.reference.workers;
            let member = workers.worker_of(connection).and_then(|who| workers.members.get(who));
            member.is_some_and(|member| at.saturating_sub(member.reachable) >= member.heartbeat)
        };
        let silent: Vec<ConnectionId> =
            self.sockets.iter().map(|socket| socket.connection).filter(|c| silent(*c, self)).collect();
        for connection in silent {
            self.batch(vec![message(connection, WorkerReport::Beat(Beat::default()))])?;
        }
        Ok(())
    }
}

fn message(connection: ConnectionId, report: WorkerReport) -> Command {
    Command::Worker(WorkerCommand::Message(Box::new(WorkerMessage { connection, report })))
}

fn package() -> Package {
    Package { name: Name::fixed("tools"), version: Name::fixed("1") }
}

fn some_lanes(rng: &mut Rng, lanes: &[Name]) -> Vec<Name> {
    lanes.iter().filter(|_| rng.chance(50)).cloned().collect()
}

fn pick_name(rng: &mut Rng, names: &[&'static str]) -> Name {
    let name = rng.pick::<&'static str>(names);
    Name::fixed(name)
}
