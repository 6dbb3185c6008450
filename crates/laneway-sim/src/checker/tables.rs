//! The stored rows agree with the changes: I1 (acked is durable), I3 (nothing vanishes), I7 (log and tables agree).

use std::collections::BTreeMap;

use laneway_core::schedule::RECENT_FIRINGS_MAX;
use laneway_core::{DeliveryRow, EndedMember, FiringLogEntry, JobRow, OpenAttempt, Seq};
use laneway_store::{JobFilter, Loaded};

use super::Checker;
use crate::faulty::{Disk, Stored};
use crate::ledger::Entry;
use crate::violation::{Checked, Violation, hold};

impl Checker {
    /// Compares the ledger with everything that is stored. Slow; asked now and then.
    pub fn tables_agree(&self, disk: &Disk) -> Checked {
        let stored = disk
            .read()
            .map_err(|error| Violation::new("I7", format!("the store cannot be read: {error}")))?;
        self.live_jobs_agree(&stored)?;
        self.ended_jobs_agree(&stored)?;
        self.schedules_agree(&stored)?;
        self.calls_agree(&stored)?;
        self.documents_agree(&stored)?;
        hold("I7", stored.head.last_event == self.ledger.last_event, || {
            format!(
                "the store is at event {}, the ledger at {}",
                stored.head.last_event, self.ledger.last_event
            )
        })?;
        let verified = stored.reader.verify_events();
        hold("I7", verified.is_ok(), || format!("the chain of events does not hold: {verified:?}"))
    }

    fn live_jobs_agree(&self, stored: &Stored) -> Checked {
        let mut rows: BTreeMap<Seq, &JobRow> = BTreeMap::new();
        let mut opens: BTreeMap<Seq, &OpenAttempt> = BTreeMap::new();
        let mut sessions = Vec::new();
        let mut open_runs = 0;
        let mut owed: BTreeMap<Seq, &DeliveryRow> = BTreeMap::new();
        for item in &stored.loaded {
            match item {
                Loaded::Session(row) => sessions.push(row),
                Loaded::Lane(_) | Loaded::Schedule(_) | Loaded::FiringLogEntry(_) | Loaded::Call(_) => {}
                Loaded::KeptKeys(_) | Loaded::Record(_) => {}
                Loaded::OpenRun(row, ended) => {
                    let run = self.ledger.runs.get(&row.first);
                    let known = row.seqs().filter_map(|seq| self.ledger.member(Seq(seq)));
                    let ends =
                        known.filter_map(|entry| Some(EndedMember::of(entry.row.id, entry.end.as_ref()?)));
                    hold(
                        "I1",
                        run.is_some_and(|run| run.row == **row) && ends.eq(ended.iter().copied()),
                        || format!("{} is not what was committed", row.id),
                    )?;
                    open_runs += 1;
                }
                Loaded::Job(row) => {
                    rows.insert(row.seq, row);
                }
                Loaded::Open(open) => {
                    opens.insert(open.seq, open);
                }
                Loaded::StillRunning(row, open) => {
                    opens.insert(open.seq, open);
                    hold(
                        "I8",
                        self.ledger.jobs.get(&row.seq).is_some_and(|entry| entry.end.is_some()),
                        || format!("job {} has ended in the store only", row.seq.0),
                    )?;
                }
                Loaded::Delivery(row) => {
                    owed.insert(row.seq, row);
                }
            }
        }
        let known = self.ledger.runs.values().filter(|run| !run.row.state.is_terminal()).count();
        hold("I1", open_runs == known, || format!("{open_runs} of {known} open runs are stored"))?;
        hold("I7", sessions.iter().copied().eq(self.ledger.sessions.values()), || {
            format!("sessions are stored as {sessions:?}, committed were {:?}", self.ledger.sessions)
        })?;
        let durable = self.ledger.waiting_deliveries().map(|row| (row.seq, row));
        hold("N1", durable.eq(owed), || "the store has other deliveries than were committed".to_owned())?;
        for (seq, entry) in &self.ledger.jobs {
            if entry.end.is_none() {
                let row = rows.remove(seq);
                hold("I1", row.is_some_and(|row| *row == entry.row), || {
                    format!("the row of job {} is not what was committed: {row:?}, {:?}", seq.0, entry.row)
                })?;
            }
            hold("I7", opens.remove(seq) == entry.open.as_ref(), || {
                format!("the open attempt of job {} is not what was committed", seq.0)
            })?;
        }
        hold("I2", rows.is_empty() && opens.is_empty(), || {
            format!(
                "the store has live jobs {:?} and open attempts {:?} that no batch committed",
                rows.keys(),
                opens.keys()
            )
        })
    }

    /// The latest calls of nodes of open runs are those that were committed.
    fn calls_agree(&self, stored: &Stored) -> Checked {
        let calls = stored.loaded.iter().filter_map(|item| match item {
            Loaded::Call(row) => Some(&**row),
            _ => None,
        });
        hold("I7", calls.eq(self.ledger.open_calls()), || "calls are not what was committed".to_owned())
    }

    /// Kept keys and records are those that were committed.
    fn documents_agree(&self, stored: &Stored) -> Checked {
        let kept = stored.loaded.iter().filter_map(|item| match item {
            Loaded::KeptKeys(row) => Some(row),
            _ => None,
        });
        hold("K1", kept.eq(self.ledger.kept_keys.values()), || {
            "kept keys are not what was committed".to_owned()
        })?;
        let records = stored.loaded.iter().filter_map(|item| match item {
            Loaded::Record(record) => Some(record),
            _ => None,
        });
        hold("D1", records.eq(self.ledger.records.values()), || {
            "records are not what was committed".to_owned()
        })
    }

    /// Schedules are those that were committed; so are the newest entries of the firing log, as far as they are kept.
    fn schedules_agree(&self, stored: &Stored) -> Checked {
        let calendar = &self.ledger.calendar;
        let schedules = stored.loaded.iter().filter_map(|item| match item {
            Loaded::Schedule(schedule) => Some(&**schedule),
            _ => None,
        });
        hold("I1", schedules.eq(calendar.schedules.values()), || {
            "schedules are not what was committed".to_owned()
        })?;
        let runs: Vec<&FiringLogEntry> = stored
            .loaded
            .iter()
            .filter_map(|item| match item {
                Loaded::FiringLogEntry(run) => Some(&**run),
                _ => None,
            })
            .collect();
        let known = runs.iter().all(|run| calendar.logs.get(&run.number) == Some(*run));
        let whole = calendar.purged || runs.len() == calendar.logs.len().min(RECENT_FIRINGS_MAX);
        hold("I7", known && whole, || "the firing log is not what was committed".to_owned())
    }

    fn ended_jobs_agree(&self, stored: &Stored) -> Checked {
        let mut found = BTreeMap::new();
        let mut before = None;
        loop {
            let page = stored
                .reader
                .jobs(&JobFilter::default(), before, 500)
                .map_err(|error| Violation::new("I7", format!("jobs cannot be listed: {error}")))?;
            for view in page.items {
                found.insert(view.row.seq, view);
            }
            match page.next {
                Some(next) => before = Some(Seq(next)),
                None => break,
            }
        }
        for (seq, entry) in self.ledger.ended.iter().chain(&self.ledger.jobs) {
            match found.remove(seq) {
                Some(_) if entry.deleted => {
                    hold("J2", false, || format!("job {} is deleted and still listed", seq.0))?;
                }
                Some(view) => {
                    hold("I7", view.end == entry.end && view.state() == entry.state, || {
                        format!("job {} is stored as {}, not as {}", seq.0, view.state(), entry.state)
                    })?;
                    history_agrees(stored, entry)?;
                }
                None => hold("I3", entry.purgeable, || format!("job {} has vanished", seq.0))?,
            }
        }
        hold("I2", found.is_empty(), || {
            format!("the store has jobs {:?} that no batch committed", found.keys())
        })
    }
}

/// Attempts, events and log lines of a job are those that were committed. Events may be forgotten from the oldest on.
fn history_agrees(stored: &Stored, entry: &Entry) -> Checked {
    let seq = entry.row.seq;
    let broken =
        |error| Violation::new("I7", format!("the history of job {} cannot be read: {error}", seq.0));
    let attempts = stored.reader.attempts(seq).map_err(broken)?;
    hold("I7", attempts.iter().map(|view| &view.closed).eq(&entry.closed), || {
        format!("the attempts of job {} are stored as {attempts:?}", seq.0)
    })?;
    let events = stored.reader.events_of(seq, 1_000).map_err(broken)?;
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    hold("I7", entry.events.ends_with(&numbers), || {
        format!("the events of job {} are {:?}, and stored as {numbers:?}", seq.0, entry.events)
    })?;
    let first = stored.reader.first_event().map_err(broken)?;
    let kept = entry.events.iter().filter(|&&number| first != 0 && number >= first).count();
    hold("I7", numbers.len() == kept, || {
        format!("job {} has {kept} events, and {} are listed", seq.0, numbers.len())
    })?;
    let lines = stored.reader.logs(seq, 0, 10_000).map_err(broken)?;
    hold("I7", lines.len() == entry.log_lines, || {
        format!("job {} wrote {} lines, and {} are stored", seq.0, entry.log_lines, lines.len())
    })
}
