//! Tokens: stored and ended in the same order and the same commits as everything else.
//!
//! Each tenant has a share of the table, and so have the tokens of the whole server: no tenant can keep others from
//! creating or rotating tokens. A token that has ended is forgotten after a while, or as soon as its share is full. The last
//! one is never forgotten: a server without any token is open to every user of its machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::engine::jobs::submit::reject;
use crate::token::{TOKENS_MAX, TOKENS_PER_TENANT_MAX};
use crate::{Change, Effects, EventKind, Name, Now, Origin, RejectionCode, Reply, Span, TokenRecord, Wall};

/// How long a token is listed after it has ended. The audit list names it as long as events are kept.
const ENDED_RETENTION: Span = Span::hours(24);
/// Tokens beyond a share that rotations with a grace may add.
const ROTATING_MAX: usize = TOKENS_PER_TENANT_MAX / 10;
/// Most tokens that one sweep forgets: a commit stays short.
const SWEPT_MAX: usize = 1_000;

/// Every token, by id and by owner.
#[derive(Default)]
pub(in crate::engine) struct Tokens {
    by_id: BTreeMap<Name, TokenRecord>,
    /// Ids by owner; `None` owns the tokens of the whole server.
    by_owner: BTreeMap<Option<Name>, BTreeSet<Name>>,
    /// True from the first token on.
    had_any: bool,
    /// True when other tenants have tokens than at the last count of shares.
    tenants_changed: bool,
}

impl Tokens {
    /// Inserts a token, or replaces the one of the same id.
    pub(in crate::engine) fn put(&mut self, token: TokenRecord) {
        if self.by_id.get(&token.id).is_some_and(|known| known.tenant != token.tenant) {
            self.remove(&token.id);
        }
        let owned = self.by_owner.entry(token.tenant.clone()).or_default();
        self.tenants_changed |= owned.is_empty();
        owned.insert(token.id.clone());
        self.by_id.insert(token.id.clone(), token);
        self.had_any = true;
    }

    fn remove(&mut self, id: &Name) {
        let Some(token) = self.by_id.remove(id) else { return };
        let owned = self.by_owner.get_mut(&token.tenant).expect("every token has an owner");
        owned.remove(id);
        if owned.is_empty() {
            self.by_owner.remove(&token.tenant);
            self.tenants_changed = true;
        }
    }

    /// The token that ended last, by the given time; an active token, if there is one.
    fn last(&self, now: Wall) -> Option<&Name> {
        let end = |token: &&TokenRecord| (token.ended_at(now).unwrap_or(Wall(i64::MAX)), token.id.clone());
        self.by_id.values().max_by_key(end).map(|token| &token.id)
    }

    /// Tenants with a token.
    pub(in crate::engine) fn tenants(&self) -> impl Iterator<Item = &Name> {
        self.by_owner.keys().flatten()
    }

    /// True while the token works.
    pub(in crate::engine) fn is_active(&self, id: &Name, now: Wall) -> bool {
        self.by_id.get(id).is_some_and(|token| token.is_active(now))
    }

    fn owned_by<'a>(&'a self, owner: &Option<Name>) -> impl Iterator<Item = &'a TokenRecord> {
        self.by_owner.get(owner).into_iter().flatten().map(|id| &self.by_id[id])
    }

    /// Returns whether the share of the token's owner and the table have space for one more. Forgets ended tokens of the
    /// same owner for it, and ended tokens of any tenant when all tenants together have too many; the oldest ends go first.
    fn make_space(&mut self, now: Wall, token: &TokenRecord, beyond: usize, effects: &mut Effects) -> bool {
        let share = TOKENS_PER_TENANT_MAX + beyond;
        let taken = self.trim(now, &token.tenant, share - 1, effects);
        // The tokens of the whole server have a share of their own, so that its admins can always help.
        let of_server = self.by_owner.get(&None).map_or(0, BTreeSet::len);
        let of_tenants = self.by_id.len() - of_server;
        if taken >= share || token.tenant.is_none() {
            return taken < share;
        }
        let excess = (of_tenants + 1).saturating_sub(TOKENS_MAX + beyond);
        excess == 0 || self.forget_ended_of_tenants(now, excess, effects)
    }

    /// Forgets `count` ended tokens of tenants, those that ended first. Returns false when fewer have ended.
    fn forget_ended_of_tenants(&mut self, now: Wall, count: usize, effects: &mut Effects) -> bool {
        let of_tenants = self.by_id.values().filter(|record| record.tenant.is_some());
        let ended: BTreeSet<(Wall, Name)> =
            of_tenants.filter_map(|record| Some((record.ended_at(now)?, record.id.clone()))).collect();
        if ended.len() < count {
            return false;
        }
        for (_, id) in ended.into_iter().take(count) {
            self.forget(&id, effects);
        }
        true
    }

    /// Forgets ended tokens of an owner, those that ended first, while there are more than `max`. Returns how many are left.
    fn trim(&mut self, now: Wall, owner: &Option<Name>, max: usize, effects: &mut Effects) -> usize {
        let own = || self.owned_by(owner);
        let taken = own().count();
        if taken <= max {
            return taken;
        }
        let last = self.last(now);
        let others = own().filter(|record| Some(&record.id) != last);
        let ended = others.filter_map(|record| Some((record.ended_at(now)?, record.id.clone())));
        let ended: BTreeSet<(Wall, Name)> = ended.collect();
        let forgotten: Vec<Name> = ended.into_iter().take(taken - max).map(|(_, id)| id).collect();
        for id in &forgotten {
            self.forget(id, effects);
        }
        taken - forgotten.len()
    }

    fn forget(&mut self, id: &Name, effects: &mut Effects) {
        effects.changes.push(Change::TokenForgotten(id.clone()));
        self.remove(id);
    }

    /// Forgets tokens that ended before `before`, but not the last one.
    fn sweep(&mut self, now: Wall, before: Wall, effects: &mut Effects) {
        let last = self.last(now);
        let old = |record: &&TokenRecord| {
            Some(&record.id) != last && record.ended_at(now).is_some_and(|at| at < before)
        };
        let old: Vec<Name> =
            self.by_id.values().filter(old).take(SWEPT_MAX).map(|record| record.id.clone()).collect();
        for id in old {
            self.forget(&id, effects);
        }
    }

    /// A server that had tokens has some: without any it would be open.
    pub(in crate::engine) fn check(&self) -> Result<(), String> {
        match self.had_any && self.by_id.is_empty() {
            true => Err("the last token was forgotten".into()),
            false => Ok(()),
        }
    }
}

impl Engine {
    /// Inserts a token, or replaces the one of the same id.
    pub(in crate::engine) fn put_token(
        &mut self,
        now: Now,
        token: TokenRecord,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let is_new = !self.tokens.by_id.contains_key(&token.id);
        let fits = !is_new || self.tokens.make_space(now.wall, &token, 0, effects);
        self.recount_shares_of_tokens();
        if !fits {
            let whose =
                token.tenant.as_ref().map_or("this server".to_owned(), |name| format!("tenant {name}"));
            let message = format!(
                "the share of {whose} is full: {TOKENS_PER_TENANT_MAX} tokens, and {TOKENS_MAX} of all tenants; revoke \
                 tokens that are not needed, or rotate one"
            );
            return Reply::Rejected(reject(RejectionCode::TooMany, message));
        }
        // One secret means one right. The id of the other token stays out: it may be another tenant's.
        if self.tokens().any(|other| other.id != token.id && other.digest == token.digest) {
            let message = "another token has this secret, or had it before it ended; import a different one";
            return Reply::Rejected(reject(RejectionCode::NameTaken, message));
        }
        self.store_token(now, token, origin, effects);
        Reply::Done
    }

    /// Replaces a token by another one with the same owner, in one step. The old one ends at `ends_at`. A rotation without
    /// a grace always works, also when the table is full.
    pub(in crate::engine) fn rotate_token(
        &mut self,
        now: Now,
        old: &Name,
        ends_at: Wall,
        token: TokenRecord,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(record) = self.tokens.by_id.get(old).cloned() else { return Reply::NotFound };
        if !record.is_active(now.wall) || record.tenant != token.tenant {
            return Reply::NotFound;
        }
        if ends_at <= now.wall {
            let owner = token.tenant.clone();
            self.store_token(now, token, origin, effects);
            let reply = self.revoke_token(now, old, owner.as_ref(), origin, effects);
            self.tokens.trim(now.wall, &owner, TOKENS_PER_TENANT_MAX, effects);
            self.recount_shares_of_tokens();
            return reply;
        }
        let fits = self.tokens.make_space(now.wall, &token, ROTATING_MAX, effects);
        self.recount_shares_of_tokens();
        if !fits {
            let message =
                "grace: there is no space for both tokens; rotate without a grace, or revoke a token first";
            return Reply::Rejected(reject(RejectionCode::TooMany, message));
        }
        let expires_at = Some(record.expires_at.map_or(ends_at, |at| at.min(ends_at)));
        let ending = TokenRecord { expires_at, ..record };
        self.store_token(now, token, origin, effects);
        self.store_token(now, ending, origin, effects);
        Reply::Done
    }

    fn store_token(&mut self, now: Now, token: TokenRecord, origin: &Origin, effects: &mut Effects) {
        let detail = format!("token {} with role {}", token.id, token.role.as_str());
        let tenant = token.tenant.clone();
        self.numbers.server_event(now, EventKind::TokenCreated, tenant, Some(origin), detail.into(), effects);
        effects.changes.push(Change::TokenPut(Box::new(token.clone())));
        self.tokens.put(token);
        self.recount_shares_of_tokens();
    }

    fn recount_shares_of_tokens(&mut self) {
        if std::mem::take(&mut self.tokens.tenants_changed) {
            self.recount_shares();
        }
    }

    /// Forgets tokens that ended long ago, but not the last one.
    pub(in crate::engine) fn sweep_tokens(&mut self, now: Now, seen: Wall, effects: &mut Effects) {
        self.tokens.sweep(now.wall, seen.before(ENDED_RETENTION), effects);
        self.recount_shares_of_tokens();
    }

    /// Ends a token. Ending it twice changes nothing.
    pub(in crate::engine) fn revoke_token(
        &mut self,
        now: Now,
        id: &Name,
        tenant: Option<&Name>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(token) = self.tokens.by_id.get_mut(id) else { return Reply::NotFound };
        if tenant.is_some() && token.tenant.as_ref() != tenant {
            return Reply::NotFound;
        }
        if token.revoked_at.is_some() {
            return Reply::Done;
        }
        token.revoked_at = Some(now.wall);
        let (token, detail) = (token.clone(), format!("token {id}"));
        self.numbers.server_event(
            now,
            EventKind::TokenRevoked,
            token.tenant.clone(),
            Some(origin),
            detail.into(),
            effects,
        );
        effects.changes.push(Change::TokenPut(Box::new(token)));
        Reply::Done
    }

    /// Every token, revoked ones included, by id.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.by_id.values()
    }
}
