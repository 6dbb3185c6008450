//! Mounts the dialects behind the gate of the API: neither crate depends on the other.

use laneway::Laneway;
use laneway_api::{Dialect, DialectRoute};
use laneway_runtime::config::{Dialects, Mount};

/// Every enabled dialect, with its mount settings.
pub fn switched_on(laneway: &Laneway, config: &Dialects) -> Vec<(Dialect, Mount)> {
    let mut dialects = Vec::new();
    for (name, mount) in config.mounts().into_iter().filter(|(_, mount)| mount.enabled) {
        if let Some(spoken) = spoken(laneway, name) {
            dialects.push((gated(spoken, mount), mount.clone()));
        }
    }
    dialects
}

/// The dialect of this name.
fn spoken(laneway: &Laneway, name: &str) -> Option<laneway_compat::Dialect> {
    let (scheduler, live) = (laneway.scheduler().clone(), laneway.live_config().clone());
    match name {
        "pinchtab" => Some(laneway_compat::pinchtab::dialect(scheduler, live, laneway.tabs()?.clone())),
        "astraflow" => Some(laneway_compat::astraflow::dialect(scheduler, live)),
        "goclaw" => Some(laneway_compat::goclaw::dialect(scheduler, &live)),
        "synthia" => Some(laneway_compat::synthia::dialect(scheduler, &live)),
        _ => None,
    }
}

fn gated(spoken: laneway_compat::Dialect, mount: &Mount) -> Dialect {
    let laneway_compat::Dialect { name, routes, denied, native } = spoken;
    let route = |route: laneway_compat::Route| {
        let laneway_compat::Route { method, path, operation, right, handler } = route;
        DialectRoute { method, path, operation, right, handler }
    };
    Dialect {
        name,
        prefix: mount.prefix.clone(),
        routes: routes.into_iter().map(route).collect(),
        denied,
        native,
    }
}
