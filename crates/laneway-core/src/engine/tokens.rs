//! Tokens: kept and ended in the same order and the same commits as everything else.

use super::Engine;
use super::submit::refuse;
use crate::token::TOKENS_MAX;
use crate::{Change, Effects, EventKind, Name, Now, Origin, RefusalCode, Reply, TokenRecord};

impl Engine {
    /// Keeps a token, new or changed.
    pub(super) fn put_token(
        &mut self,
        now: Now,
        token: TokenRecord,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        if self.tokens.len() >= TOKENS_MAX && !self.tokens.contains_key(&token.id) {
            let message = format!(
                "a server keeps at most {TOKENS_MAX} tokens, revoked ones included; rotate instead of adding"
            );
            return Reply::Refused(refuse(RefusalCode::TooMany, message));
        }
        let detail = format!("token {} with role {}", token.id, token.role.word());
        self.house_event(
            now,
            EventKind::TokenCreated,
            token.tenant.clone(),
            Some(origin),
            detail.into(),
            effects,
        );
        effects.changes.push(Change::TokenPut(Box::new(token.clone())));
        self.tokens.insert(token.id.clone(), token);
        Reply::Done
    }

    /// Ends a token. Ending it twice changes nothing.
    pub(super) fn revoke_token(
        &mut self,
        now: Now,
        id: &Name,
        tenant: Option<&Name>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(token) = self.tokens.get_mut(id) else { return Reply::NotFound };
        if tenant.is_some() && token.tenant.as_ref() != tenant {
            return Reply::NotFound;
        }
        if token.revoked_at.is_some() {
            return Reply::Done;
        }
        token.revoked_at = Some(now.wall);
        let (token, detail) = (token.clone(), format!("token {id}"));
        self.house_event(
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
        self.tokens.values()
    }
}
