//! The engine alone: whole cycles (submit, dispatch, finish) with effects and timers, on one core.
//!
//! Every mix starts with 100,000 queued jobs, 4 lanes and 1,000 agents, keeps 256 attempts open, and then submits
//! one job and finishes one attempt per cycle. Effects are built as in the real loop and dropped every 256
//! cycles.
//!
//! - plain: 20 kinds without limits that bind, ten priorities.
//! - mixed: 20 kinds limited to 20 each; 20 % of the jobs need one of 500 keys limited to 2; 20 % belong to one of 20,000
//!   sessions.
//! - adversarial: 20 kinds limited to 5 each, all full, and every agent waits for all of them.

use laneway_core::command::AdminCommand;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use laneway_core::command::Submission;
use laneway_core::effect::Notice;
use laneway_core::settings::KindSettings;
use laneway_core::{
    Bytes, Command, Effects, Engine, ExecutorMode, ExecutorOffer, Fence, JobSpec, Key, LaneSettings, Mono,
    Name, Now, Origin, Outcome, Session, Settings, Wall,
};

/// Jobs that wait when the measurement starts.
const QUEUED: u64 = 100_000;
/// Attempts open at once.
const OPEN: u32 = 256;
const LANES: u64 = 4;
const AGENTS: u64 = 1_000;
const KINDS: u64 = 20;

/// A mix of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// No limit binds.
    Plain,
    /// Some limits bind.
    Mixed,
    /// All limits bind.
    Adversarial,
}

impl Mix {
    /// Every mix.
    pub const ALL: [Mix; 3] = [Mix::Plain, Mix::Mixed, Mix::Adversarial];

    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Mix::Plain => "plain",
            Mix::Mixed => "mixed",
            Mix::Adversarial => "adversarial",
        }
    }
}

/// Cycles per second.
pub fn cycles_per_second(mix: Mix, cycles: u64) -> f64 {
    let mut world = World::new(mix);
    world.fill();
    let start = Instant::now();
    for _ in 0..cycles {
        world.cycle();
    }
    cycles as f64 / start.elapsed().as_secs_f64()
}

struct World {
    mix: Mix,
    engine: Engine,
    effects: Effects,
    now: Now,
    count: u64,
    random: u64,
    open: VecDeque<Fence>,
    lanes: Vec<Name>,
    agents: Vec<Name>,
    kinds: Vec<Name>,
    keys: Vec<Name>,
    sessions: Vec<Name>,
    key_name: Name,
    tenant: Name,
    origin: Origin,
    payload: Bytes,
}

impl World {
    fn new(mix: Mix) -> World {
        let lanes = names("lane", LANES);
        let kinds = names("kind", KINDS);
        let running_max = match mix {
            Mix::Plain => None,
            Mix::Mixed => Some(20),
            Mix::Adversarial => Some(5),
        };
        let kind = KindSettings { running_max, ..KindSettings::default() };
        let lane = LaneSettings { running_max: 1_000, ..LaneSettings::default() };
        let settings = Settings {
            running_max: OPEN,
            lanes: lanes.iter().map(|name| (name.clone(), lane.clone())).collect(),
            kinds: kinds.iter().map(|name| (name.clone(), kind.clone())).collect(),
            keys: BTreeMap::from([(Name::fixed("profile"), 2)]),
            ..Settings::default()
        };
        let now = Now { mono: Mono(1), wall: Wall(1_800_000_000_000) };
        let mut world = World {
            mix,
            engine: Engine::new(settings, 1, now),
            effects: Effects::default(),
            now,
            count: 0,
            random: 88_172_645_463_325_252,
            open: VecDeque::new(),
            lanes,
            agents: names("agent", AGENTS),
            kinds: kinds.clone(),
            keys: names("key", 500),
            sessions: names("session", 20_000),
            key_name: Name::fixed("profile"),
            tenant: Name::fixed("default"),
            origin: Origin::server("bench"),
            payload: vec![b'x'; 200].into(),
        };
        let executor = ExecutorOffer {
            executor: Name::fixed("local"),
            mode: ExecutorMode::Attached,
            kinds,
            slots: u32::MAX,
        };
        world.apply(Command::Admin(AdminCommand::Offer(executor)));
        world
    }

    fn fill(&mut self) {
        for _ in 0..QUEUED {
            self.submit();
        }
    }

    fn cycle(&mut self) {
        self.submit();
        // Mostly the oldest, sometimes the one after it: attempts do not end exactly in order.
        if self.open.len() > 1 && self.next_random(2) == 0 {
            self.open.swap(0, 1);
        }
        if let Some(fence) = self.open.pop_front() {
            self.apply(Command::Finish(fence, Outcome::Succeeded(None)));
        }
    }

    fn submit(&mut self) {
        self.count += 1;
        if self.count.is_multiple_of(256) {
            self.now = Now { mono: Mono(self.now.mono.0 + 1), wall: Wall(self.now.wall.0 + 1) };
            self.apply(Command::Tick);
            self.effects.clear();
            let batch = self.engine.end_batch();
            self.engine.committed(batch);
        }
        let spec = self.spec();
        let submission = Submission::new(spec, self.payload.clone(), self.origin.clone());
        self.apply(Command::Submit(Arc::new(submission)));
    }

    fn spec(&mut self) -> JobSpec {
        let share = self.next_random(10);
        let mixed = self.mix == Mix::Mixed;
        let session = (mixed && share < 2).then(|| self.next_random(20_000));
        let pick = |world: &mut World, count: u64| match session {
            // Jobs of one session come from one agent, lane and kind.
            Some(session) => (session % count) as usize,
            None => world.next_random(count) as usize,
        };
        let (lane, agent, kind) = (pick(self, LANES), pick(self, AGENTS), pick(self, KINDS));
        let key = (mixed && share >= 8).then(|| self.next_random(500) as usize);
        JobSpec {
            agent: self.agents[agent].clone(),
            lane: self.lanes[lane].clone(),
            session: session.map(|session| Session::new(self.sessions[session as usize].clone())),
            keys: key
                .map(|key| Key { name: self.key_name.clone(), value: self.keys[key].clone() })
                .into_iter()
                .collect(),
            priority: if session.is_some() { 0 } else { self.next_random(10) as i32 },
            ..JobSpec::new(self.tenant.clone(), self.kinds[kind].clone())
        }
    }

    fn apply(&mut self, command: Command) {
        let before = self.effects.notices.len();
        std::hint::black_box(self.engine.apply(self.now, command, &mut self.effects));
        for notice in &self.effects.notices[before..] {
            if let Notice::Offer(offer) = notice {
                self.open.push_back(offer.fence);
            }
        }
    }

    fn next_random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }
}

fn names(prefix: &str, count: u64) -> Vec<Name> {
    (0..count).map(|n| Name::new(&format!("{prefix}-{n}")).expect("a short name")).collect()
}
