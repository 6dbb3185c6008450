//! The same rules, read from outside: compares what a real server left in its store with what it acknowledged.
//!
//! The simulator's checker sees every commit. A server that was killed leaves its event log and its tables; this
//! reads both, folds the log, and demands that it obeys the rules and agrees with the tables. It looks only at
//! committed state and changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use laneway_core::event::JobLine;
use laneway_core::{Event, EventKind, JobId, JobState, Name, Reason, Settings};
use laneway_store::{EventFilter, JobView, Reader};

use crate::violation::{Checked, hold};

/// Events read at once.
const PAGE: usize = 5_000;

/// What was found, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Events in the log.
    pub events: u64,
    /// Jobs in the log.
    pub jobs: u64,
    /// Jobs that have ended.
    pub ended: u64,
    /// Attempts that were lost.
    pub lost: u64,
}

/// One job, by its events.
struct Life {
    state: JobState,
    attempt: u32,
    /// An attempt holds gates; it may outlive the job.
    open: bool,
    last_event: u64,
}

/// Folds the event log from its first event.
struct EventLog<'a> {
    reader: &'a dyn Reader,
    settings: &'a Settings,
    lives: BTreeMap<JobId, Life>,
    views: BTreeMap<JobId, JobView>,
    open_in_lane: BTreeMap<Name, u32>,
    open_in_session: BTreeMap<(Name, Name), u32>,
    open_of_key: BTreeMap<(Name, Name, Name), u32>,
    found: Found,
}

/// Checks the whole event log, the tables, and that every acknowledged job is there. The log must be complete: no
/// retention has run.
pub fn check(
    reader: &dyn Reader,
    settings: &Settings,
    acked: &BTreeSet<JobId>,
) -> Result<Found, crate::Violation> {
    let mut log = EventLog {
        reader,
        settings,
        lives: BTreeMap::new(),
        views: BTreeMap::new(),
        open_in_lane: BTreeMap::new(),
        open_in_session: BTreeMap::new(),
        open_of_key: BTreeMap::new(),
        found: Found::default(),
    };
    let mut after = 0;
    loop {
        let page = reader.events_after(&EventFilter::default(), after, PAGE).map_err(broken_store)?;
        for event in &page.items {
            hold("I7", event.number == after + 1, || {
                format!("event {} follows event {after}", event.number)
            })?;
            after = event.number;
            log.event(event)?;
        }
        if page.items.is_empty() && page.next.is_none_or(|next| next <= after) {
            break;
        }
    }
    let verified = reader.verify_events().map_err(broken_store)?;
    hold("I7", verified == after, || format!("the chain of hashes covers {verified} of {after} events"))?;
    for job in acked {
        hold("I1", log.lives.contains_key(job), || format!("job {job} was acknowledged and is not there"))?;
    }
    log.agrees_with_tables()?;
    log.found.events = after;
    log.found.jobs = log.lives.len() as u64;
    Ok(log.found)
}

impl EventLog<'_> {
    fn event(&mut self, event: &Event) -> Checked {
        let Some(line) = &event.job else { return Ok(()) };
        let number = event.number;
        if event.kind == EventKind::JobSubmitted {
            let spec = &self.view(line.id)?.row.spec;
            let later = spec.not_before.is_some_and(|at| at > event.at);
            // One that joins others ends at once, which both states allow.
            let collects = spec.session.as_ref().is_some_and(|session| {
                session.window().is_some() && session.mode != laneway_core::SessionMode::Interrupt
            });
            let state = if later || collects { JobState::Scheduled } else { JobState::Queued };
            let life = Life { state, attempt: 0, open: false, last_event: number };
            let known = self.lives.insert(line.id, life).is_some();
            return hold("I2", !known, || format!("job {} was submitted twice", line.id));
        }
        let Some(life) = self.lives.get_mut(&line.id) else {
            return hold("I2", false, || {
                format!("event {number} is about job {} that was never submitted", line.id)
            });
        };
        hold("I7", line.previous == life.last_event, || {
            format!("event {number} does not follow its job's last")
        })?;
        life.last_event = number;
        match event.kind {
            EventKind::JobAssigned => self.open(number, line, JobState::Assigned),
            EventKind::JobStarted if life.state == JobState::Assigned => {
                self.step(number, line, JobState::Running)
            }
            EventKind::JobStarted => self.open(number, line, JobState::Running),
            EventKind::JobQueued => {
                if line.reason == Some(Reason::Lost) {
                    self.found.lost += 1;
                }
                self.close(line)?;
                self.step(number, line, JobState::Queued)
            }
            EventKind::JobRetrying => {
                self.close(line)?;
                self.step(number, line, JobState::Scheduled)
            }
            // No worker took it: it was queued again, and waits for another time from then on.
            EventKind::JobDeferred => {
                let open = life.open;
                hold("I10", !open, || format!("event {number}: job {} is deferred while it runs", line.id))?;
                self.step(number, line, JobState::Scheduled)
            }
            EventKind::JobRescheduled if life.state == JobState::Scheduled => Ok(()),
            EventKind::JobRescheduled => self.step(number, line, JobState::Scheduled),
            EventKind::JobPriorityChanged => Ok(()),
            EventKind::AttemptReleased => self.close(line),
            EventKind::JobSucceeded => self.end(number, line, JobState::Succeeded),
            EventKind::JobFailed => self.end(number, line, JobState::Failed),
            EventKind::JobCanceled => self.end(number, line, JobState::Canceled),
            _ => hold("I9", false, || {
                format!("event {number} does not fit the state of its job: {}", event.kind)
            }),
        }
    }

    fn step(&mut self, number: u64, line: &JobLine, next: JobState) -> Checked {
        let life = self.lives.get_mut(&line.id).expect("looked up before");
        let was = std::mem::replace(&mut life.state, next);
        let rule = if was.is_terminal() { "I8" } else { "I9" };
        hold(rule, was.allows(next), || format!("event {number}: job {} goes from {was} to {next}", line.id))
    }

    fn open(&mut self, number: u64, line: &JobLine, state: JobState) -> Checked {
        self.step(number, line, state)?;
        let life = self.lives.get_mut(&line.id).expect("looked up before");
        hold("I10", !life.open, || format!("event {number}: job {} has two open attempts", line.id))?;
        let follows = line.attempt == life.attempt + 1;
        hold("I10", follows, || {
            format!("event {number}: attempt {} follows {}", line.attempt, life.attempt)
        })?;
        (life.open, life.attempt) = (true, line.attempt);
        self.count(line, 1)
    }

    fn end(&mut self, number: u64, line: &JobLine, state: JobState) -> Checked {
        self.step(number, line, state)?;
        self.found.ended += 1;
        // A canceled attempt holds its gates until it has ended; every other end comes with the end of the attempt.
        if state == JobState::Canceled { Ok(()) } else { self.close(line) }
    }

    fn close(&mut self, line: &JobLine) -> Checked {
        let life = self.lives.get_mut(&line.id).expect("looked up before");
        if std::mem::take(&mut life.open) { self.count(line, -1) } else { Ok(()) }
    }

    /// Counts an attempt in every scope that has a limit here, and holds the limit.
    fn count(&mut self, line: &JobLine, by: i32) -> Checked {
        let spec = self.view(line.id)?.row.spec.clone();
        let lane_max = self.settings.lanes.get(&line.lane).map_or(u32::MAX, |lane| lane.running_max);
        add("lane", self.open_in_lane.entry(line.lane.clone()).or_default(), by, lane_max)?;
        if let Some(session) = spec.session {
            let scope = (spec.tenant.clone(), session.key);
            add("session", self.open_in_session.entry(scope).or_default(), by, session.max_concurrent)?;
        }
        for key in spec.keys {
            let limit = self.settings.keys.get(&key.name).copied().unwrap_or(self.settings.key_default);
            let scope = (spec.tenant.clone(), key.name, key.value);
            add("key", self.open_of_key.entry(scope).or_default(), by, limit)?;
        }
        Ok(())
    }

    fn view(&mut self, id: JobId) -> Result<&JobView, crate::Violation> {
        if !self.views.contains_key(&id) {
            let view = self.reader.job(id).map_err(broken_store)?;
            hold("I7", view.is_some(), || format!("job {id} is in the event log and not in the tables"))?;
            self.views.insert(id, view.expect("just held"));
        }
        Ok(&self.views[&id])
    }

    fn agrees_with_tables(&mut self) -> Checked {
        let folded: Vec<(JobId, JobState, u32, bool)> =
            self.lives.iter().map(|(id, life)| (*id, life.state, life.attempt, life.open)).collect();
        for (id, state, attempt, open) in folded {
            let view = self.view(id)?;
            let stored = view.state();
            hold("I7", stored == state, || {
                format!("job {id} is {stored} in the tables and {state} in the event log")
            })?;
            let attempts = match (&view.end, &view.open) {
                (Some(end), _) => end.attempts,
                (None, Some(open)) => open.fence.attempt,
                (None, None) => view.row.status.attempts,
            };
            hold("I10", attempts == attempt, || {
                format!("job {id}: {attempts} attempts stored, {attempt} in the event log")
            })?;
            hold("I19", view.open.is_some() == open, || {
                format!("job {id}: its open attempt and the event log disagree")
            })?;
        }
        Ok(())
    }
}

fn add(scope: &str, count: &mut u32, by: i32, limit: u32) -> Checked {
    *count = count.saturating_add_signed(by);
    let rule = if scope == "session" { "I21" } else { "I17" };
    hold(rule, by < 0 || *count <= limit, || {
        format!("a {scope} has {count} open attempts, its limit is {limit}")
    })
}

fn broken_store(error: laneway_store::StoreError) -> crate::Violation {
    crate::Violation::new("I7", format!("the store cannot be read: {error}"))
}
