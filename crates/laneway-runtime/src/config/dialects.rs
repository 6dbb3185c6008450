//! Which dialects are spoken, where, and what only they know of.
//!
//! The limits of a dialect are those of its lane (see `aliases.rs`). What is here is how it is mounted, and the few words
//! that its own documents have and the lane does not.

use std::net::SocketAddr;

use laneway_core::Span;

use super::aliases::ALIASES;
use super::section::Section;

/// Longest prefix of a dialect's paths, in bytes.
const PREFIX_MAX: usize = 64;
/// Most requests of one address in one window: far more than one machine can answer.
const REQUESTS_MAX: u32 = 10_000_000;
/// Most workers that a dialect may show: the number limits nothing.
const WORKERS_MAX: u32 = 1_000_000;
/// Largest batch that a dialect may take.
const BATCH_MAX: u32 = 10_000;

/// Most sockets or streams that a dialect may hold: each costs a task and some buffers.
const SOCKETS_MAX: u32 = 100_000;

/// Every dialect that this program speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// Tasks for browser tabs: `/tasks`, `/scheduler`, `/tabs`.
    pub pinchtab: Pinchtab,
    /// Cron jobs of agents: `/ws`.
    pub goclaw: Goclaw,
    /// Heavy jobs of add-ons: `/api/system/scheduler`, `/api/system-stats`, ….
    pub synthia: Synthia,
    /// Runs of workflows, their events and their workers: `/api/v1/…`.
    pub astraflow: Astraflow,
}

/// How a dialect is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// False: its paths are not there.
    pub enabled: bool,
    /// Stands before all its paths; empty, or `/name`.
    pub prefix: String,
    /// An address of its own. `None`: the main one.
    pub listen: Option<SocketAddr>,
    /// Most requests of one client address in one window. 0: no limit.
    pub requests_max: u32,
    /// How long a window is.
    pub requests_window: Span,
}

/// The dialect `pinchtab`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinchtab {
    /// How it is mounted.
    pub mount: Mount,
    /// Shown and accepted, but no second cap beside the lane's.
    pub worker_count: u32,
    /// Shown; never interpreted.
    pub strategy: String,
    /// Most tasks of one batch.
    pub max_batch_size: u32,
}

/// The dialect `goclaw`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goclaw {
    /// How it is mounted.
    pub mount: Mount,
    /// Most sockets at once.
    pub sockets_max: u32,
    /// Most sockets at once beside these that have not shown who they are.
    pub unauthenticated_max: u32,
    /// Most of these of one client address.
    pub unauthenticated_per_address_max: u32,
}

/// The dialect `synthia`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synthia {
    /// How it is mounted.
    pub mount: Mount,
}

/// The dialect `astraflow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astraflow {
    /// How it is mounted.
    pub mount: Mount,
    /// Most streams of events at once.
    pub streams_max: u32,
}

impl Dialects {
    /// How every dialect is mounted, by name.
    pub fn mounts(&self) -> [(&'static str, &Mount); 4] {
        let Dialects { pinchtab, goclaw, synthia, astraflow } = self;
        [
            ("pinchtab", &pinchtab.mount),
            ("goclaw", &goclaw.mount),
            ("synthia", &synthia.mount),
            ("astraflow", &astraflow.mount),
        ]
    }

    /// How the dialect of this name is mounted.
    pub fn mount(&self, name: &str) -> Option<&Mount> {
        self.mounts().into_iter().find(|(known, _)| *known == name).map(|(_, mount)| mount)
    }

    /// Takes what only a restart can change from `current`.
    pub(super) fn keep_until_restart(&mut self, current: &Dialects) {
        let Dialects { pinchtab, goclaw, synthia, astraflow } = self;
        let mounts = [&mut pinchtab.mount, &mut goclaw.mount, &mut synthia.mount, &mut astraflow.mount];
        for (mount, (_, current)) in mounts.into_iter().zip(current.mounts()) {
            let Mount { enabled, prefix, listen, requests_max: _, requests_window: _ } = current;
            (mount.enabled, mount.prefix, mount.listen) = (*enabled, prefix.clone(), *listen);
        }
        self.goclaw.sockets_max = current.goclaw.sockets_max;
        self.goclaw.unauthenticated_max = current.goclaw.unauthenticated_max;
        self.goclaw.unauthenticated_per_address_max = current.goclaw.unauthenticated_per_address_max;
        self.astraflow.streams_max = current.astraflow.streams_max;
    }
}

/// Reads `[dialects]`.
pub(super) fn read(section: Section<'_>) -> Dialects {
    let own = of_dialect(&section, "pinchtab");
    let pinchtab = Pinchtab {
        mount: mount(&own),
        worker_count: or_default(own.count("worker_count", 0..=WORKERS_MAX), "pinchtab", "worker_count"),
        strategy: own.text("strategy"),
        max_batch_size: or_default(own.count("max_batch_size", 0..=BATCH_MAX), "pinchtab", "max_batch_size"),
    };
    for (_, alias, _) in ALIASES.iter().filter(|(dialect, _, _)| *dialect == "pinchtab") {
        // They are written out as keys of the lane by now; asked for so that a misspelt one is told of them.
        own.get(alias);
    }
    own.finish();
    let own = of_dialect(&section, "goclaw");
    let goclaw = Goclaw {
        mount: mount(&own),
        sockets_max: own.count("sockets_max", 1..=SOCKETS_MAX),
        unauthenticated_max: own.count("unauthenticated_max", 1..=SOCKETS_MAX),
        unauthenticated_per_address_max: own.count("unauthenticated_per_address_max", 1..=SOCKETS_MAX),
    };
    own.finish();
    let own = of_dialect(&section, "synthia");
    let synthia = Synthia { mount: mount(&own) };
    own.finish();
    let own = of_dialect(&section, "astraflow");
    let astraflow = Astraflow { mount: mount(&own), streams_max: own.count("streams_max", 1..=SOCKETS_MAX) };
    own.finish();
    section.finish();
    Dialects { pinchtab, goclaw, synthia, astraflow }
}

/// A number as it is, or its default where it is 0: so the documents of the dialect have it.
fn or_default(number: u32, dialect: &str, key: &str) -> u32 {
    let default = || u32::try_from(builtin(dialect).get(key)?.as_integer()?).ok();
    if number == 0 { default().expect("the embedded defaults hold every key") } else { number }
}

/// The section of one dialect in the embedded defaults.
fn builtin(dialect: &str) -> &'static toml::Table {
    let section = super::layers::BUILTIN.get("dialects").and_then(|dialects| dialects.get(dialect));
    section.and_then(toml::Value::as_table).expect("the embedded defaults hold every dialect")
}

/// The section of one dialect, whether or not anybody wrote one.
fn of_dialect<'a>(section: &Section<'a>, name: &'static str) -> Section<'a> {
    let base = builtin(name);
    let own = section.section(name, Some(base));
    own.unwrap_or_else(|| Section::new(section.path.join(name), base, None, section.problems()))
}

fn mount(section: &Section<'_>) -> Mount {
    let prefix = section.text("prefix");
    if !is_prefix(&prefix) {
        let message = format!(
            "is {prefix:?}; write \"\" or a path such as \"/pt\" that begins with / and does not end with it"
        );
        section.problem("prefix", message);
    }
    let listen = section.opt_text("listen").filter(|text| !text.is_empty());
    let listen = listen.and_then(|text| {
        let parsed = text.parse().ok();
        if parsed.is_none() {
            let message =
                format!("is {text:?}; write an IP address and a port, such as \"127.0.0.1:9867\", or \"\"");
            section.problem("listen", message);
        }
        parsed
    });
    Mount {
        enabled: section.flag("enabled"),
        prefix,
        listen,
        requests_max: section.count("requests_max", 0..=REQUESTS_MAX),
        requests_window: section.span("requests_window", Span::secs(1)..=Span::hours(1)),
    }
}

fn is_prefix(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    text.is_empty()
        || (text.len() <= PREFIX_MAX
            && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part)))
}
