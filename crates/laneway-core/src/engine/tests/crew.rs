//! The words of scenarios about workers that are told what to run.

use crate::command::WorkerCommand;
use std::collections::BTreeMap;

use super::story::{Story, number, span, text};
use crate::worker::{
    Affinity, AffinityMode, Beat, Package, Register, ResourceRef, WorkerMessage, WorkerReport,
};
use crate::{
    Command, ConnectionId, Failure, Name, Now, Origin, Outcome, Placement, Span, Task, TasksKept, WorkerOffer,
};

type Options<'a> = BTreeMap<&'a str, &'a str>;

/// `worker w1 c1 slots=2 kinds=w boot=b1 tasks=a1,a2#1` (boot and tasks as `none`; without them, the same process comes back
/// and has everything), `pulse c1`, `accept c1 a1`, `reject c1 a1 E.BUSY`, `result c1 a1 ok`, `gone c1`,
/// `offers w1 c1 slots=2 kinds=w`, `drainworker w1`, `undrain w1`, `rebind w1 main,other`, `rebind w1`.
pub(super) fn command(story: &Story, verb: &str, rest: &[&str], options: &Options) -> Command {
    let said = match verb {
        "worker" => {
            let heartbeat = options.get("every").map_or(Span::secs(5), |every| span(every));
            let (connection, offer) = (connection(rest[1]), offer(rest[0], options));
            let orders = Default::default();
            let boot = match options.get("boot") {
                Some(&"none") => None,
                Some(boot) => Some(text(boot)),
                None => Some(offer.worker.clone()),
            };
            let tasks = options.get("tasks").map_or(TasksKept::All, |tasks| {
                let named = tasks.split(',').filter(|name| *name != "none");
                TasksKept::Listed(named.map(|name| task(story, name)).collect())
            });
            let register = Register { connection, offer, heartbeat, orders, boot, tasks };
            return Command::Worker(WorkerCommand::Register(Box::new(register)));
        }
        "drainworker" | "undrain" => {
            let (tenant, worker) = (tenant(options), text(rest[0]));
            let drain = verb == "drainworker";
            return Command::Worker(WorkerCommand::Drain {
                tenant,
                worker,
                drain,
                origin: Origin::server("test"),
            });
        }
        "rebind" => {
            let lanes = rest.get(1).map_or(Vec::new(), |lanes| lanes.split(',').map(text).collect());
            let (tenant, worker) = (tenant(options), text(rest[0]));
            return Command::Worker(WorkerCommand::Rebind {
                tenant,
                worker,
                lanes,
                origin: Origin::server("test"),
            });
        }
        "offers" => {
            let said = WorkerReport::Offers(Box::new(offer(rest[0], options)));
            return Command::Worker(WorkerCommand::Message(Box::new(WorkerMessage {
                connection: connection(rest[1]),
                report: said,
            })));
        }
        "pulse" => WorkerReport::Beat(beat(rest, options)),
        "accept" => WorkerReport::Accepted(task(story, rest[1])),
        "reject" => WorkerReport::Rejected(task(story, rest[1]), text(rest[2])),
        "result" => {
            WorkerReport::Ended { task: task(story, rest[1]), outcome: outcome(rest[2]), stored: None }
        }
        _ => WorkerReport::Gone,
    };
    Command::Worker(WorkerCommand::Message(Box::new(WorkerMessage {
        connection: connection(rest[0]),
        report: said,
    })))
}

/// Every registered worker in a line.
pub(super) fn workers(story: &Story) -> Vec<String> {
    let views = story.engine.workers(story.now, None);
    let line = |view: &crate::worker::WorkerView| {
        let connection = view.connection.map_or("-".into(), |connection| connection.to_string());
        let (worker, max, standing) = (&view.offer.worker, view.offer.max_parallel, view.standing.as_str());
        let lanes: Vec<&str> = view.lanes.iter().map(Name::as_str).collect();
        let lanes = if lanes.is_empty() { String::new() } else { format!(" of {}", lanes.join(",")) };
        format!("{worker} {connection} {standing} {}/{max}{lanes}", view.open)
    };
    views.iter().map(line).collect()
}

/// `package=p@1 features=gpu labels=zone:a stick=k/60s prefer=k pin=w1/60s`.
pub(super) fn wants(options: &Options, now: Now) -> Option<Box<Placement>> {
    let until = |word: &str| word.split_once('/').map(|(_, at)| now.wall + span(at));
    let name = |word: &str| text(word.split_once('/').map_or(word, |(name, _)| name));
    let affinity =
        |mode: AffinityMode, word: &&str| Affinity { key: name(word), mode, expires_at: until(word) };
    let stick = options.get("stick").map(|word| affinity(AffinityMode::Sticky, word));
    let prefer = options.get("prefer").map(|word| affinity(AffinityMode::Preferred, word));
    let pins = options.get("pin").map_or(Vec::new(), |pins| pins.split(',').collect());
    let resource = |pin: &str| ResourceRef {
        id: text("r"),
        worker: name(pin),
        sort: text("file"),
        scope: None,
        expires_at: until(pin),
    };
    let wants = Placement {
        package: options.get("package").map(|word| package(word)),
        features: list(options, "features"),
        labels: pairs(options, "labels"),
        affinity: stick.or(prefer),
        resources: pins.into_iter().map(resource).collect(),
    };
    (wants != Placement::default()).then(|| Box::new(wants))
}

fn offer(worker: &str, options: &Options) -> WorkerOffer {
    WorkerOffer {
        tenant: tenant(options),
        worker: text(worker),
        version: "1".into(),
        hostname: "host".into(),
        max_parallel: options.get("slots").map_or(1, |slots| number(slots)),
        kind_limits: pairs(options, "limits")
            .into_iter()
            .map(|(kind, max)| (kind, number(max.as_str())))
            .collect(),
        kinds: list(options, "kinds"),
        packages: options.get("packages").map_or(Vec::new(), |all| all.split(',').map(package).collect()),
        features: list(options, "features"),
        runtimes: Vec::new(),
        labels: pairs(options, "labels"),
        lanes: list(options, "lanes"),
    }
}

fn beat(rest: &[&str], options: &Options) -> Beat {
    let share = |name: &str| options.get(name).map(|percent| (number(percent) * 10) as u16);
    Beat {
        healthy: !rest.contains(&"unhealthy"),
        draining: rest.contains(&"draining"),
        memory: share("mem"),
        disk: share("disk"),
        ..Beat::default()
    }
}

/// `a1` names the job's latest dispatch, `a1#2` its second.
fn task(story: &Story, word: &str) -> Task {
    let (name, seq) = word.split_once('#').map_or((word, None), |(name, seq)| (name, Some(seq)));
    let job = story.jobs[name];
    let dispatch_seq = match seq {
        Some(seq) => number(seq).into(),
        None => story.latest_attempt(name).into(),
    };
    Task { job, dispatch_seq }
}

fn outcome(word: &str) -> Outcome {
    match word {
        "ok" => Outcome::Succeeded(None),
        "fail" => Outcome::Failed(Failure::retryable("test", "it failed")),
        "canceled" => Outcome::Canceled,
        other => panic!("{other} is no outcome"),
    }
}

fn connection(word: &str) -> ConnectionId {
    ConnectionId(number(word.strip_prefix('c').expect("c1, c2, …")).into())
}

fn tenant(options: &Options) -> Name {
    text(options.get("tenant").copied().unwrap_or("default"))
}

fn package(word: &str) -> Package {
    let (name, version) = word.split_once('@').expect("name@version");
    Package { name: text(name), version: text(version) }
}

fn list(options: &Options, key: &str) -> Vec<Name> {
    options.get(key).map_or(Vec::new(), |all| all.split(',').map(text).collect())
}

fn pairs(options: &Options, key: &str) -> Vec<(Name, Name)> {
    let pair = |word: &str| {
        let (name, value) = word.split_once(':').expect("name:value");
        (text(name), text(value))
    };
    options.get(key).map_or(Vec::new(), |all| all.split(',').map(pair).collect())
}
