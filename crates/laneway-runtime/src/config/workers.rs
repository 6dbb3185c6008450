//! Reads what holds for workers that come over WebSockets: how many, by what right, and when one is too full.

use std::collections::BTreeMap;

use laneway_core::worker::{Pressure, WorkerSettings};
use laneway_core::{Name, Span};

use super::WorkersConfig;
use super::section::Section;

/// Most sockets of workers: each costs a task and some buffers.
const SOCKETS_MAX: u32 = 100_000;
/// Most sockets whose worker has not shown who it is.
const UNAUTHENTICATED_MAX: u32 = 10_000;

/// Reads `[workers]`.
pub(super) fn read(section: Section<'_>) -> (WorkerSettings, WorkersConfig) {
    let settings = WorkerSettings {
        workers_max: section.count("workers_max", 1..=SOCKETS_MAX),
        workers_per_tenant_max: section.count("workers_per_tenant_max", 1..=SOCKETS_MAX),
        saturated_after: section.span("saturated_after", Span::secs(1)..=Span::hours(24)),
        rejections_max: section.count("rejections_max", 0..=100),
        pressure: Pressure {
            memory: percent(&section, "memory_full"),
            disk: percent(&section, "disk_full"),
            relief: percent(&section, "relief"),
        },
        ..WorkerSettings::default()
    };
    let config = WorkersConfig {
        sockets_max: section.count("sockets_max", 1..=SOCKETS_MAX),
        sockets_per_tenant_max: section.count("sockets_per_tenant_max", 1..=SOCKETS_MAX),
        unauthenticated_max: section.count("unauthenticated_max", 1..=UNAUTHENTICATED_MAX),
        unauthenticated_per_address_max: section
            .count("unauthenticated_per_address_max", 1..=UNAUTHENTICATED_MAX),
        require_certificate: section.flag("require_certificate"),
    };
    section.finish();
    (settings, config)
}

/// When workers of a tenant are too full, in percent, as far as its section says so.
pub(super) struct TenantPressure {
    memory: Option<u32>,
    disk: Option<u32>,
}

/// Reads what the section of a tenant says.
pub(super) fn tenant_pressure(section: &Section<'_>) -> TenantPressure {
    let read = |key| section.opt_count(key, 0..=100);
    TenantPressure { memory: read("worker_memory_full"), disk: read("worker_disk_full") }
}

/// The thresholds of tenants that have some of their own.
pub(super) fn pressures(tenants: Vec<(Name, TenantPressure)>, default: Pressure) -> BTreeMap<Name, Pressure> {
    let own = tenants.into_iter().filter(|(_, own)| own.memory.is_some() || own.disk.is_some());
    own.map(|(name, TenantPressure { memory, disk })| {
        let pressure = Pressure {
            memory: memory.map_or(default.memory, thousandths),
            disk: disk.map_or(default.disk, thousandths),
            ..default
        };
        (name, pressure)
    })
    .collect()
}

/// A share in percent; the engine counts in thousandths.
fn percent(section: &Section<'_>, key: &'static str) -> u16 {
    thousandths(section.count(key, 0..=100))
}

fn thousandths(percent: u32) -> u16 {
    u16::try_from(percent.saturating_mul(10)).unwrap_or(u16::MAX)
}
