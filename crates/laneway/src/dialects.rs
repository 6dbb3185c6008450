//! Mounts the dialects behind the gate of the API: neither crate depends on the other.

use laneway::Laneway;
use laneway_runtime::config::{DialectConfig, Dialects, Mount};
use laneway_runtime::dialect::Dialect;

/// Every enabled dialect, with its mount settings.
pub fn switched_on(laneway: &Laneway, config: &Dialects) -> Vec<(Dialect, Mount)> {
    let mut dialects = Vec::new();
    for DialectConfig { name, mount, .. } in config.iter().filter(|dialect| dialect.mount.enabled) {
        if let Some(spoken) = spoken(laneway, name) {
            dialects.push((spoken.below(&mount.prefix), mount.clone()));
        }
    }
    dialects
}

/// The dialect of this name.
fn spoken(laneway: &Laneway, name: &str) -> Option<Dialect> {
    let (scheduler, live) = (laneway.scheduler().clone(), laneway.live_config().clone());
    match name {
        "pinchtab" => Some(laneway_compat::pinchtab::dialect(scheduler, live, laneway.tabs()?.clone())),
        "browser_manager" => {
            let browsers = laneway.browsers()?.clone();
            Some(laneway_compat::browser_manager::dialect(scheduler, live, browsers))
        }
        "astraflow" => Some(laneway_compat::astraflow::dialect(scheduler, live)),
        "goclaw" => Some(laneway_compat::goclaw::dialect(scheduler, &live)),
        "synthia" => Some(laneway_compat::synthia::dialect(scheduler, &live)),
        _ => None,
    }
}
