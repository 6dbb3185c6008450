//! Shares of long-lived resources: streams, sockets, waiting calls.
//!
//! While some are free, a caller gets as many as it opens, up to its own limits. When all are taken, a tenant that has fewer
//! than others still gets one: the tenant with the most loses the newest share of its largest holder. The tokens of one
//! tenant share in the same way. A stream whose share is revoked ends as if the server had closed it, and its client may
//! reconnect.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laneway_core::Name;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::config::StreamsConfig;

/// A pool of shares. Clones are the same pool.
#[derive(Clone)]
pub struct Shares {
    table: Arc<Mutex<Table>>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How many there are, and the setting that says so.
    max: (usize, &'static str),
    per_tenant_max: usize,
    per_token_max: usize,
}

#[derive(Default)]
struct Table {
    count: usize,
    last: u64,
    tenants: BTreeMap<Name, Holders>,
}

/// The holders of one tenant, by token.
#[derive(Default)]
struct Holders {
    count: usize,
    tokens: BTreeMap<Name, BTreeMap<u64, CancellationToken>>,
}

/// One share; given back when dropped.
pub struct Share {
    number: u64,
    tenant: Name,
    token: Name,
    revoked: CancellationToken,
    table: Arc<Mutex<Table>>,
}

/// A caller has its share already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoShare {
    /// The setting whose limit is reached.
    pub limit: &'static str,
    /// Its value.
    pub max: usize,
}

impl fmt::Display for NoShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoShare { limit, max } = self;
        write!(f, "{max} are open already ({limit}); close one, or ask again later")
    }
}

impl Shares {
    /// `max` shares, as the setting `name` says, for callers with the limits of `config`.
    pub fn new(max: u32, name: &'static str, config: &StreamsConfig) -> Shares {
        let limits = Limits {
            max: (max as usize, name),
            per_tenant_max: config.per_tenant_max as usize,
            per_token_max: config.per_token_max as usize,
        };
        Shares { table: Arc::default(), limits }
    }

    /// A share for a caller, if need be one that another caller gives back.
    pub fn take(&self, caller: &Caller) -> Result<Share, NoShare> {
        // Callers that belong to no tenant are a party of their own.
        let tenant = caller.bound.clone().unwrap_or_else(|| Name::fixed("*"));
        self.take_as(tenant, caller.actor.clone())
    }

    fn take_as(&self, tenant: Name, token: Name) -> Result<Share, NoShare> {
        let Limits { max: (max, limit), per_tenant_max, per_token_max } = self.limits;
        let mut table = lock(&self.table);
        let (of_tenant, of_token) = table.held(&tenant, &token);
        if of_token >= per_token_max {
            return Err(NoShare { limit: "streams.per_token_max", max: per_token_max });
        }
        if of_tenant >= per_tenant_max && !table.revoke_within(&tenant, of_token) {
            return Err(NoShare { limit: "streams.per_tenant_max", max: per_tenant_max });
        }
        if table.count >= max && !table.revoke_of_largest(&tenant, of_tenant, of_token) {
            return Err(NoShare { limit, max });
        }
        let revoked = CancellationToken::new();
        let number = table.put(&tenant, &token, revoked.clone());
        Ok(Share { number, tenant, token, revoked, table: Arc::clone(&self.table) })
    }
}

impl Share {
    /// Waits until the share is taken back for another caller.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.table).remove(&self.tenant, &self.token, self.number);
    }
}

impl Table {
    /// How many a tenant holds, and how many of these a token.
    fn held(&self, tenant: &Name, token: &Name) -> (usize, usize) {
        let Some(holders) = self.tenants.get(tenant) else { return (0, 0) };
        (holders.count, holders.tokens.get(token).map_or(0, BTreeMap::len))
    }

    fn put(&mut self, tenant: &Name, token: &Name, revoked: CancellationToken) -> u64 {
        self.last += 1;
        self.count += 1;
        let holders = self.tenants.entry(tenant.clone()).or_default();
        holders.count += 1;
        holders.tokens.entry(token.clone()).or_default().insert(self.last, revoked);
        self.last
    }

    /// Forgets a share. What was taken back is forgotten already.
    fn remove(&mut self, tenant: &Name, token: &Name, number: u64) -> Option<CancellationToken> {
        let holders = self.tenants.get_mut(tenant)?;
        let shares = holders.tokens.get_mut(token)?;
        let revoked = shares.remove(&number)?;
        if shares.is_empty() {
            holders.tokens.remove(token);
        }
        holders.count -= 1;
        self.count -= 1;
        if holders.count == 0 {
            self.tenants.remove(tenant);
        }
        Some(revoked)
    }

    /// Revokes one share of the tenant that holds the most, for one that holds fewer. False: no tenant holds more.
    fn revoke_of_largest(&mut self, tenant: &Name, of_tenant: usize, of_token: usize) -> bool {
        let largest = self.tenants.iter().max_by_key(|(_, holders)| holders.count);
        // With one more here and one fewer there, the two would only swap.
        match largest.filter(|(_, holders)| holders.count > of_tenant + 1) {
            Some((largest, _)) if largest != tenant => {
                let largest = largest.clone();
                self.revoke_newest(&largest, 0)
            }
            _ => self.revoke_within(tenant, of_token),
        }
    }

    /// Takes one back of the token of a tenant that holds the most, for a token that holds fewer.
    fn revoke_within(&mut self, tenant: &Name, of_token: usize) -> bool {
        self.revoke_newest(tenant, of_token + 1)
    }

    /// Takes the newest one back of the largest token of a tenant, if that holds more than so many.
    fn revoke_newest(&mut self, tenant: &Name, more_than: usize) -> bool {
        let tokens = self.tenants.get(tenant).map(|holders| &holders.tokens);
        let largest = tokens.into_iter().flatten().max_by_key(|(_, shares)| shares.len());
        let Some((token, shares)) = largest.filter(|(_, shares)| shares.len() > more_than) else {
            return false;
        };
        let newest = shares.last_key_value().map(|(number, _)| (token.clone(), *number));
        let revoked = newest.and_then(|(token, number)| self.remove(tenant, &token, number));
        revoked.inspect(CancellationToken::cancel).is_some()
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(max: u32, per_tenant_max: u32, per_token_max: u32) -> Shares {
        Shares::new(max, "streams.max", &StreamsConfig { max, per_tenant_max, per_token_max })
    }

    fn take(shares: &Shares, tenant: &str, token: &str) -> Result<Share, &'static str> {
        let name = |text| Name::new(text).unwrap();
        shares.take_as(name(tenant), name(token)).map_err(|none| none.limit)
    }

    fn open(shares: &[Share]) -> usize {
        shares.iter().filter(|share| !share.revoked.is_cancelled()).count()
    }

    /// One viewer has all shares while no other tenant wants one, and half as soon as another does.
    #[test]
    fn defect_10_what_is_free_is_borrowed_and_given_back() {
        let shares = shares(8, 100, 100);
        let mut first: Vec<Share> = (0..8).map(|_| take(&shares, "a", "t1").unwrap()).collect();
        assert_eq!(take(&shares, "a", "t1").err(), Some("streams.max"));
        let mut second = Vec::new();
        while let Ok(share) = take(&shares, "b", "t2") {
            second.push(share);
        }
        assert_eq!((open(&first), open(&second)), (4, 4));
        // The newest went first.
        assert!(first[..4].iter().all(|share| !share.revoked.is_cancelled()));
        assert_eq!(
            take(&shares, "a", "t1").err(),
            Some("streams.max"),
            "a tenant with its share gets no more"
        );
        let third: Vec<Share> = (0..2).map(|_| take(&shares, "c", "t3").unwrap()).collect();
        assert_eq!((open(&first) + open(&second), open(&third)), (6, 2));
        drop(third);
        first.retain(|share| !share.revoked.is_cancelled());
        first.push(take(&shares, "a", "t1").unwrap());
        drop((first, second));
        let table = lock(&shares.table);
        assert!(table.count == 0 && table.tenants.is_empty());
    }

    /// Within a tenant, tokens share in the same way.
    #[test]
    fn defect_10_tokens_of_a_tenant_share_what_the_tenant_has() {
        let shares = shares(100, 6, 6);
        let first: Vec<Share> = (0..6).map(|_| take(&shares, "a", "t1").unwrap()).collect();
        assert_eq!(take(&shares, "a", "t1").err(), Some("streams.per_token_max"));
        let mut second = Vec::new();
        while let Ok(share) = take(&shares, "a", "t2") {
            second.push(share);
            assert!(second.len() < 6, "it ends");
        }
        assert_eq!((open(&first), open(&second)), (3, 3));
        assert_eq!(take(&shares, "a", "t2").err(), Some("streams.per_tenant_max"));
        assert!(take(&shares, "b", "t3").is_ok(), "others have their own");
    }

    #[test]
    fn a_token_has_a_limit_of_its_own() {
        let shares = shares(100, 100, 2);
        let held: Vec<Share> = (0..2).map(|_| take(&shares, "a", "t1").unwrap()).collect();
        assert_eq!(take(&shares, "a", "t1").err(), Some("streams.per_token_max"));
        assert!(take(&shares, "a", "t2").is_ok());
        drop(held);
        assert!(take(&shares, "a", "t1").is_ok());
    }
}
