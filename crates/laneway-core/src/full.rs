//! A full queue: whose it is and how full, kept with a recorded rejection so that every surface can say it in its own words.

use crate::Bytes;

/// Whose queue is full. In the order in which caps are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapScope {
    /// The whole server's.
    Server,
    /// The lane's.
    Lane,
    /// The tenant's.
    Tenant,
    /// The agent's in the lane.
    Agent,
}

impl CapScope {
    /// Every scope, in the order in which caps are checked.
    pub const ALL: [CapScope; 4] = [CapScope::Server, CapScope::Lane, CapScope::Tenant, CapScope::Agent];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            CapScope::Server => "server",
            CapScope::Lane => "lane",
            CapScope::Tenant => "tenant",
            CapScope::Agent => "agent",
        }
    }

    /// The setting that is its cap.
    pub fn setting(self) -> &'static str {
        match self {
            CapScope::Server => "server: limits.queued_max",
            CapScope::Lane => "lane: queued_max",
            CapScope::Tenant => "tenant: queued_max",
            CapScope::Agent => "agent in this lane: queued_per_agent_max",
        }
    }
}

/// A full queue, in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Whose queue.
    pub scope: CapScope,
    /// Jobs that wait in it.
    pub waiting: u32,
    /// Jobs that may wait in it.
    pub cap: u32,
}

impl Full {
    /// The figures as a failure's detail: one fixed text, which surfaces may show as it is.
    pub fn to_detail(self) -> Bytes {
        let Full { scope, waiting, cap } = self;
        let text = format!("{{\"scope\":\"{}\",\"waiting\":{waiting},\"cap\":{cap}}}", scope.as_str());
        Bytes::from(text.into_bytes())
    }

    /// The figures of a detail that [`Full::to_detail`] made.
    pub fn from_detail(detail: &[u8]) -> Option<Full> {
        let text = std::str::from_utf8(detail).ok()?;
        let rest = text.strip_prefix("{\"scope\":\"")?.strip_suffix('}')?;
        let (scope, rest) = rest.split_once("\",\"waiting\":")?;
        let (waiting, cap) = rest.split_once(",\"cap\":")?;
        Some(Full {
            scope: CapScope::ALL.into_iter().find(|known| known.as_str() == scope)?,
            waiting: waiting.parse().ok()?,
            cap: cap.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_their_detail() {
        for scope in CapScope::ALL {
            let full = Full { scope, waiting: 7, cap: u32::MAX };
            assert_eq!(Full::from_detail(&full.to_detail()), Some(full));
        }
        for other in ["", "{}", "{\"scope\":\"lane\",\"waiting\":x,\"cap\":1}", "{\"status\":500}"] {
            assert_eq!(Full::from_detail(other.as_bytes()), None, "{other}");
        }
    }
}
