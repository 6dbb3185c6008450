//! Workers with connections: they register, take tasks, say the same thing twice, lose their connections and come back.

use laneway_core::command::WorkerCommand;
use laneway_core::effect::{Offer, OfferTo};
use laneway_core::worker::{
    Affinity, AffinityMode, Beat, Orders, Package, Register, ResourceRef, WorkerMessage, WorkerReport,
};
use laneway_core::{
    Command, ConnectionId, Name, Origin, Outcome, Placement, Reply, Span, Task, TasksKept, Wall, WorkerOffer,
};

use super::World;
use crate::reference::crew;
use crate::rng::Rng;
use crate::runs::{At, Phase, Run};
use crate::violation::{Checked, hold};

/// Connections that are remembered, those that are out included.
const REMEMBERED_HANDS: usize = 8;
/// Tasks that somebody may speak about again.
const REMEMBERED_TASKS: usize = 16;
/// Names of workers.
const WORKERS: [&str; 3] = ["r1", "r2", "r3"];

/// One connection, as the world knows it.
#[derive(Clone, Debug)]
pub(super) struct Hand {
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
    /// The boot id that it tells, if it is of the sort that does.
    pub(super) boot: Option<Name>,
}

impl World {
    /// A worker connects: its first process, the same one again, one that replaces a process that has crashed, or a second
    /// one beside a process that lives.
    pub(super) fn connect(&mut self) -> Command {
        let who = self.whoever_connects();
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
        for hand in &mut self.hands {
            // A process has one connection: its older one is one that it gave up.
            hand.live &= (&hand.offer.tenant, &hand.offer.worker) != (&who.0, &who.1);
        }
        self.register(offer, heartbeat, process)
    }

    fn start_process(&mut self) -> Process {
        self.processes_started += 1;
        let number = self.processes_started;
        // One in four is of the old sort, which tells no boot id.
        let boot = self.rng.chance(75).then(|| Name::new(&format!("b{number}")).expect("a short name"));
        Process { number, boot }
    }

    /// A process dies, and everything that it ran with it.
    fn crash(&mut self, process: &Process) {
        self.diary.note(|| format!("process {} crashes", process.number));
        let theirs = |run: &Run| run.at.as_ref().is_some_and(|at| at.process == process.number);
        while let Some(at) = self.runs.iter().position(theirs) {
            self.forget_run(at);
        }
    }

    /// Has a worker a connection, as far as its process knows?
    fn is_live(&self, who: &crew::Who) -> bool {
        let theirs = |hand: &Hand| (&hand.offer.tenant, &hand.offer.worker) == (&who.0, &who.1);
        self.hands.iter().any(|hand| hand.live && theirs(hand))
    }

    /// A registration was answered.
    pub(super) fn register_heard(&mut self, register: &Register, reply: &Reply) {
        let Some(at) = self.hands.iter().position(|hand| hand.connection == register.connection) else {
            return;
        };
        if !matches!(reply, Reply::Registered(_)) {
            self.hands[at].live = false;
            return;
        }
        let process = self.hands[at].process.clone();
        let who = (register.offer.tenant.clone(), register.offer.worker.clone());
        if let Some(before) = self.processes.insert(who.clone(), process.clone())
            && before != process
        {
            // Whoever may come although another process was there has come after its end.
            self.crash(&before);
            for hand in &mut self.hands {
                let theirs = (&hand.offer.tenant, &hand.offer.worker) == (&who.0, &who.1);
                hand.live &= !theirs || hand.process == process;
            }
        }
    }

    /// Mostly one that holds something and has lost its connection, if there is one.
    fn whoever_connects(&mut self) -> (Name, Name) {
        let open = self.checker.ledger.open().filter_map(|entry| {
            let open = entry.open.as_ref().filter(|open| open.executor.as_str() == crew::WORKERS)?;
            Some((entry.row.spec.tenant.clone(), open.holder.as_ref()?.worker.clone()))
        });
        let is_there = |who: &crew::Who| {
            let member = self.checker.reference.crew.members.get(who);
            member.is_some_and(|member| member.connection.is_some())
        };
        let away: Vec<crew::Who> = open.filter(|who| !is_there(who)).collect();
        if !away.is_empty() && self.rng.chance(60) {
            return self.rng.pick(&away).clone();
        }
        (self.rng.pick(&self.shape.tenants).clone(), pick_name(&mut self.rng, &WORKERS))
    }

    fn register(&mut self, offer: WorkerOffer, heartbeat: Span, process: Process) -> Command {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        if self.hands.len() == REMEMBERED_HANDS {
            let out = self.hands.iter().position(|hand| !hand.live).unwrap_or(0);
            self.hands.remove(out);
        }
        let has = self.runs.iter().filter_map(|run| {
            let at = run.at.as_ref().filter(|at| at.process == process.number)?;
            Some(Task { job: run.fence.job, dispatch_seq: at.dispatch_seq })
        });
        let (tasks, boot) = (TasksKept::Listed(has.collect()), process.boot.clone());
        self.hands.push(Hand { connection, offer: offer.clone(), live: true, process });
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

    fn some_hand(&mut self) -> Option<Hand> {
        if self.hands.is_empty() {
            return None;
        }
        let at = self.rng.below(self.hands.len() as u64) as usize;
        Some(self.hands[at].clone())
    }

    /// A connection ends: one that was probed and did not answer, mostly one that is there, now and then one that lost its
    /// place long ago.
    pub(super) fn disconnect(&mut self) -> Option<Command> {
        let dead = |connection: &ConnectionId| {
            !self.hands.iter().any(|hand| hand.live && hand.connection == *connection)
        };
        if let Some(probed) = std::mem::take(&mut self.probed).into_iter().find(dead) {
            return Some(said(probed, WorkerReport::Gone));
        }
        let hand = self.some_hand()?;
        for known in &mut self.hands {
            known.live &= known.connection != hand.connection;
        }
        Some(said(hand.connection, WorkerReport::Gone))
    }

    /// A worker gives a sign of life, or offers something else.
    pub(super) fn pulse(&mut self) -> Option<Command> {
        let hand = self.some_hand()?;
        if self.rng.chance(8) {
            let offer = self.draw_offer(hand.offer.tenant.clone(), hand.offer.worker.clone());
            return Some(said(hand.connection, WorkerReport::Offers(Box::new(offer))));
        }
        let rng = &mut self.rng;
        let beat = Beat {
            healthy: !rng.chance(5),
            draining: rng.chance(3),
            memory: rng.chance(20).then(|| rng.between(800, 950) as u16),
            disk: rng.chance(10).then(|| rng.between(850, 1_000) as u16),
            ..Beat::default()
        };
        Some(said(hand.connection, WorkerReport::Beat(beat)))
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

    /// An operator says which lanes a worker serves: now and then every one, or one that is not there.
    pub(super) fn rebind_worker(&mut self) -> Command {
        let there = if self.rng.chance(10) { &self.shape.lanes[..] } else { self.shape.real_lanes() };
        Command::Worker(WorkerCommand::Rebind {
            tenant: self.rng.pick(&self.shape.tenants).clone(),
            worker: pick_name(&mut self.rng, &WORKERS),
            lanes: some_lanes(&mut self.rng, there),
            origin: Origin::server("operator"),
        })
    }

    /// Somebody says something about a task: again, too late, over another connection, or with a wrong number.
    pub(super) fn speak_about_a_task(&mut self) -> Option<Command> {
        let hand = self.some_hand()?;
        if self.old_tasks.is_empty() {
            return None;
        }
        let at = self.rng.below(self.old_tasks.len() as u64) as usize;
        let (connection, mut task) = self.old_tasks[at];
        let connection = if self.rng.chance(60) { connection } else { hand.connection };
        match self.rng.below(8) {
            0 => task.dispatch_seq += 1,
            1 => task.dispatch_seq = task.dispatch_seq.saturating_sub(1),
            _ => {}
        }
        let what = match self.rng.below(5) {
            // A run that goes on is not ended behind its back by who runs it.
            _ if self.is_running(connection, task) => WorkerReport::Accepted(task),
            0 => WorkerReport::Accepted(task),
            1 => WorkerReport::Rejected(task, Name::fixed("E.INTERNAL")),
            _ => WorkerReport::Ended { task, outcome: self.outcome(), stored: None },
        };
        Some(said(connection, what))
    }

    /// Would the house take a word about this task for the word of a run that lives?
    fn is_running(&self, connection: ConnectionId, task: Task) -> bool {
        self.runs.iter().any(|run| {
            let at = run.at.as_ref();
            run.fence.job == task.job
                && at.is_some_and(|at| at.dispatch_seq == task.dispatch_seq && at.connection == connection)
        })
    }

    /// A run at a worker says the next thing.
    pub(super) fn task_speaks(&mut self, at: usize) -> Option<Command> {
        let run = &self.runs[at];
        let (phase, stops) = (run.phase, run.told_to_stop && !run.stubborn);
        let task_at = run.at.clone()?;
        let task = Task { job: run.fence.job, dispatch_seq: task_at.dispatch_seq };
        let connection = task_at.connection;
        let dice = self.rng.below(100);
        let what = match phase {
            Phase::Offered if dice < 70 => WorkerReport::Accepted(task),
            Phase::Offered if dice < 85 => {
                self.runs[at].phase = Phase::Ended;
                WorkerReport::Rejected(task, Name::fixed("E.CMD.CONCURRENCY_VIOLATION"))
            }
            // Its word is lost on the way.
            Phase::Offered if dice < 95 => return None,
            Phase::Working if !task_at.accepted && dice < 70 => WorkerReport::Accepted(task),
            Phase::Working if stops && dice < 80 => return Some(self.task_ends(at, Outcome::Canceled)),
            Phase::Working if dice < 30 => WorkerReport::Beat(Beat::default()),
            _ => {
                let outcome = self.outcome();
                return Some(self.task_ends(at, outcome));
            }
        };
        self.remember_task(connection, task);
        Some(said(connection, what))
    }

    /// A run at a worker has ended, and says so.
    pub(super) fn task_ends(&mut self, at: usize, outcome: Outcome) -> Command {
        let run = &mut self.runs[at];
        run.phase = Phase::Ended;
        let (connection, dispatch_seq) =
            run.at.as_ref().map_or((ConnectionId(0), 0), |at| (at.connection, at.dispatch_seq));
        let task = Task { job: run.fence.job, dispatch_seq };
        self.remember_task(connection, task);
        said(connection, WorkerReport::Ended { task, outcome, stored: None })
    }

    fn remember_task(&mut self, connection: ConnectionId, task: Task) {
        if self.old_tasks.len() == REMEMBERED_TASKS {
            self.old_tasks.pop_front();
        }
        self.old_tasks.push_back((connection, task));
    }

    /// Can a run at a worker be heard?
    pub(super) fn is_connected(&self, run: &Run) -> bool {
        run.at
            .as_ref()
            .is_none_or(|at| self.hands.iter().any(|hand| hand.live && hand.connection == at.connection))
    }

    /// What a worker makes of an answer.
    pub(super) fn hand_heard(&mut self, word: &WorkerMessage, reply: &Reply, at: u64) {
        if let (WorkerReport::Beat(_), Reply::Alive { lease, .. }) = (&word.report, reply) {
            let theirs = |run: &&mut Run| {
                run.at.as_ref().is_some_and(|at| at.connection == word.connection && at.accepted)
            };
            for run in self.runs.iter_mut().filter(theirs).filter(|run| run.works()) {
                run.renewed(at, lease.0);
            }
            return;
        }
        let task = match &word.report {
            WorkerReport::Accepted(task)
            | WorkerReport::Rejected(task, _)
            | WorkerReport::Ended { task, .. } => *task,
            _ => return,
        };
        let found = self.runs.iter().position(|run| {
            let at = run.at.as_ref();
            run.fence.job == task.job
                && at.is_some_and(|at| {
                    at.connection == word.connection && at.dispatch_seq == task.dispatch_seq
                })
        });
        let Some(found) = found else { return };
        match (&word.report, reply) {
            (WorkerReport::Accepted(_), Reply::Alive { lease, stop }) => {
                let run = &mut self.runs[found];
                if let Some(at) = run.at.as_mut() {
                    at.accepted = true;
                }
                match run.phase {
                    Phase::Offered if *stop => run.phase = Phase::Ended,
                    Phase::Ended => {}
                    _ => run.renewed(at, lease.0),
                }
                run.told_to_stop |= *stop;
            }
            _ => self.forget_run(found),
        }
    }

    /// A worker hears of a task, perhaps of one that it knows. What is sent over a dead connection reaches nobody.
    pub(super) fn hand_offered(&mut self, offer: &Offer, to: &OfferTo, at: u64) -> Checked {
        let hand = self.hands.iter().find(|hand| hand.live && hand.connection == to.connection);
        let Some(process) = hand.map(|hand| hand.process.number) else { return Ok(()) };
        let task = (offer.fence.job, offer.dispatch_seq);
        let first = *self.given_to.entry(task).or_insert(process);
        hold("I38", first == process, || {
            format!("dispatch {} of job {} is given to two processes", offer.dispatch_seq, offer.seq.0)
        })?;
        let known = self.runs.iter().position(|run| run.fence.attempt_id == offer.fence.attempt_id);
        if let Some(known) = known.filter(|&known| self.runs[known].lives()) {
            let run = &mut self.runs[known];
            run.fence = offer.fence;
            run.at = Some(At {
                connection: to.connection,
                process,
                dispatch_seq: offer.dispatch_seq,
                accepted: false,
            });
            return Ok(());
        }
        if let Some(known) = known {
            self.forget_run(known);
        }
        let mut run = Run::new(offer, true, at);
        let open = self.checker.ledger.fits(&offer.fence).and_then(|entry| entry.open.as_ref());
        run.timed = to.again && open.is_some_and(|open| open.started_at.is_some());
        run.at = Some(At {
            connection: to.connection,
            process,
            dispatch_seq: offer.dispatch_seq,
            accepted: false,
        });
        run.stubborn = !self.healed && self.rng.chance(self.shape.faults.stubborn);
        run.cut = !self.healed && self.rng.chance(self.shape.faults.cut);
        run.caller = self.caller_of(&offer.fence);
        self.runs.push(run);
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
    pub(super) fn heal_crew(&mut self) -> Checked {
        let connections: Vec<ConnectionId> =
            self.checker.reference.crew.connections.keys().copied().collect();
        self.hands.clear();
        for connection in connections {
            self.turn(vec![said(connection, WorkerReport::Gone)])?;
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
            self.turn(vec![command])?;
        }
        Ok(())
    }

    /// In a healed world workers give signs of life.
    pub(super) fn heal_pulse(&mut self) -> Checked {
        let at = self.clock.moment().at;
        let silent = |connection: ConnectionId, world: &World| {
            let crew = &world.checker.reference.crew;
            let member = crew.speaks(connection).and_then(|who| crew.members.get(who));
            member.is_some_and(|member| at.saturating_sub(member.heard) >= member.heartbeat)
        };
        let silent: Vec<ConnectionId> =
            self.hands.iter().map(|hand| hand.connection).filter(|c| silent(*c, self)).collect();
        for connection in silent {
            self.turn(vec![said(connection, WorkerReport::Beat(Beat::default()))])?;
        }
        Ok(())
    }
}

fn said(connection: ConnectionId, said: WorkerReport) -> Command {
    Command::Worker(WorkerCommand::Message(Box::new(WorkerMessage { connection, report: said })))
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
