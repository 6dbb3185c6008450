//! The sections that a configuration may have: those of this crate, and those that other crates contribute as data.
//!
//! A dialect contributes its default text, its keys with their ranges, and its lanes ([`DialectSection`]). A crate with
//! entries of its own, such as servers that jobs are forwarded to, contributes how one entry is read and written
//! ([`EntrySection`]); one with settings of its own contributes a [`FixedSection`]. This crate knows none of them by name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use laneway_core::{LaneSettings, Name};
use toml::{Table, Value};

use super::Secret;
use super::build::lanes;
use super::layers::Places;
use super::path::KeyPath;
use super::section::{Problems, Section};
use crate::job_log::DialectJobs;

/// The commented defaults of this crate's own sections.
const NATIVE_DEFAULTS: &str = include_str!("../../config.default.toml");

/// The text above the sections of dialects in the defaults.
const DIALECTS_HEADER: &str = "
# ---------------------------------------------------------------------------------------------------------------------
# Dialects: the APIs of other systems, on their own paths, so that their clients work unchanged. See docs/compat/.
";

/// The section of a dialect, and the lanes that it needs.
#[derive(Debug)]
pub struct DialectSection {
    /// Its name: the section is `[dialects.NAME]`.
    pub name: &'static str,
    /// The commented defaults of the section and of the dialect's lanes, as TOML. The keys of [`Mount`](super::Mount) are
    /// always there.
    pub defaults: &'static str,
    /// The keys beside those of the mount, in the order of the defaults.
    pub keys: &'static [DialectKey],
    /// The jobs that belong to the dialect.
    pub jobs: &'static [JobsOf],
    /// Environment variables that set `running_max` of a lane, as (lane, variable), strongest first.
    pub lane_variables: &'static [(&'static str, &'static str)],
}

/// Jobs that belong to a dialect: all jobs of a lane, or those of one kind. A lane without a kind is the dialect's own.
#[derive(Clone, Copy, Debug)]
pub struct JobsOf {
    /// The lane.
    pub lane: &'static str,
    /// The kind. `None`: every kind.
    pub kind: Option<&'static str>,
}

/// A key in the section of a dialect.
#[derive(Debug)]
pub enum DialectKey {
    /// A whole number.
    Count {
        /// The key.
        key: &'static str,
        /// The values that it may have.
        range: RangeInclusive<u32>,
        /// A rule for special values.
        rule: CountRule,
    },
    /// A text.
    Text {
        /// The key.
        key: &'static str,
    },
    /// Another name for a key of another section, such as one of the dialect's lane. Zero leaves that key as it is.
    Alias {
        /// The key: one name, or a section and a name.
        key: &'static [&'static str],
        /// The key that it stands for, from the root.
        to: &'static [&'static str],
    },
    /// A further key that gets the value of an alias, unless the same layer or change sets that key itself.
    Follower {
        /// The key of the alias.
        key: &'static [&'static str],
        /// The key that follows it, from the root.
        to: &'static [&'static str],
    },
}

/// A rule for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountRule {
    /// 0 stands for the default.
    ZeroIsDefault,
    /// A new value holds after a restart.
    NeedsRestart,
}

/// A section whose entries have names that users give, such as `[instances.desk]`. API calls put and remove single
/// entries, each as a whole.
pub struct EntrySection {
    /// Its name.
    pub name: &'static str,
    /// Its commented defaults.
    pub defaults: &'static str,
    /// Most entries.
    pub len_max: usize,
    /// Reads one entry. Problems go to the section.
    pub read: fn(&Section<'_>) -> Option<Arc<dyn SectionEntry>>,
    /// The key of an entry that is encrypted in the store.
    pub secret: &'static str,
    /// Why a change of the configuration cannot change entries, and what can.
    pub not_patchable: &'static str,
    /// Why an entry that no call put cannot be removed by a call.
    pub not_removable: &'static str,
}

/// A section with fixed keys that another crate reads. Its values are read at the start: a change needs a restart, and API
/// calls cannot change them. Its defaults may also have lanes, kinds and keys, which are changed like all others.
pub struct FixedSection {
    /// Its name.
    pub name: &'static str,
    /// The commented defaults of the section, and of lanes, kinds and keys that belong to it, as TOML.
    pub defaults: &'static str,
    /// Reads the section. Problems go to it.
    pub read: fn(&Section<'_>) -> Arc<dyn SectionEntry>,
    /// The lanes among the defaults. Statistics leave them out until they have had a job.
    pub lanes: &'static [&'static str],
}

/// The values of a contributed section: one entry of an [`EntrySection`], or a [`FixedSection`].
pub trait SectionEntry: Any + fmt::Debug + Send + Sync {
    /// Every key with its value, in the order of the reference.
    fn values(&self) -> Vec<(&'static str, EntryValue)>;
}

/// The value of a key of an entry.
pub enum EntryValue {
    /// A value that may be shown.
    Plain(Value),
    /// A value that is never shown.
    Secret(Secret),
}

/// Every section of a configuration with its defaults.
pub struct Schema {
    defaults: String,
    /// The defaults as a tree.
    builtin: Table,
    /// The defaults of keys that a lane leaves out.
    lane: Table,
    dialects: Vec<&'static DialectSection>,
    entries: Vec<&'static EntrySection>,
    fixed: Vec<&'static FixedSection>,
}

impl Schema {
    /// The sections of this crate alone.
    pub fn native() -> Arc<Schema> {
        Schema::new(&[], &[], &[])
    }

    /// The sections of this crate and these. Panics when the defaults of one of them are not valid TOML.
    pub fn new(
        dialects: &[&'static DialectSection],
        entries: &[&'static EntrySection],
        fixed: &[&'static FixedSection],
    ) -> Arc<Schema> {
        let mut defaults = NATIVE_DEFAULTS.to_owned();
        for section in fixed {
            defaults.push('\n');
            defaults.push_str(section.defaults);
        }
        if !dialects.is_empty() {
            defaults.push_str(DIALECTS_HEADER);
        }
        let texts: Vec<&str> = dialects
            .iter()
            .map(|dialect| dialect.defaults)
            .chain(entries.iter().map(|entry| entry.defaults))
            .collect();
        defaults.push_str(&texts.join("\n"));
        let builtin: Table = defaults.parse().expect("the embedded defaults are TOML");
        let lane = lane_defaults(&builtin);
        let (dialects, entries, fixed) = (dialects.to_vec(), entries.to_vec(), fixed.to_vec());
        Arc::new(Schema { defaults, builtin, lane, dialects, entries, fixed })
    }

    /// The reference: every key with its comment and its default, as TOML.
    pub fn defaults(&self) -> &str {
        &self.defaults
    }

    /// The jobs that belong to dialects.
    pub fn dialect_jobs(&self) -> DialectJobs {
        DialectJobs::new(self.dialects.iter().flat_map(|dialect| dialect.jobs).copied())
    }

    pub(super) fn builtin(&self) -> &Table {
        &self.builtin
    }

    pub(super) fn lane(&self) -> &Table {
        &self.lane
    }

    pub(super) fn dialects(&self) -> &[&'static DialectSection] {
        &self.dialects
    }

    pub(super) fn entry_sections(&self) -> &[&'static EntrySection] {
        &self.entries
    }

    pub(super) fn fixed_sections(&self) -> &[&'static FixedSection] {
        &self.fixed
    }

    /// The entry section of this name.
    pub(crate) fn entry_section(&self, name: &str) -> Option<&'static EntrySection> {
        self.entries.iter().copied().find(|section| section.name == name)
    }

    /// True for the lanes that every server has.
    pub(crate) fn is_builtin_lane(&self, name: &str) -> bool {
        self.builtin.get("lanes").is_some_and(|lanes| lanes.get(name).is_some())
    }

    /// The lanes of dialects and of fixed sections with their default settings.
    pub(super) fn contributed_lanes(&self) -> BTreeMap<Name, LaneSettings> {
        let problems = Problems::new(Places::default());
        let own = |name: &Name| {
            let mut jobs = self.dialects.iter().flat_map(|dialect| dialect.jobs);
            let mut fixed = self.fixed.iter().flat_map(|section| section.lanes);
            jobs.any(|jobs| jobs.kind.is_none() && jobs.lane == name.as_str())
                || fixed.any(|lane| *lane == name.as_str())
        };
        let mut lanes = lanes(&Section::new(KeyPath::root(), &self.builtin, None, &problems), self);
        lanes.retain(|name, _| own(name));
        lanes
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.dialects.iter().map(|dialect| dialect.name);
        let names = names.chain(self.entries.iter().map(|section| section.name));
        f.debug_list().entries(names.chain(self.fixed.iter().map(|section| section.name))).finish()
    }
}

/// The keys that a lane leaves out: as the defaults have them for `main`, except for the number of running jobs.
fn lane_defaults(builtin: &Table) -> Table {
    let main = builtin.get("lanes").and_then(|lanes| lanes.get("main")).and_then(Value::as_table);
    let mut lane = main.expect("the embedded defaults have the lane main").clone();
    lane.insert("running_max".to_owned(), Value::from(LaneSettings::default().running_max));
    lane
}
