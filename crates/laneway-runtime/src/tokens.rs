//! The methods of the scheduler for tokens.

use laneway_core::command::AdminCommand;
use laneway_core::{Command, Name, Origin, Reply, TokenRecord, Wall};

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
}
