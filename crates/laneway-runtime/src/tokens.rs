//! The methods of the scheduler for tokens, and the role behind the name of an actor.

use laneway_core::command::AdminCommand;
use laneway_core::{Command, Name, Origin, Reply, Role, TokenRecord, Wall};

use crate::scheduler::{Scheduler, Stopped};

impl Scheduler {
    /// Keeps a token, new or changed.
    pub async fn put_token(&self, token: TokenRecord, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::Admin(AdminCommand::PutToken(Box::new(token), origin))).await
    }

    /// Replaces a token by another one with the same owner. The old one ends at `ends_at`.
    pub async fn rotate_token(
        &self,
        old: Name,
        ends_at: Wall,
        token: TokenRecord,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Admin(AdminCommand::RotateToken { old, ends_at, token: Box::new(token), origin }))
            .await
    }

    /// Ends a token.
    pub async fn revoke_token(
        &self,
        tenant: Option<Name>,
        id: Name,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Admin(AdminCommand::RevokeToken { id, tenant, origin })).await
    }

    /// The role of an actor that submitted a job, as of now. `None`: it is no caller (a schedule, a part of the server), or its
    /// right has ended: the token was revoked or has expired, or the server is not open any more.
    pub fn role_of(&self, actor: &Name) -> Option<Role> {
        let tokens = self.tokens();
        if let Some(token) = tokens.get(actor) {
            return token.is_active(self.wall()).then_some(token.role);
        }
        match actor.as_str() {
            // The program that embeds the scheduler.
            "embedded" => Some(Role::Admin),
            "open" if tokens.is_empty() => Some(Role::Admin),
            // A client certificate names its role: `cert:ROLE:TENANT`.
            certificate => Role::parse(certificate.strip_prefix("cert:")?.split(':').next()?),
        }
    }
}
