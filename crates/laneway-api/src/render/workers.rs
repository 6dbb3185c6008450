//! Renders workers and placement constraints.

use std::borrow::Cow;

use laneway_core::engine::{Hold, Lacks};
use laneway_core::worker::{Affinity, Orders, Package, Placement, ResourceRef, WorkerView};
use laneway_core::{Name, Span};
use laneway_wire::{
    self as wire, AffinityConstraint, PackageConstraint, ResourceConstraint, Worker, WorkerConstraints,
    WorkerPackage,
};

use super::time;

/// A worker.
pub fn worker(view: &WorkerView) -> Worker {
    let WorkerView {
        offer,
        connection: _,
        standing,
        open,
        connected_at,
        silent: Span(silent_ms),
        heartbeat: Span(heartbeat_ms),
        beat,
        lanes,
        orders: Orders { drained, lanes: rebound },
        pressed,
    } = view;
    let texts = |names: &[Name]| names.iter().map(Name::to_string).collect::<Vec<_>>();
    let percent = |thousandths: Option<u16>| thousandths.map(|share| f64::from(share) / 10.0);
    let packages = offer.packages.iter().map(|package| WorkerPackage {
        name: package.name.to_string(),
        version: package.version.to_string(),
    });
    Worker {
        id: offer.worker.to_string(),
        tenant: offer.tenant.to_string(),
        state: standing.as_str().to_owned(),
        version: offer.version.to_string(),
        hostname: offer.hostname.to_string(),
        max_parallel: offer.max_parallel,
        running: *open,
        kinds: texts(&offer.kinds),
        kind_limits: offer.kind_limits.iter().map(|(kind, limit)| (kind.to_string(), *limit)).collect(),
        packages: packages.collect(),
        features: texts(&offer.features),
        runtimes: texts(&offer.runtimes),
        labels: offer.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        lanes: texts(lanes),
        rebound: rebound.is_some(),
        connected_at: time(*connected_at),
        silent_ms: *silent_ms,
        heartbeat_ms: *heartbeat_ms,
        drained: *drained,
        too_full: *pressed,
        mem_pct: percent(beat.memory),
        disk_pct: percent(beat.disk),
        cpu_pct: percent(beat.cpu),
        latency_ms: beat.latency.map(|latency| latency.0),
    }
}

/// The placement constraints of a job, as the request had them.
pub fn placement(placement: &Placement) -> WorkerConstraints<'_> {
    let Placement { package, features, labels, affinity, resources } = placement;
    let text = |name: &'_ Name| Cow::Owned(name.to_string());
    let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let features = features.iter().map(text);
    WorkerConstraints {
        package: package
            .as_ref()
            .map(|Package { name, version }| PackageConstraint { name: text(name), version: text(version) }),
        features: Some(features.collect::<Vec<_>>()).filter(|list| !list.is_empty()),
        labels: Some(labels.collect()).filter(|list: &std::collections::BTreeMap<_, _>| !list.is_empty()),
        affinity: affinity.as_ref().map(|Affinity { key, mode, expires_at }| AffinityConstraint {
            key: text(key),
            mode: Some(mode.as_str().into()),
            expires_at: expires_at.map(|at| time(at).into()),
        }),
        resources: Some(resources.iter().map(resource).collect::<Vec<_>>()).filter(|list| !list.is_empty()),
    }
}

fn resource(resource: &ResourceRef) -> ResourceConstraint<'_> {
    let ResourceRef { id, worker, sort, scope, expires_at } = resource;
    ResourceConstraint {
        id: id.as_str().into(),
        worker: worker.as_str().into(),
        sort: sort.as_str().into(),
        scope: scope.as_ref().map(|scope| scope.as_str().into()),
        expires_at: expires_at.map(|at| time(at).into()),
    }
}

/// Why no worker runs a job, if that blocks it.
pub fn hold(hold: &Hold) -> Option<wire::Blocker> {
    let (code, name, message) = match hold {
        Hold::NoWorker { kind, lacks: Some(lacks), .. } => {
            let missing = match lacks {
                Lacks::Kind => format!("runs kind {kind}. Workers of other kinds are connected"),
                Lacks::Package(package) => {
                    format!(
                        "has package {} {}. Workers of kind {kind} are connected",
                        package.name, package.version
                    )
                }
                Lacks::Features => {
                    format!("has all the required features. Workers of kind {kind} are connected")
                }
                Lacks::Labels => format!("has all the required labels. Workers of kind {kind} are connected"),
                Lacks::Lane(lane) => format!("serves its lane, {lane}. Workers of other lanes are connected"),
            };
            // The cause comes first: a narrow table shows only the beginning.
            ("no_worker", kind, format!("No worker {missing}."))
        }
        Hold::NoWorker { kind, lacks: None, fit, full, draining, unwell } => {
            let message = format!(
                "Of {fit} workers that could run it, {full} are full, {draining} accept no new tasks and {unwell} are unhealthy."
            );
            ("workers_full", kind, message)
        }
        Hold::WorkerBusy { worker, standing } => {
            let how = match standing {
                Some(standing) => format!("is {}", standing.as_str()),
                None => "is not connected".to_owned(),
            };
            (
                "worker_busy",
                worker,
                format!("Only worker {worker} can run it, and that worker has no free slot or {how}."),
            )
        }
        _ => return None,
    };
    Some(wire::Blocker {
        code: code.to_owned(),
        message,
        name: Some(name.to_string()),
        ..wire::Blocker::default()
    })
}
