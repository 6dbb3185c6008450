//! A long run of many schedules over a server that crashes: every slot must come exactly once (I26).
//!
//! Worlds are small and full of chance; this is large and plain. Schedules that catch up on everything and never skip,
//! attempts that end at once, a process that dies at any moment: between two batches, before a commit, or after one whose
//! answer was lost. What came is checked against a count, so that a long run needs no memory.

use laneway_core::command::{AdminCommand, ScheduleCommand};
use std::collections::{BTreeMap, VecDeque};

use laneway_core::command::Origin;
use laneway_core::settings::{LaneSettings, TenantSettings};
use laneway_core::{
    CatchUp, Change, Command, Effects, ExecutorMode, ExecutorOffer, JobSpec, Name, Notice, Outcome, Overlap,
    Reply, ScheduleId, ScheduleSpec, Settings, Span, Timing, Wall,
};
use laneway_runtime::Driver;

use crate::clock::Clock;
use crate::faulty::{Disk, Fault, Noted, StoreKind};
use crate::rng::Rng;
use crate::violation::{Checked, Violation, hold};

/// More than ever waits or runs here.
const PLENTY: u32 = 1_000_000;
/// In so many simulated seconds the server crashes once, on average.
const SECONDS_A_CRASH: u64 = 120;

/// How long and how many.
#[derive(Clone, Copy, Debug)]
pub struct Marathon {
    /// Where all chance comes from.
    pub seed: u64,
    /// How many schedules.
    pub schedules: u32,
    /// How long, in simulated time.
    pub length: Span,
    /// The shortest interval, in seconds.
    pub shortest: u64,
    /// The longest interval, in seconds.
    pub longest: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Slots that came, each once.
    pub slots: u64,
    /// How often the server died.
    pub crashes: u64,
    /// Batches of the server.
    pub batches: u64,
}

/// A schedule: its next slot and its interval.
struct Expected {
    next: Wall,
    every: Span,
}

struct Track {
    rng: Rng,
    clock: Clock,
    disk: Disk,
    driver: Option<Driver>,
    schedules: BTreeMap<ScheduleId, Expected>,
    /// What attempts report in the next batch.
    reports: VecDeque<Command>,
    slots: u64,
    made: u64,
    logged: u64,
    crashes: u64,
    batches: u64,
}

impl Marathon {
    /// Runs it to its end.
    pub fn run(&self) -> Result<Finish, Violation> {
        let mut rng = Rng::new(self.seed);
        let mut track = Track {
            clock: Clock::new(rng.below(1 << 40)),
            disk: Disk::new(StoreKind::Memory, 0).map_err(|error| Violation::new("I1", error.to_string()))?,
            rng,
            driver: None,
            schedules: BTreeMap::new(),
            reports: VecDeque::new(),
            slots: 0,
            made: 0,
            logged: 0,
            crashes: 0,
            batches: 0,
        };
        track.boot()?;
        for number in 0..self.schedules {
            let every = Span::secs(track.rng.between(self.shortest, self.longest));
            track.batch(VecDeque::from([put(number, every)]))?;
        }
        let end = track.clock.moment().at + self.length.0;
        while track.clock.moment().at < end {
            track.step()?;
        }
        track.rest()?;
        Ok(Finish { slots: track.slots, crashes: track.crashes, batches: track.batches })
    }
}

impl Track {
    /// Attempts end, or time passes until the next slot, or the server crashes.
    fn step(&mut self) -> Checked {
        let reports = std::mem::take(&mut self.reports);
        if reports.is_empty() {
            let wakeup = self.driver.as_ref().expect("a process runs").engine().next_wakeup();
            let span = self.clock.until(wakeup.mono, wakeup.wall).unwrap_or(Span::secs(1));
            self.clock.advance(span);
            let seconds = span.0.div_ceil(1_000).max(1);
            if self.rng.below(SECONDS_A_CRASH) < seconds {
                match self.rng.below(3) {
                    0 => return self.crash(),
                    1 => self.disk.plan(Fault::Lost, 0),
                    _ => self.disk.plan(Fault::Unknown, 0),
                }
            }
        }
        self.batch(reports)
    }

    fn batch(&mut self, mut commands: VecDeque<Command>) -> Checked {
        self.batches += 1;
        let now = self.clock.moment().now;
        let driver = self.driver.as_mut().expect("a process runs");
        let outcome = driver.apply(now, &mut commands).and_then(|batch| driver.commit(batch));
        let noted = self.disk.noted();
        self.disk.heal();
        noted.iter().try_for_each(|note| self.follow(note))?;
        let Ok(committed) = outcome else { return self.crash() };
        self.reports = commands;
        for reply in &committed.replies {
            hold("I20", !matches!(reply, Reply::Rejected(_)), || format!("rejected: {reply:?}"))?;
        }
        for notice in committed.notices {
            if let Notice::Offer(offer) = notice {
                self.reports.push_back(Command::Finish(offer.fence, Outcome::Succeeded(None)));
            }
        }
        Ok(())
    }

    /// The process dies, and another one starts some time later.
    fn crash(&mut self) -> Checked {
        self.crashes += 1;
        self.driver = None;
        self.reports.clear();
        self.clock.advance(Span(self.rng.below(20_000)));
        self.clock.reboot(self.rng.below(1 << 40));
        self.boot()
    }

    fn boot(&mut self) -> Checked {
        let failed = |error: laneway_store::StoreError| Violation::new("I7", error.to_string());
        let (seed, now) = (self.rng.next_u64(), self.clock.moment().now);
        let mut driver =
            Driver::recover(self.disk.handle().map_err(failed)?, settings(), seed, now).map_err(failed)?;
        driver.recovered();
        self.driver = Some(driver);
        self.disk.noted().iter().try_for_each(|note| self.follow(note))?;
        let kinds = vec![Name::fixed("beat")];
        let offer = ExecutorOffer {
            executor: Name::fixed("here"),
            mode: ExecutorMode::Attached,
            kinds,
            slots: PLENTY,
        };
        self.batch(VecDeque::from([Command::Admin(AdminCommand::Offer(offer))]))
    }

    /// Every slot is the one after the last of its schedule, and has its job in the same commit.
    fn follow(&mut self, note: &Noted) -> Checked {
        let Noted::Written(effects) = note else { return Ok(()) };
        let made = self.made;
        for change in &effects.changes {
            match change {
                Change::SchedulePut(schedule) => {
                    let Timing::Every { every, .. } = schedule.spec.timing else { continue };
                    let next = schedule.state.next_at.expect("it was just made");
                    self.schedules.insert(schedule.id, Expected { next, every });
                }
                Change::SlotFired { schedule, slot, job } => {
                    let expected = self.schedules.get_mut(schedule).expect("slots come of schedules");
                    hold("I26", *slot == expected.next && job.is_some(), || {
                        format!("slot {slot:?} of {schedule} comes where {:?} must", expected.next)
                    })?;
                    expected.next = expected.next + expected.every;
                    self.slots += 1;
                }
                Change::JobCreated { .. } => self.made += 1,
                Change::FiringLogged(_) => self.logged += 1,
                _ => {}
            }
        }
        hold("I26", self.made == self.slots, || {
            format!("{} jobs of {} slots", self.made - made, slots_in(effects))
        })
    }

    /// No slot is left behind, and every firing is in the log.
    fn rest(&mut self) -> Checked {
        let mut batches = 0;
        while self.logged < self.made || self.is_behind() {
            batches += 1;
            hold("L1", batches < 10_000, || format!("{} of {} firings have ended", self.logged, self.made))?;
            let reports = std::mem::take(&mut self.reports);
            self.batch(reports)?;
        }
        Ok(())
    }

    fn is_behind(&self) -> bool {
        let now = self.clock.moment().now.wall;
        self.schedules.values().any(|expected| expected.next <= now)
    }
}

fn slots_in(effects: &Effects) -> usize {
    effects.changes.iter().filter(|change| matches!(change, Change::SlotFired { .. })).count()
}

/// Nothing is rejected, and nothing that ended is kept for long.
fn settings() -> Settings {
    let mut settings =
        Settings { running_max: PLENTY, event_retention: Span::secs(60), ..Settings::default() };
    let lane = LaneSettings {
        running_max: PLENTY,
        running_per_agent_max: PLENTY,
        retention: Span(0),
        ..LaneSettings::default()
    };
    settings.lanes.insert(Name::fixed("main"), lane);
    settings.tenant_default = TenantSettings { queued_max: PLENTY, running_max: PLENTY };
    settings.retry.losses_max = PLENTY;
    settings.schedules.retry.losses_max = PLENTY;
    settings.schedules.firing_log_retention = Span::secs(60);
    settings.schedules.slot_retention = Span::secs(60);
    settings
}

fn put(number: u32, every: Span) -> Command {
    let name = Name::new(&format!("schedule{number}")).expect("letters and digits are a name");
    let job =
        JobSpec { agent: Name::fixed("clock"), ..JobSpec::new(Name::fixed("default"), Name::fixed("beat")) };
    let spec = ScheduleSpec {
        catch_up: CatchUp::All { max: 1_000 },
        overlap: Overlap::Allow,
        ..ScheduleSpec::new(name, Timing::Every { every, anchor: None }, job)
    };
    Command::Schedule(ScheduleCommand::Put(Box::new(spec), Origin::server("marathon")))
}
