//! The part of a story that is about schedules: words to commands, and what a store would keep of them.

use crate::command::ScheduleCommand;
use std::collections::{BTreeMap, BTreeSet};

use super::story::{START, Story, number, span, text};
use crate::schedule::{FireMode, ScheduleRef};
use crate::{
    CatchUp, Change, Command, FiringLogEntry, FiringStatus, Name, Origin, Overlap, RetryPolicy, Schedule,
    ScheduleId, SchedulePatch, ScheduleSpec, Span, Timing, Wall,
};

/// What is stored of schedules, and the names that a scenario gave them.
#[derive(Default)]
pub(super) struct Calendar {
    pub(super) schedules: BTreeMap<ScheduleId, Schedule>,
    ids: BTreeMap<String, ScheduleId>,
    slots: BTreeSet<(ScheduleId, Wall)>,
    pub(super) logs: Vec<FiringLogEntry>,
    made: BTreeMap<ScheduleId, u32>,
}

type Options<'a> = BTreeMap<&'a str, &'a str>;

impl Calendar {
    pub(super) fn named(&mut self, schedule: &Schedule) {
        self.ids.insert(schedule.spec.name.to_string(), schedule.id);
    }

    /// The name of the next job of a schedule.
    pub(super) fn made(&mut self, of: &ScheduleRef) -> String {
        let count = self.made.entry(of.id).or_default();
        *count += 1;
        format!("{}/{count}", of.name)
    }

    pub(super) fn keep(&mut self, change: &Change) {
        match change {
            Change::SchedulePut(schedule) => {
                self.schedules.insert(schedule.id, Schedule::clone(schedule));
            }
            Change::ScheduleMoved { id, enabled, state } => {
                let schedule = self.schedules.get_mut(id).expect("a stored schedule moves");
                schedule.spec.enabled = *enabled;
                schedule.state = (**state).clone();
            }
            Change::ScheduleRemoved(id) => {
                self.schedules.remove(id).expect("a stored schedule goes");
            }
            Change::SlotFired { schedule, slot, .. } => {
                assert!(self.slots.insert((*schedule, *slot)), "a slot comes once");
            }
            Change::FiringLogged(log) => self.logs.push(FiringLogEntry::clone(log)),
            _ => {}
        }
    }

    /// What the log says, oldest first: `nightly +10s ok`.
    pub(super) fn runs(&self, name: &str) -> Vec<String> {
        let shown = self.logs.iter().filter(|log| name.is_empty() || log.name.as_str() == name);
        shown
            .map(|log| {
                let text = log.error.as_deref().or(log.summary.as_deref()).unwrap_or("");
                let text = text.split_once(" from ").map_or(text, |(before, _)| before);
                let attempts = if log.attempts > 1 {
                    format!(" after {} attempts", log.attempts)
                } else {
                    String::new()
                };
                format!("{} {} {}{attempts} {text}", log.name, since(log.slot), log.status)
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }
}

impl Story {
    pub(super) fn schedule_command(&mut self, verb: &str, rest: &[&str], options: &Options<'_>) -> Command {
        let name = rest[0];
        let origin = Origin::server("test");
        let tenant = options.get("as").map(|tenant| text(tenant));
        if verb == "schedule" {
            return Command::Schedule(ScheduleCommand::Put(
                Box::new(self.schedule_spec(name, rest, options)),
                origin,
            ));
        }
        let id = self.calendar.ids[name];
        match verb {
            "update" => {
                let patch = Box::new(self.patch(rest, options));
                Command::Schedule(ScheduleCommand::Update { tenant, id, patch, origin })
            }
            "toggle" => {
                Command::Schedule(ScheduleCommand::Toggle { tenant, id, enabled: rest[1] == "on", origin })
            }
            "delete" => Command::Schedule(ScheduleCommand::Delete { tenant, id, origin }),
            _ => {
                let mode = if rest.contains(&"due") { FireMode::Due } else { FireMode::Force };
                Command::Schedule(ScheduleCommand::Fire { tenant, id, mode, origin })
            }
        }
    }

    fn schedule_spec(&self, name: &str, rest: &[&str], options: &Options<'_>) -> ScheduleSpec {
        let mut job = self.one(name, options).spec;
        job.tenant = text(options.get("tenant").unwrap_or(&"default"));
        job.kind = text(options.get("kind").unwrap_or(&"k"));
        job.lane = text(options.get("lane").unwrap_or(&"main"));
        job.timeout = options.get("timeout").map(|value| span(value));
        job.retry = options
            .get("retries")
            .map(|retries| RetryPolicy { retries_max: number(retries), ..self.settings.retry.clone() });
        ScheduleSpec {
            tenant: job.tenant.clone(),
            name: text(name),
            timing: self.timing(options).expect("a timing"),
            job,
            payload: vec![0; options.get("bytes").map_or(0, |bytes| number(bytes) as usize)].into(),
            enabled: !rest.contains(&"off"),
            delete_after_run: keeps(rest),
            catch_up: options.get("catch").map_or(CatchUp::Skip, |word| catch_up(word)),
            overlap: options
                .get("overlap")
                .map_or(Overlap::Skip, |word| Overlap::parse(word).expect("a policy")),
            jitter: options.get("jitter").map_or(Span(0), |value| span(value)),
            note: Vec::new().into(),
            owner: None,
        }
    }

    fn patch(&self, rest: &[&str], options: &Options<'_>) -> SchedulePatch {
        SchedulePatch {
            name: options.get("name").map(|name| text(name)),
            timing: self.timing(options),
            enabled: rest.contains(&"on").then_some(true).or(rest.contains(&"off").then_some(false)),
            delete_after_run: keeps(rest),
            catch_up: options.get("catch").map(|word| catch_up(word)),
            ..SchedulePatch::default()
        }
    }

    /// `at=10s` is ten seconds from now; `cron=0_9_*_*_*` has its spaces written as `_`.
    fn timing(&self, options: &Options<'_>) -> Option<Timing> {
        let anchor = options.get("anchor").map(|at| START.wall + span(at));
        let at = options.get("at").map(|at| match at.strip_prefix('-') {
            Some(ago) => Timing::At(self.now.wall.before(span(ago))),
            None => Timing::At(self.now.wall + span(at)),
        });
        let every = || options.get("every").map(|every| Timing::Every { every: span(every), anchor });
        let cron = || {
            options.get("cron").map(|expr| Timing::Cron {
                expr: expr.replace('_', " ").into(),
                zone: options.get("zone").map(|zone| Name::new(zone).expect("a name")),
            })
        };
        at.or_else(every).or_else(cron)
    }

    pub(super) fn show_schedule(&self, name: &str) -> String {
        let Some(schedule) = self.engine.schedule(None, self.calendar.ids[name]) else {
            return format!("{name} is not there");
        };
        assert_eq!(Some(schedule), self.calendar.schedules.get(&schedule.id), "memory and store agree");
        let state = &schedule.state;
        let next = state.next_at.map_or("never".to_owned(), since);
        let last = state.last_status.map_or("none", FiringStatus::as_str);
        let switch = if schedule.spec.enabled { "on" } else { "off" };
        format!("{name} is {switch}, next {next}, last {last}, {} runs", state.firings)
    }
}

fn since(at: Wall) -> String {
    let ms = at.0 - START.wall.0;
    if ms % 1_000 == 0 { format!("{:+}s", ms / 1_000) } else { format!("{ms:+}ms") }
}

fn keeps(rest: &[&str]) -> Option<bool> {
    rest.contains(&"keep").then_some(false).or(rest.contains(&"once").then_some(true))
}

fn catch_up(word: &str) -> CatchUp {
    match word.split_once(':') {
        Some(("all", max)) => CatchUp::All { max: number(max) },
        _ if word == "latest" => CatchUp::Latest,
        _ => CatchUp::Skip,
    }
}
