//! The caller of a request, the right that a route requires, and the reasons for which a call is denied: the types that the
//! gate of the HTTP API and the dialects behind it share, so that neither depends on the other.

use std::fmt;
use std::sync::Arc;

use laneway_core::{Name, Origin, Role, Span, Wall};
use thiserror::Error;

use crate::scheduler::TokenTable;

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// A token's id, a certificate's identity, or `open`.
    pub actor: Name,
    /// Its role.
    pub role: Role,
    /// The tenant it is bound to. `None`: server-wide.
    pub bound: Option<Name>,
    /// The tenant that it acts for.
    pub tenant: Name,
    /// True when it sees this tenant's things only: it is bound to the tenant, or named it for this call.
    pub sees_one_tenant: bool,
    /// The call's id.
    pub request: Name,
    /// When the right to call ends by itself.
    pub expires_at: Option<Wall>,
    /// True when the right comes from a token, which may be revoked.
    pub by_token: bool,
}

impl Caller {
    /// The tenant whose data the caller sees. `None`: every tenant.
    pub fn scope(&self) -> Option<&Name> {
        self.sees_one_tenant.then_some(&self.tenant)
    }

    /// True when the caller may use what all tenants share.
    pub fn is_server_wide(&self) -> bool {
        self.bound.is_none()
    }

    /// True while the right to call still holds, for calls that last: its token was not revoked and has not expired; a
    /// server that was open has no token yet.
    pub fn is_still_allowed(&self, tokens: &TokenTable, now: Wall) -> bool {
        if self.by_token {
            return tokens.get(&self.actor).is_some_and(|record| record.is_active(now));
        }
        // A certificate is as good as before; an open server is open until the first token is made.
        self.actor.as_str() != "open" || tokens.is_empty()
    }

    /// The id of the token that the right comes from, if it comes from one.
    pub fn token(&self) -> Option<&Name> {
        self.by_token.then_some(&self.actor)
    }

    /// The origin of the caller's commands.
    pub fn origin(&self) -> Origin {
        Origin { actor: self.actor.clone(), request: Some(self.request.clone()) }
    }
}

/// The right that a route of a dialect requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// None: every caller may call it, and it shows nothing that belongs to a tenant.
    Anyone,
    /// None yet: the caller authenticates later, in the messages that follow the request, with the [`Authenticator`] in the
    /// request's extensions.
    Converse,
    /// To read data of the caller's tenant.
    Look,
    /// To submit and cancel jobs of the caller's tenant.
    Submit,
    /// To take and run jobs of the caller's tenant.
    Work,
    /// To report on a job that the caller runs: heartbeats, progress, the end. As `Work`, but such a call
    /// is not counted by the rate limit: a lease must not end because another client of the same host calls too often.
    Report,
    /// To operate the workers of the caller's tenant.
    Operate,
    /// To change settings of the whole server.
    Administer,
}

/// The credentials of a client that authenticates after its connection was accepted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The token, if they have one.
    pub token: Option<&'a str>,
    /// The tenant they want to act for, if they name one.
    pub tenant: Option<&'a str>,
}

/// Authenticates a client that has a connection already. It knows the connection, and applies the rules of the gate.
#[derive(Clone)]
pub struct Authenticator(Arc<Judge>);

type Judge = dyn Fn(Credentials<'_>) -> Result<Caller, Denied> + Send + Sync;

impl Authenticator {
    /// An authenticator with this rule.
    pub fn new(
        judge: impl Fn(Credentials<'_>) -> Result<Caller, Denied> + Send + Sync + 'static,
    ) -> Authenticator {
        Authenticator(Arc::new(judge))
    }

    /// The caller, or why it is denied.
    pub fn admit(&self, credentials: Credentials<'_>) -> Result<Caller, Denied> {
        (self.0)(credentials)
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

/// Why a body is not read to its end. The gate ends a body with this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyDelay {
    /// It comes too slowly.
    #[error("the body comes too slowly")]
    Late,
    /// Its tenant or its token has as many large bodies on their way as its share allows.
    #[error("too many large bodies are on their way")]
    Busy,
}

/// Why a call did not reach its handler. Each dialect has its own response for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The call has no token, and needs one.
    MissingToken,
    /// The token is not known.
    BadToken,
    /// The token was valid, and has expired or was revoked.
    EndedToken,
    /// Too many bad tokens came from this address.
    TooManyAttempts {
        /// When a retry may succeed.
        retry_after: Span,
    },
    /// The token may not do this; says what is missing.
    Forbidden(String),
    /// The request is for another host; says which.
    Misdirected(String),
    /// A web page of another origin sent it; why, and the remedy.
    ForeignOrigin(String),
    /// Too many requests came from this address.
    TooManyRequests {
        /// How many are allowed in one window.
        max: u32,
        /// How long a window is.
        window: Span,
    },
    /// The path is known, but not with this method.
    UnknownMethod,
    /// There is no such path.
    UnknownPath,
    /// An internal error; the log has the details.
    Internal,
}
