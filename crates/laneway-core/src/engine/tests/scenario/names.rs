//! The names that a scenario gave to its jobs, runs and schedules, and the fences of its attempts.

use std::collections::BTreeMap;

use super::parse::AttemptRef;
use crate::effect::{Notice, Offer};
use crate::{AttemptId, Change, Effects, Fence, JobId, Reply, RunId, ScheduleId, Task};

#[derive(Default)]
pub(super) struct Names {
    jobs: BTreeMap<String, JobId>,
    runs: BTreeMap<String, RunId>,
    schedules: BTreeMap<String, ScheduleId>,
    /// How many jobs each schedule created.
    fired: BTreeMap<ScheduleId, u32>,
    fences: BTreeMap<(JobId, u32), Fence>,
    /// The numbers of the attempts that were offered, by run, in order.
    offered: BTreeMap<String, Vec<u64>>,
}

impl Names {
    /// Remembers the names of what a command created. `names` are those that the command gave.
    pub(super) fn learn(&mut self, reply: &Reply, effects: &Effects, names: &[String]) {
        match reply {
            Reply::Submitted(submitted) => self.name_job(names, submitted.job),
            Reply::Granted(grant) => self.name_job(names, grant.fence.job),
            Reply::Rejected(rejection) => {
                if let Some(job) = rejection.recorded {
                    self.name_job(names, job);
                }
            }
            Reply::Batch(verdicts) => {
                for (name, verdict) in names.iter().zip(verdicts) {
                    let job =
                        verdict.as_ref().map_or_else(|rejection| rejection.recorded, |job| Some(job.job));
                    self.jobs.extend(job.map(|job| (name.clone(), job)));
                }
            }
            Reply::Schedule(schedule) => {
                self.schedules.insert(schedule.spec.name.to_string(), schedule.id);
            }
            Reply::RunSubmitted(submitted) => {
                self.runs.insert(names[0].clone(), submitted.run);
            }
            _ => {}
        }
        self.learn_effects(effects, names);
    }

    /// Jobs of a run are named `run/node`, jobs of a schedule `schedule/1`, `schedule/2`, ….
    pub(super) fn learn_effects(&mut self, effects: &Effects, names: &[String]) {
        for change in &effects.changes {
            match change {
                Change::JobCreated { row, .. } => {
                    if let Some(of) = &row.spec.member {
                        self.jobs.insert(format!("{}/{}", names[0], of.node), row.id);
                    }
                    if let Some(of) = &row.spec.schedule {
                        let count = self.fired.entry(of.id).or_default();
                        *count += 1;
                        self.jobs.insert(format!("{}/{count}", of.name), row.id);
                    }
                }
                Change::AttemptOpened(open) | Change::AttemptRebound(open) => self.learn_fence(open.fence),
                _ => {}
            }
        }
        for notice in &effects.notices {
            if let Notice::Offer(offer) = notice {
                self.learn_fence(offer.fence);
                self.count_offer(offer);
            }
        }
    }

    fn name_job(&mut self, names: &[String], job: JobId) {
        if let Some(name) = names.first() {
            self.jobs.insert(name.clone(), job);
        }
    }

    fn learn_fence(&mut self, fence: Fence) {
        self.fences.insert((fence.job, fence.attempt), fence);
    }

    /// Attempts are numbered without gaps, those of a run across all of its jobs.
    fn count_offer(&mut self, offer: &Offer) {
        let job = self.of_job(offer.fence.job);
        let Some((run, _)) = job.split_once('/').filter(|(run, _)| self.runs.contains_key(*run)) else {
            return assert_eq!(offer.dispatch_seq, u64::from(offer.fence.attempt));
        };
        let numbers = self.offered.entry(run.to_owned()).or_default();
        if offer.to.as_ref().is_some_and(|to| to.again) {
            return assert!(numbers.contains(&offer.dispatch_seq), "it was offered before");
        }
        assert_eq!(offer.dispatch_seq, numbers.len() as u64 + 1, "attempts of a run are numbered 1, 2, 3, …");
        numbers.push(offer.dispatch_seq);
    }

    pub(super) fn job(&self, name: &str) -> JobId {
        *self.jobs.get(name).unwrap_or_else(|| panic!("no job is named {name:?}"))
    }

    pub(super) fn run(&self, name: &str) -> RunId {
        *self.runs.get(name).unwrap_or_else(|| panic!("no run is named {name:?}"))
    }

    pub(super) fn schedule(&self, name: &str) -> ScheduleId {
        *self.schedules.get(name).unwrap_or_else(|| panic!("no schedule is named {name:?}"))
    }

    pub(super) fn of_job(&self, job: JobId) -> String {
        let known = self.jobs.iter().find(|(_, id)| **id == job);
        known.map_or_else(|| "?".to_owned(), |(name, _)| name.clone())
    }

    /// The name of the job whose id is written in a text.
    pub(super) fn of_job_text(&self, id: &str) -> &str {
        let known = self.jobs.iter().find(|(_, known)| known.to_string() == id);
        known.map_or("?", |(name, _)| name)
    }

    pub(super) fn of_run(&self, run: RunId) -> String {
        let known = self.runs.iter().find(|(_, id)| **id == run);
        known.map_or_else(|| "?".to_owned(), |(name, _)| name.clone())
    }

    pub(super) fn fence(&self, attempt: &AttemptRef) -> Fence {
        let name = &attempt.job;
        let number = attempt.number.unwrap_or_else(|| self.latest_attempt(name).unwrap_or(0));
        let fence = self.fences.get(&(self.job(name), number));
        let fence = *fence.unwrap_or_else(|| panic!("{name:?} has no attempt {number}"));
        let forged = u128::from(attempt.forged);
        Fence { attempt_id: AttemptId(fence.attempt_id.0 ^ forged), ..fence }
    }

    /// A worker names an attempt by its number: that of the run, where the job belongs to one.
    pub(super) fn task(&self, attempt: &AttemptRef) -> Task {
        let number = attempt.number.or_else(|| self.latest_attempt(&attempt.job)).unwrap_or(1);
        Task { job: self.job(&attempt.job), dispatch_seq: number.into() }
    }

    fn latest_attempt(&self, name: &str) -> Option<u32> {
        let job = self.job(name);
        self.fences.range((job, 0)..=(job, u32::MAX)).last().map(|((_, attempt), _)| *attempt)
    }

    /// How many attempts of a run were offered.
    pub(super) fn attempts_of_run(&self, name: &str) -> usize {
        self.offered.get(name).map_or(0, Vec::len)
    }
}
