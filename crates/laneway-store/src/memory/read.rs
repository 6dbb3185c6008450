//! Reads of the memory store.

use std::ops::Bound;

use laneway_core::{
    Bytes, DeliveryRow, DeliveryTry, Event, FiringLogEntry, JobId, Name, Prior, RunId, RunRow, Seq,
};

use super::Shared;
use super::state::State;
use crate::store::ROWS_SCANNED_MAX;
use crate::{
    AttemptView, CountBy, DeliveryFilter, EventFilter, FiringLogFilter, FiringLogPage, JobCounts, JobFilter,
    JobView, LogView, Page, Reader, RunFilter, Runnable, StoreError,
};

/// Reads what the writer has committed.
pub(super) struct MemoryReader(pub Shared);

impl Reader for MemoryReader {
    fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        let state = self.0.read();
        Ok(state.ids.get(&id).and_then(|seq| state.jobs.get(seq)).map(|job| job.view()))
    }

    fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError> {
        let state = self.0.read();
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let newest_first = state.jobs.range((Bound::Unbounded, end)).rev();
        let numbered = newest_first.map(|(seq, job)| (seq.0, job));
        Ok(page(numbered, limit, |job| {
            filter.matches_row(&job.row).then(|| job.view()).filter(|job| filter.matches(job))
        }))
    }

    fn count_jobs(&self, filter: &JobFilter, by: CountBy) -> Result<Option<JobCounts>, StoreError> {
        let state = self.0.read();
        let mut counts = JobCounts::default();
        for job in state.jobs.values().filter(|job| filter.matches_row(&job.row)) {
            let view = job.view();
            if filter.matches(&view) {
                counts.all.add(view.state(), 1);
                if let Some(group) = by.group_of(&view) {
                    counts.groups.entry(group).or_default().add(view.state(), 1);
                }
            }
        }
        Ok(Some(counts.bounded()))
    }

    fn prior(&self, tenant: &Name, key: &Name) -> Result<Option<Prior>, StoreError> {
        Ok(self.0.read().prior(tenant, key))
    }

    fn jobs_at(&self, jobs: &[Seq]) -> Result<Vec<JobView>, StoreError> {
        let state = self.0.read();
        Ok(jobs.iter().filter_map(|seq| state.jobs.get(seq)).map(|job| job.view()).collect())
    }

    fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        let state = self.0.read();
        Ok(state.run_rows.values().find(|row| row.id == id).map(|row| RunRow::clone(row)))
    }

    fn runs(
        &self,
        filter: &RunFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<RunRow>, StoreError> {
        let state = self.0.read();
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let newest_first = state.run_rows.range((Bound::Unbounded, end)).rev();
        let numbered = newest_first.map(|(first, row)| (first.0, row));
        Ok(page(numbered, limit, |row| filter.matches(row).then(|| RunRow::clone(row))))
    }

    fn run_definition(&self, first: Seq) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.read().jobs.get(&first).and_then(|job| job.definition.clone()))
    }

    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Runnable>, StoreError> {
        let state = self.0.read();
        let find = |seq: &Seq| match state.jobs.get(seq) {
            Some(job) => {
                let stored = job.merged.iter().filter_map(|seq| state.jobs.get(seq));
                let merged: Vec<Bytes> = stored.map(|job| Bytes::clone(&job.payload)).collect();
                Ok(Runnable { row: job.row.clone(), payload: Bytes::clone(&job.payload), merged })
            }
            None => Err(StoreError::Disagree(format!("there is no job {}", seq.0))),
        };
        jobs.iter().map(find).collect()
    }

    fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        let state = self.0.read();
        if let Some(job) = filter.job {
            let items = state.delivery(job).filter(|row| filter.matches(row)).into_iter().collect();
            return Ok(Page { items, next: None });
        }
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let owed = state.jobs.range((Bound::Unbounded, end)).rev();
        let owed = owed.filter_map(|(seq, job)| Some((seq.0, job.delivery.as_ref()?)));
        Ok(page(owed, limit, |row| filter.matches(row).then(|| row.clone())))
    }

    fn delivery(&self, job: JobId) -> Result<Option<DeliveryRow>, StoreError> {
        Ok(self.0.read().delivery(job))
    }

    fn delivery_tries(&self, job: Seq) -> Result<Vec<DeliveryTry>, StoreError> {
        Ok(self.0.read().jobs.get(&job).map_or(Vec::new(), |job| job.tries.clone()))
    }

    fn reusable_bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn payload(&self, job: Seq) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.read().jobs.get(&job).map(|job| Bytes::clone(&job.payload)))
    }

    fn call_payload(&self, node: Seq) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.read().calls.get(&node).and_then(|call| call.payload.clone()))
    }

    fn attempts(&self, job: Seq) -> Result<Vec<AttemptView>, StoreError> {
        let state = self.0.read();
        let closed = state.jobs.get(&job).map_or(&[][..], |job| &job.closed);
        Ok(closed.iter().map(|closed| AttemptView { closed: closed.clone() }).collect())
    }

    fn logs(&self, job: Seq, after: u64, limit: usize) -> Result<Vec<LogView>, StoreError> {
        let state = self.0.read();
        let lines = state.jobs.get(&job).map_or(&[][..], |job| &job.logs);
        Ok(lines.iter().filter(|line| line.line > after).take(limit).cloned().collect())
    }

    fn events_after(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: usize,
    ) -> Result<Page<Event>, StoreError> {
        let state = self.0.read();
        let batches = state.batches.iter().filter(|batch| batch.last() > after);
        let events = batches.flat_map(|batch| batch.events.iter()).filter(|event| event.number > after);
        Ok(page(numbered(events), limit, |event| filter.matches(event).then(|| event.clone())))
    }

    fn events_before(
        &self,
        filter: &EventFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<Event>, StoreError> {
        let state = self.0.read();
        let before = before.unwrap_or(u64::MAX);
        let batches = state.batches.iter().rev().filter(|batch| batch.first() < before);
        let events =
            batches.flat_map(|batch| batch.events.iter().rev()).filter(|event| event.number < before);
        Ok(page(numbered(events), limit, |event| filter.matches(event).then(|| event.clone())))
    }

    fn events_of(&self, job: Seq, limit: usize) -> Result<Vec<Event>, StoreError> {
        let state = self.0.read();
        let mut number = state.jobs.get(&job).map_or(0, |job| job.last_event());
        let mut walked = Vec::new();
        while walked.len() < limit
            && let Some(event) = state.event(number)
        {
            let Some(line) = event.job.as_ref().filter(|line| line.seq == job && line.previous < number)
            else {
                return Err(StoreError::Damaged(format!("event {number} is not of job {}", job.0)));
            };
            number = line.previous;
            walked.push(event.clone());
        }
        walked.reverse();
        Ok(walked)
    }

    fn firing_log(
        &self,
        filter: &FiringLogFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<FiringLogPage, StoreError> {
        let state = self.0.read();
        let all = || state.runs.values().rev().filter(|run| filter.matches(run));
        let before = before.unwrap_or(u64::MAX);
        let limit = limit.max(1);
        let mut items: Vec<FiringLogEntry> = all()
            .filter(|run| run.number < before)
            .take(limit + 1)
            .map(|run| FiringLogEntry::clone(run))
            .collect();
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|run| run.number);
        Ok(FiringLogPage { items, next, total: all().count() as u64 })
    }

    fn first_event(&self) -> Result<u64, StoreError> {
        Ok(self.0.read().batches.front().map_or(0, |batch| batch.first()))
    }

    /// There are no bytes to hash here; what can be checked is that no number is missing.
    fn verify_events(&self) -> Result<u64, StoreError> {
        verify(&self.0.read())
    }
}

fn numbered<'a>(events: impl Iterator<Item = &'a Event>) -> impl Iterator<Item = (u64, &'a Event)> {
    events.map(|event| (event.number, event))
}

/// Takes from `rows` what `keep` keeps, until the page is full or enough rows have been looked at.
fn page<R, T>(rows: impl Iterator<Item = (u64, R)>, limit: usize, keep: impl Fn(R) -> Option<T>) -> Page<T> {
    let mut items = Vec::new();
    let mut last = None;
    for (looked_at, (number, row)) in rows.enumerate() {
        if items.len() >= limit.max(1) || looked_at >= ROWS_SCANNED_MAX {
            return Page { items, next: last };
        }
        items.extend(keep(row));
        last = Some(number);
    }
    Page { items, next: None }
}

fn verify(state: &State) -> Result<u64, StoreError> {
    let first = state.batches.front().map_or(state.last_event + 1, |batch| batch.first());
    let mut number = first;
    for event in state.batches.iter().flat_map(|batch| batch.events.iter()) {
        if event.number != number {
            return Err(StoreError::Damaged(format!("event {number} is missing")));
        }
        number += 1;
    }
    if number != state.last_event + 1 {
        return Err(StoreError::Damaged(format!("event {number} is missing")));
    }
    Ok(number - first)
}
