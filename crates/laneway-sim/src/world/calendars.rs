//! Clients that make schedules, change them, switch them, run them by hand and delete them.

use laneway_core::command::Origin;
use laneway_core::command::ScheduleCommand;
use laneway_core::schedule::FireMode;
use laneway_core::{
    Bytes, CatchUp, Command, Name, Overlap, ScheduleId, SchedulePatch, ScheduleSpec, Span, Timing, Wall,
};

use super::World;
use crate::shape::POISON_KIND;

impl World {
    /// Somebody does something with a schedule.
    pub(super) fn schedule(&mut self) -> Command {
        let known: Vec<(ScheduleId, Name)> = self
            .checker
            .ledger
            .calendar
            .schedules
            .values()
            .map(|schedule| (schedule.id, schedule.spec.tenant.clone()))
            .collect();
        let origin = Origin::server("client");
        if known.is_empty() || self.rng.chance(35) {
            return Command::Schedule(ScheduleCommand::Put(Box::new(self.schedule_spec()), origin));
        }
        let (id, owner) = known[self.rng.below(known.len() as u64) as usize].clone();
        let tenant = match self.rng.below(5) {
            0 => None,
            1 => Some(self.rng.pick(&self.shape.tenants).clone()),
            _ => Some(owner),
        };
        match self.rng.below(10) {
            0 => Command::Schedule(ScheduleCommand::Delete { tenant, id, origin }),
            1 | 2 => {
                let patch = Box::new(self.schedule_patch());
                Command::Schedule(ScheduleCommand::Update { tenant, id, patch, origin })
            }
            3..=6 => Command::Schedule(ScheduleCommand::Toggle {
                tenant,
                id,
                enabled: self.rng.chance(70),
                origin,
            }),
            _ => {
                let mode = if self.rng.chance(70) { FireMode::Force } else { FireMode::Due };
                Command::Schedule(ScheduleCommand::Fire { tenant, id, mode, origin })
            }
        }
    }

    fn schedule_spec(&mut self) -> ScheduleSpec {
        let mut job = self.spec();
        // What a job of tomorrow uses is not gone yet.
        for resource in job.placement.iter_mut().flat_map(|wants| &mut wants.resources) {
            resource.expires_at = None;
        }
        job.not_before = None;
        job.deadline = None;
        job.idempotency = None;
        if job.kind.as_str() == POISON_KIND {
            // A row that the store rejects is the fault of whoever asked for it; nobody asks for a slot.
            job.kind = self.rng.pick(&self.shape.kinds).clone();
        }
        ScheduleSpec {
            tenant: job.tenant.clone(),
            name: self.schedule_name(),
            timing: self.timing(),
            job,
            payload: Bytes::from(vec![7; self.rng.below(8) as usize]),
            enabled: self.rng.chance(90),
            delete_after_run: self.rng.chance(10).then(|| self.rng.chance(50)),
            catch_up: self.catch_up(),
            overlap: *self.rng.pick(&Overlap::ALL),
            jitter: if self.rng.chance(20) { Span(self.rng.between(1, 20_000)) } else { Span(0) },
            note: Bytes::from(Vec::new()),
            owner: None,
        }
    }

    fn schedule_patch(&mut self) -> SchedulePatch {
        SchedulePatch {
            name: self.rng.chance(20).then(|| self.schedule_name()),
            timing: self.rng.chance(50).then(|| self.timing()),
            enabled: self.rng.chance(20).then(|| self.rng.chance(50)),
            catch_up: self.rng.chance(20).then(|| self.catch_up()),
            overlap: self.rng.chance(20).then(|| *self.rng.pick(&Overlap::ALL)),
            ..SchedulePatch::default()
        }
    }

    fn schedule_name(&mut self) -> Name {
        Name::new(&format!("schedule{}", self.rng.below(6))).expect("a word and a number are a name")
    }

    fn timing(&mut self) -> Timing {
        let wall = self.clock.moment().now.wall;
        match self.rng.below(10) {
            0 | 1 => Timing::At(Wall(wall.0 - 1_000 + self.rng.below(60_000) as i64)),
            2..=4 => {
                let step = *self.rng.pick(&[1, 2, 5, 7, 20, 45]);
                let zone = *self.rng.pick(&["UTC", "America/New_York", "Asia/Kolkata"]);
                Timing::Cron { expr: format!("*/{step} * * * * *").into(), zone: Some(Name::fixed(zone)) }
            }
            _ => {
                let every = Span(*self.rng.pick(&[500, 1_000, 3_000, 10_000, 30_000, 60_000]));
                let anchor =
                    self.rng.chance(20).then(|| Wall(wall.0 - 5_000 + self.rng.below(20_000) as i64));
                Timing::Every { every, anchor }
            }
        }
    }

    fn catch_up(&mut self) -> CatchUp {
        match self.rng.below(3) {
            0 => CatchUp::Skip,
            1 => CatchUp::Latest,
            _ => CatchUp::All { max: self.rng.small(1, 8) },
        }
    }
}
