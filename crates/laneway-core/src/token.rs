//! Tokens: who may call, as whom, and for what.
//!
//! The engine keeps the records so that they change in the same order and the same commits as everything else. It never
//! sees a secret: only its digest.

use std::fmt;

use crate::{Name, Wall};

/// Most tokens a server keeps.
pub const TOKENS_MAX: usize = 10_000;

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
    /// What it is for, in its owner's words.
    pub note: Box<str>,
    /// When it was made.
    pub created_at: Wall,
    /// When it ends by itself.
    pub expires_at: Option<Wall>,
    /// When it was revoked.
    pub revoked_at: Option<Wall>,
}

impl fmt::Debug for TokenRecord {
    /// Leaves the digest out: it has no place in a log.
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

    /// The word users see.
    pub fn word(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Submitter => "submitter",
            Role::Worker => "worker",
            Role::Viewer => "viewer",
        }
    }

    /// The role that `word` names.
    pub fn parse(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == word)
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
