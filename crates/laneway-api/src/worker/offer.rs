//! Converts the registration and the heartbeats of a worker.

use std::collections::BTreeSet;

use laneway_core::worker::{Beat, Package, WorkerOffer};
use laneway_core::{JobId, Name, Span, Task};
use laneway_wire::frame::{Heartbeat, PackageEvent, PackageOutcome, PackageStatus, Register, Text};
use serde::Deserialize;
use serde_json::json;

use super::messages::Member;

/// The prefix of a kind among the features.
const KIND: &str = "kind:";
/// The prefix of a label among the features: `label:zone=eu`.
const LABEL: &str = "label:";

/// The registration of a worker. An error names the field and what is wrong with it.
pub fn offer_of(member: &Member, register: &Register) -> Result<WorkerOffer, String> {
    let Register { capabilities, packages, .. } = register;
    let (mut kinds, mut features, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for feature in capabilities.features.iter() {
        if let Some(kind) = feature.strip_prefix(KIND) {
            kinds.push(name("capabilities.features", kind)?);
        } else if let Some((key, value)) = feature.strip_prefix(LABEL).and_then(|rest| rest.split_once('=')) {
            labels.push((name("capabilities.features", key)?, name("capabilities.features", value)?));
        } else {
            features.push(name("capabilities.features", feature)?);
        }
    }
    let limits = capabilities.concurrency.per_node_limits.iter().flat_map(|limits| limits.iter());
    let kind_limits = limits
        .map(|(kind, limit)| Ok((name("capabilities.concurrency.per_node_limits", kind)?, limit.0)))
        .collect::<Result<_, String>>()?;
    let installed = packages.iter().filter(|package| package.status == PackageStatus::Installed);
    let packages = installed
        .map(|package| {
            let name_of = |text: &Text| name("packages", text);
            Ok(Package { name: name_of(&package.name)?, version: name_of(&package.version)? })
        })
        .collect::<Result<_, String>>()?;
    let runtimes = capabilities.runtimes.iter().map(|runtime| name("capabilities.runtimes", runtime));
    Ok(WorkerOffer {
        tenant: member.tenant.clone(),
        worker: member.worker.clone(),
        version: member.version.clone(),
        hostname: member.hostname.clone(),
        max_parallel: capabilities.concurrency.max_parallel,
        kind_limits,
        kinds,
        packages,
        features,
        runtimes: runtimes.collect::<Result<_, String>>()?,
        labels,
        // Other systems have channels of their own. A name that cannot be a lane is ignored.
        lanes: register.channels().iter().filter_map(|channel| Name::new(channel).ok()).collect(),
    })
}

/// The process of the worker and its open tasks. A task id that is not a job's was never dispatched.
pub fn process_of(register: &Register) -> Result<(Option<Name>, BTreeSet<Task>), String> {
    let boot = register.boot_id.as_ref().map(|boot| name("boot_id", boot)).transpose()?;
    let listed = register.tasks.iter().flat_map(|tasks| tasks.iter());
    let tasks =
        listed.filter_map(|task| Some(Task { job: JobId::parse(&task.task_id)?, dispatch_seq: task.seq }));
    Ok((boot, tasks.collect()))
}

/// The registration after an operation on a package. `None` when it did not change.
pub fn offer_after(offer: &WorkerOffer, event: &PackageEvent) -> Option<WorkerOffer> {
    if event.status != PackageOutcome::Installed {
        return None;
    }
    let package = Package { name: Name::new(&event.name).ok()?, version: Name::new(&event.version).ok()? };
    let mut packages = offer.packages.clone();
    match operation(event) {
        Operation::Install => {
            if packages.contains(&package) {
                return None;
            }
            packages.push(package);
        }
        // An uninstall without a version reports `*`: every version is removed.
        Operation::Uninstall => packages.retain(|known| {
            known.name != package.name || (event.version != "*" && known.version != package.version)
        }),
    }
    Some(WorkerOffer { packages, ..offer.clone() })
}

/// An operation on a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Install it.
    Install,
    /// Remove it.
    Uninstall,
}

impl Operation {
    /// The name in details, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Install => "install",
            Operation::Uninstall => "uninstall",
        }
    }
}

/// The operation of an event.
pub fn operation(event: &PackageEvent) -> Operation {
    match detail(event).operation.as_deref() {
        Some("uninstall") => Operation::Uninstall,
        _ => Operation::Install,
    }
}

/// The code of a failed operation.
pub fn failure_code(event: &PackageEvent) -> Option<String> {
    (event.status == PackageOutcome::Failed)
        .then(|| detail(event).code.unwrap_or_else(|| "E.INTERNAL".to_owned()))
}

#[derive(Default, Deserialize)]
struct Details {
    operation: Option<String>,
    code: Option<String>,
}

fn detail(event: &PackageEvent) -> Details {
    event.details.as_ref().and_then(|details| details.read().ok()).unwrap_or_default()
}

/// Converts a heartbeat: percentages become thousandths.
pub fn beat_of(heartbeat: &Heartbeat) -> Beat {
    let metrics = &heartbeat.metrics;
    let share = |percent: Option<f64>| {
        percent.map(|percent| {
            // Some systems report more than 100 % because they count each core.
            let thousandths = (percent * 10.0).round().clamp(0.0, f64::from(u16::MAX));
            thousandths as u16
        })
    };
    Beat {
        healthy: heartbeat.healthy,
        draining: metrics.more.get("draining") == Some(&json!(true)),
        inflight: u32::try_from(metrics.inflight).unwrap_or(u32::MAX),
        memory: share(metrics.mem_pct),
        disk: share(metrics.disk_pct),
        cpu: share(metrics.cpu_pct),
        latency: metrics.latency_ms.map(Span),
    }
}

fn name(field: &str, text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| format!("`{field}`: {text:?} {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        Member {
            tenant: Name::fixed("acme"),
            worker: Name::fixed("w1"),
            version: "1".into(),
            hostname: "h".into(),
        }
    }

    fn register(value: serde_json::Value) -> Register {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn kinds_and_labels_are_among_the_features() {
        let offer = offer_of(
            &member(),
            &register(
                json!({"capabilities": {"concurrency": {"max_parallel": 4, "per_node_limits": {"resize": 2}},
                "runtimes": ["rust"], "features": ["kind:resize", "label:zone=eu", "gpu"]},
                "packages": [{"name": "img", "version": "1", "status": "installed"},
                    {"name": "old", "version": "1", "status": "missing"}]}),
            ),
        )
        .unwrap();
        let names = |names: &[Name]| names.iter().map(Name::to_string).collect::<Vec<_>>();
        assert_eq!(
            (names(&offer.kinds), names(&offer.features)),
            (vec!["resize".into()], vec!["gpu".into()])
        );
        assert_eq!(offer.labels, [(Name::fixed("zone"), Name::fixed("eu"))]);
        assert_eq!(offer.kind_limits, [(Name::fixed("resize"), 2)]);
        assert_eq!(offer.packages.len(), 1, "only installed packages are offered");
        let bad = register(json!({"capabilities": {"concurrency": {"max_parallel": 1}, "runtimes": ["rust"],
            "features": [format!("kind:{}", "x".repeat(200))]}, "packages": []}));
        assert!(offer_of(&member(), &bad).unwrap_err().starts_with("`capabilities.features`"));
    }

    #[test]
    fn d18_package_events_change_the_packages() {
        let none =
            register(json!({"capabilities": {"concurrency": {"max_parallel": 1}, "runtimes": ["rust"],
            "features": []}, "packages": []}));
        let offer = offer_of(&member(), &none).unwrap();
        let event = |version: &str, status: &str, operation: &str| -> PackageEvent {
            serde_json::from_value(json!({"name": "img", "version": version, "status": status,
                "details": {"operation": operation}}))
            .unwrap()
        };
        assert_eq!(offer_after(&offer, &event("1", "failed", "install")), None);
        let with = offer_after(&offer, &event("1", "installed", "install")).unwrap();
        assert_eq!(with.packages.len(), 1);
        assert_eq!(offer_after(&with, &event("1", "installed", "install")), None);
        let both = offer_after(&with, &event("2", "installed", "install")).unwrap();
        assert_eq!(offer_after(&both, &event("1", "installed", "uninstall")).unwrap().packages.len(), 1);
        assert_eq!(offer_after(&both, &event("*", "installed", "uninstall")).unwrap().packages.len(), 0);
    }

    #[test]
    fn d15_percentages_become_thousandths() {
        let heartbeat: Heartbeat = serde_json::from_value(json!({"healthy": false,
            "metrics": {"inflight": 3, "mem_pct": 90.04, "disk_pct": 95.0, "cpu_pct": 1e9, "draining": true}}))
        .unwrap();
        let beat = beat_of(&heartbeat);
        assert_eq!((beat.memory, beat.disk, beat.cpu), (Some(900), Some(950), Some(u16::MAX)));
        assert!(beat.draining && !beat.healthy);
    }
}
