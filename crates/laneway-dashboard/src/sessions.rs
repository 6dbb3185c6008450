//! The sessions of people who have logged in: a random id in a cookie, and the token on the server.
//!
//! The token never goes back to the browser. A session ends after twelve hours, after an hour without a request, when its owner
//! logs out, and when the server restarts. A revoked token ends it at once, because every call of the API checks the token.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// The longest life of a session.
pub const LIFE: Duration = Duration::from_secs(12 * 3600);
/// The longest time without a request.
pub const IDLE: Duration = Duration::from_secs(3600);
/// Most sessions in all. Each costs a few hundred bytes.
const SESSIONS_MAX: usize = 4_096;
/// Most sessions of one tenant; the server-wide tokens together count as one.
const SESSIONS_PER_TENANT_MAX: usize = 512;

/// The digest of a session's id. The id itself is only in the cookie.
type Key = [u8; 32];

struct Session {
    token: String,
    csrf: String,
    tenant: String,
    began: Instant,
    used: Instant,
}

/// What a request with a session may use.
#[derive(Clone)]
pub struct Opened {
    /// The token of its owner.
    pub token: String,
    /// The value that every change must carry.
    pub csrf: String,
}

/// Every session.
#[derive(Default)]
pub struct Sessions {
    table: Mutex<BTreeMap<Key, Session>>,
}

impl Sessions {
    /// Opens a session. The result is the id for the cookie.
    pub fn open(&self, token: String, tenant: String, now: Instant) -> Result<String, getrandom::Error> {
        let (id, csrf) = (random()?, random()?);
        let mut table = self.locked();
        table.retain(|_, session| !session.is_over(now));
        let of_tenant = table.values().filter(|session| session.tenant == tenant).count();
        if of_tenant >= SESSIONS_PER_TENANT_MAX {
            drop_idlest(&mut table, |session| session.tenant == tenant);
        }
        if table.len() >= SESSIONS_MAX {
            // The tenant with the most sessions loses one.
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for session in table.values() {
                *counts.entry(&session.tenant).or_default() += 1;
            }
            let most =
                counts.into_iter().max_by_key(|(_, count)| *count).map(|(tenant, _)| tenant.to_owned());
            drop_idlest(&mut table, |session| Some(&session.tenant) == most.as_ref());
        }
        table.insert(key_of(&id), Session { token, csrf, tenant, began: now, used: now });
        Ok(id)
    }

    /// The session of a cookie, if it is still open.
    pub fn find(&self, id: &str, now: Instant) -> Option<Opened> {
        let mut table = self.locked();
        let session = table.get_mut(&key_of(id)).filter(|session| !session.is_over(now))?;
        session.used = now;
        Some(Opened { token: session.token.clone(), csrf: session.csrf.clone() })
    }

    /// Ends a session.
    pub fn close(&self, id: &str) {
        self.locked().remove(&key_of(id));
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<Key, Session>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= LIFE || now.duration_since(self.used) >= IDLE
    }
}

fn drop_idlest(table: &mut BTreeMap<Key, Session>, of: impl Fn(&Session) -> bool) {
    let candidates = table.iter().filter(|(_, session)| of(session));
    if let Some(key) = candidates.min_by_key(|(_, session)| session.used).map(|(key, _)| *key) {
        table.remove(&key);
    }
}

fn key_of(id: &str) -> Key {
    Sha256::digest(id.as_bytes()).into()
}

/// 256 random bits in hexadecimal digits.
pub fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sessions: &Sessions, tenant: &str, now: Instant) -> String {
        sessions.open(format!("token of {tenant}"), tenant.to_owned(), now).unwrap()
    }

    #[test]
    fn a_session_ends_when_idle_when_old_and_on_logout() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let id = open(&sessions, "acme", start);
        assert_eq!(id.len(), 64);
        assert_eq!(sessions.find(&id, start).unwrap().token, "token of acme");
        assert!(sessions.find("another", start).is_none());
        let mut now = start;
        while now + IDLE / 2 < start + LIFE {
            now += IDLE / 2;
            assert!(sessions.find(&id, now).is_some(), "a session in use stays open");
        }
        assert!(sessions.find(&id, start + LIFE).is_none(), "even a session in use ends");
        let idle = open(&sessions, "acme", start);
        assert!(sessions.find(&idle, start + IDLE).is_none());
        let closed = open(&sessions, "acme", start);
        sessions.close(&closed);
        assert!(sessions.find(&closed, start).is_none());
    }

    #[test]
    fn a_tenant_with_many_sessions_displaces_its_own() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let other = open(&sessions, "other", start);
        let first = open(&sessions, "acme", start);
        for second in 1..=SESSIONS_PER_TENANT_MAX as u64 {
            open(&sessions, "acme", start + Duration::from_secs(second));
        }
        let now = start + Duration::from_secs(600);
        assert!(sessions.find(&first, now).is_none() && sessions.find(&other, now).is_some());
        assert_eq!(sessions.locked().len(), SESSIONS_PER_TENANT_MAX + 1);
    }
}
