//! Tokens: who may call, as whom, and for what.
//!
//! The engine keeps the records so that they change in the same order and the same commits as everything else. It never
//! sees a secret: only its digest.

use std::fmt;

use crate::{Name, Wall};

/// What the id of a token begins with whose secret its owner brought.
pub const IMPORTED_PREFIX: &str = "imported-";
/// Most tokens of all tenants together. Tokens of the whole server have a share of their own.
pub const TOKENS_MAX: usize = 10_000;
/// Most tokens of one tenant, and of the whole server.
pub const TOKENS_PER_TENANT_MAX: usize = 1_000;

/// A token as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its public part; what audit lines name.
    pub id: Name,
    /// The tenant it is bound to. `None`: the whole server, every tenant.
    pub tenant: Option<Name>,
    /// What it may do.
    pub role: Role,
    /// SHA-256 of the secret part.
    pub digest: [u8; 32],
    /// Its purpose, as its owner describes it.
    pub note: Box<str>,
    /// When it was created.
    pub created_at: Wall,
    /// When it ends by itself.
    pub expires_at: Option<Wall>,
    /// When it was revoked.
    pub revoked_at: Option<Wall>,
}

impl TokenRecord {
    /// When the token ended, by the given time: it was revoked, or has expired.
    pub fn ended_at(&self, now: Wall) -> Option<Wall> {
        let expired = self.expires_at.filter(|at| *at <= now);
        [self.revoked_at, expired].into_iter().flatten().min()
    }

    /// True while it works: it was not revoked and has not expired.
    pub fn is_active(&self, now: Wall) -> bool {
        self.ended_at(now).is_none()
    }

    /// True when its owner brought the secret: then the digest is of the whole text that a caller presents.
    pub fn is_imported(&self) -> bool {
        self.id.as_str().starts_with(IMPORTED_PREFIX)
    }
}

impl fmt::Debug for TokenRecord {
    /// Leaves the digest out, because it must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRecord")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("role", &self.role)
            .field("expires_at", &self.expires_at)
            .field("revoked_at", &self.revoked_at)
            .finish_non_exhaustive()
    }
}

/// What a token may do. What each route asks for is in `laneway-api`'s `auth.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// Everything, tokens and settings included.
    Admin = 0,
    /// Jobs and lanes: pause, resume, limits, cancel, retry.
    Operator = 1,
    /// Submit, see and cancel jobs.
    Submitter = 2,
    /// Take and run jobs.
    Worker = 3,
    /// See.
    Viewer = 4,
}

impl Role {
    /// Every role, in the order of their codes.
    pub const ALL: [Role; 5] = [Role::Admin, Role::Operator, Role::Submitter, Role::Worker, Role::Viewer];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Submitter => "submitter",
            Role::Worker => "worker",
            Role::Viewer => "viewer",
        }
    }

    /// The role with this name.
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The role of a stored code.
    pub fn from_code(code: u8) -> Option<Role> {
        Role::ALL.get(usize::from(code)).copied()
    }
}
