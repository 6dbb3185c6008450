//! Tokens: kept and ended in the same order and the same commits as everything else.
//!
//! Each tenant has a share of the table, and so have the tokens of the whole server: no tenant can keep others from
//! making or rotating tokens. A token that has ended is forgotten after a while, or as soon as its share is full. The last
//! one is never forgotten: a server without any token is open to everybody on its machine.

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
}

impl Tokens {
    /// Keeps a token, new or changed. True when other tenants have tokens than before.
    pub(in crate::engine) fn put(&mut self, token: TokenRecord) -> bool {
        let moves = self.by_id.get(&token.id).is_some_and(|known| known.tenant != token.tenant);
        let was_last = moves && self.remove(&token.id);
        let owned = self.by_owner.entry(token.tenant.clone()).or_default();
        let is_first = owned.is_empty();
        owned.insert(token.id.clone());
        self.by_id.insert(token.id.clone(), token);
        self.had_any = true;
        is_first || was_last
    }

    /// True when its tenant has none any more.
    fn remove(&mut self, id: &Name) -> bool {
        let Some(token) = self.by_id.remove(id) else { return false };
        let owned = self.by_owner.get_mut(&token.tenant).expect("every token has an owner");
        owned.remove(id);
        let was_last = owned.is_empty();
        if was_last {
            self.by_owner.remove(&token.tenant);
        }
        was_last
    }

    /// The token that ended last, by the given time; one that works, if any does.
    fn last(&self, now: Wall) -> Option<&Name> {
        let end = |token: &&TokenRecord| (token.ended_at(now).unwrap_or(Wall(i64::MAX)), token.id.clone());
        self.by_id.values().max_by_key(end).map(|token| &token.id)
    }

    /// Tenants with a token.
    pub(in crate::engine) fn tenants(&self) -> impl Iterator<Item = &Name> {
        self.by_owner.keys().flatten()
    }

    fn owned_by<'a>(&'a self, owner: &Option<Name>) -> impl Iterator<Item = &'a TokenRecord> {
        self.by_owner.get(owner).into_iter().flatten().map(|id| &self.by_id[id])
    }
}

impl Engine {
    /// Keeps a token, new or changed.
    pub(in crate::engine) fn put_token(
        &mut self,
        now: Now,
        token: TokenRecord,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        if !self.tokens.by_id.contains_key(&token.id) && !self.has_room_for_token(now, &token, 0, effects) {
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
        self.keep_token(now, token, origin, effects);
        Reply::Done
    }

    /// Replaces a token by another one with the same owner, in one step. The old one ends at `ends_at`. At once always
    /// works, also where the table is full.
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
            self.keep_token(now, token, origin, effects);
            let reply = self.revoke_token(now, old, owner.as_ref(), origin, effects);
            self.trim_tokens(now, &owner, TOKENS_PER_TENANT_MAX, effects);
            return reply;
        }
        if !self.has_room_for_token(now, &token, ROTATING_MAX, effects) {
            let message =
                "grace: there is no room for both tokens; rotate without a grace, or revoke a token first";
            return Reply::Rejected(reject(RejectionCode::TooMany, message));
        }
        let expires_at = Some(record.expires_at.map_or(ends_at, |at| at.min(ends_at)));
        let ending = TokenRecord { expires_at, ..record };
        self.keep_token(now, token, origin, effects);
        self.keep_token(now, ending, origin, effects);
        Reply::Done
    }

    fn keep_token(&mut self, now: Now, token: TokenRecord, origin: &Origin, effects: &mut Effects) {
        let detail = format!("token {} with role {}", token.id, token.role.as_str());
        let tenant = token.tenant.clone();
        self.numbers.server_event(now, EventKind::TokenCreated, tenant, Some(origin), detail.into(), effects);
        effects.changes.push(Change::TokenPut(Box::new(token.clone())));
        if self.tokens.put(token) {
            self.recount_shares();
        }
    }

    /// Is there room in the share of the token's owner, and in all? Ended tokens of the same owner make room, and where all
    /// tenants together have enough, ended tokens of any tenant; those that ended first go first.
    fn has_room_for_token(
        &mut self,
        now: Now,
        token: &TokenRecord,
        beyond: usize,
        effects: &mut Effects,
    ) -> bool {
        let share = TOKENS_PER_TENANT_MAX + beyond;
        let taken = self.trim_tokens(now, &token.tenant, share - 1, effects);
        // The tokens of the whole server have a share of their own, so that its admins can always help.
        let of_server = self.tokens.by_owner.get(&None).map_or(0, BTreeSet::len);
        let of_tenants = self.tokens.by_id.len() - of_server;
        if taken >= share || token.tenant.is_none() {
            return taken < share;
        }
        let due = (of_tenants + 1).saturating_sub(TOKENS_MAX + beyond);
        due == 0 || self.forget_ended_of_tenants(now, due, effects)
    }

    /// Forgets so many ended tokens of tenants, those that ended first first. False: not so many have ended.
    fn forget_ended_of_tenants(&mut self, now: Now, due: usize, effects: &mut Effects) -> bool {
        let of_tenants = self.tokens.by_id.values().filter(|record| record.tenant.is_some());
        let ended: BTreeSet<(Wall, Name)> =
            of_tenants.filter_map(|record| Some((record.ended_at(now.wall)?, record.id.clone()))).collect();
        if ended.len() < due {
            return false;
        }
        for (_, id) in ended.into_iter().take(due) {
            self.forget_token(&id, effects);
        }
        true
    }

    /// Forgets ended tokens of an owner, those that ended first first, while there are more than `max`. Gives how many are left.
    fn trim_tokens(&mut self, now: Now, owner: &Option<Name>, max: usize, effects: &mut Effects) -> usize {
        let own = || self.tokens.owned_by(owner);
        let taken = own().count();
        if taken <= max {
            return taken;
        }
        let last = self.tokens.last(now.wall);
        let others = own().filter(|record| Some(&record.id) != last);
        let ended = others.filter_map(|record| Some((record.ended_at(now.wall)?, record.id.clone())));
        let ended: BTreeSet<(Wall, Name)> = ended.collect();
        let due: Vec<Name> = ended.into_iter().take(taken - max).map(|(_, id)| id).collect();
        for id in &due {
            self.forget_token(id, effects);
        }
        taken - due.len()
    }

    fn forget_token(&mut self, id: &Name, effects: &mut Effects) {
        effects.changes.push(Change::TokenForgotten(id.clone()));
        if self.tokens.remove(id) {
            self.recount_shares();
        }
    }

    /// Forgets tokens that ended long ago, but not the last one.
    pub(in crate::engine) fn sweep_tokens(&mut self, now: Now, seen: Wall, effects: &mut Effects) {
        let before = seen.before(ENDED_RETENTION);
        let last = self.tokens.last(now.wall);
        let old = |record: &&TokenRecord| {
            Some(&record.id) != last && record.ended_at(now.wall).is_some_and(|at| at < before)
        };
        let old: Vec<Name> =
            self.tokens.by_id.values().filter(old).take(SWEPT_MAX).map(|record| record.id.clone()).collect();
        for id in old {
            self.forget_token(&id, effects);
        }
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

    /// True while the token works.
    pub(in crate::engine) fn token_holds(&self, id: &Name, now: Wall) -> bool {
        self.tokens.by_id.get(id).is_some_and(|token| token.is_active(now))
    }

    /// A server that had tokens has some: without any it would be open.
    pub(in crate::engine) fn check_tokens(&self) -> Result<(), String> {
        match self.tokens.had_any && self.tokens.by_id.is_empty() {
            true => Err("the last token was forgotten".into()),
            false => Ok(()),
        }
    }

    /// Every token, revoked ones included, by id.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.by_id.values()
    }
}
