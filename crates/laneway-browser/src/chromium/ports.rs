//! The debug ports of the browsers of this process. A page that reads `/json/list` of such a port sees the tabs of its browser and can
//! close them, so no page reaches one, whichever browser it belongs to.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use reqwest::Url;

/// The requests of pages that are checked: the debug port answers no others.
pub(crate) const REQUESTS: &str = "http://*/json*";

/// Every open port. It is one for the process, because pages of any browser can reach all of them.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that is open until this is dropped.
pub(crate) struct DebugPort(u16);

impl DebugPort {
    pub(crate) fn new(port: u16) -> DebugPort {
        open().insert(port);
        DebugPort(port)
    }

    pub(crate) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for DebugPort {
    fn drop(&mut self) {
        open().remove(&self.0);
    }
}

fn open() -> MutexGuard<'static, BTreeSet<u16>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the URL is one of a debug port. Chromium itself rejects requests to it under names of other sites.
pub(crate) fn is_debug_port(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let is_here = match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    };
    is_here && url.port_or_known_default().is_some_and(|port| open().contains(&port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_this_machine_is_known() {
        let port = DebugPort::new(45_671);
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "0.0.0.0",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_debug_port(&format!("http://{host}:45671/json/list")), "{host}");
            assert!(!is_debug_port(&format!("http://{host}:45672/json/list")), "{host}");
        }
        for other in ["http://203.0.113.7:45671/json", "http://example.com:45671/json", "data:,x", "no URL"] {
            assert!(!is_debug_port(other), "{other}");
        }
        drop(port);
        assert!(!is_debug_port("http://127.0.0.1:45671/json"));
    }
}
