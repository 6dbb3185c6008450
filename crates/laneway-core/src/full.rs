//! A full queue: its scope, and how full it is. Stored with a recorded rejection, so that every API can describe it
//! in its own format.

use crate::Bytes;

/// The scope of a queue limit, in the order in which limits are checked.
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
    /// Every scope, in the order in which limits are checked.
    pub const ALL: [CapScope; 4] = [CapScope::Server, CapScope::Lane, CapScope::Tenant, CapScope::Agent];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            CapScope::Server => "server",
            CapScope::Lane => "lane",
            CapScope::Tenant => "tenant",
            CapScope::Agent => "agent",
        }
    }

    /// The setting that limits it.
    pub fn setting(self) -> &'static str {
        match self {
            CapScope::Server => "server: limits.queued_max",
            CapScope::Lane => "lane: queued_max",
            CapScope::Tenant => "tenant: queued_max",
            CapScope::Agent => "agent in this lane: queued_per_agent_max",
        }
    }
}

/// A full queue, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The scope of the limit.
    pub scope: CapScope,
    /// Jobs that wait in it.
    pub waiting: u32,
    /// Most jobs that may wait in it.
    pub cap: u32,
}

impl Full {
    /// The numbers as a failure's detail: one fixed text, which APIs may show as it is.
    pub fn to_detail(self) -> Bytes {
        let Full { scope, waiting, cap } = self;
        let text = format!("{{\"scope\":\"{}\",\"waiting\":{waiting},\"cap\":{cap}}}", scope.as_str());
        Bytes::from(text.into_bytes())
    }

    /// The numbers of a detail that [`Full::to_detail`] wrote.
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
    fn numbers_survive_their_detail() {
        for scope in CapScope::ALL {
            let full = Full { scope, waiting: 7, cap: u32::MAX };
            assert_eq!(Full::from_detail(&full.to_detail()), Some(full));
        }
        for other in ["", "{}", "{\"scope\":\"lane\",\"waiting\":x,\"cap\":1}", "{\"status\":500}"] {
            assert_eq!(Full::from_detail(other.as_bytes()), None, "{other}");
        }
    }
}
