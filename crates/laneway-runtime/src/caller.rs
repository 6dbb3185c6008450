//! Who calls, what a call asks for, and why it was turned away: plain facts that the gate of the HTTP side and the surfaces
//! behind it share, so that none of them has to know the other.

use std::fmt;
use std::sync::Arc;

use laneway_core::{Name, Origin, Role, Span, Wall};
use thiserror::Error;

use crate::scheduler::TokenTable;

/// Who calls, as whom, and in which call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// A token's id, a certificate's identity, or `open`.
    pub actor: Name,
    /// What the caller may do.
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
    /// Whose things the caller sees. `None`: every tenant's.
    pub fn scope(&self) -> Option<&Name> {
        self.sees_one_tenant.then_some(&self.tenant)
    }

    /// True when the caller may touch what every tenant shares.
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

    /// Who asks, for the engine.
    pub fn origin(&self) -> Origin {
        Origin { actor: self.actor.clone(), request: Some(self.request.clone()) }
    }
}

/// What a route of a dialect asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Nothing yet: who calls is said later, in what follows the request, to the [`Doorkeeper`] that comes with it.
    Converse,
    /// To look at what is the caller's tenant's.
    Look,
    /// To submit and cancel jobs of the caller's tenant.
    Submit,
    /// To take and run jobs of the caller's tenant.
    Work,
    /// To report on a job that the caller has taken: that it runs, how far it is, how it ended. As `Work`, but such a call
    /// is never counted with others: a lease must not end because somebody on the same host asks for work too often.
    Report,
    /// To run the place for the caller's tenant: to say what its workers do.
    Operate,
    /// To change settings of the whole server.
    Administer,
}

/// What somebody who is let in later says of themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The token, if they have one.
    pub token: Option<&'a str>,
    /// The tenant they want to act for, if they name one.
    pub tenant: Option<&'a str>,
}

/// Says who somebody is who has a connection already. It knows the connection, and judges as the gate does.
#[derive(Clone)]
pub struct Authenticator(Arc<Judge>);

type Judge = dyn Fn(Credentials<'_>) -> Result<Caller, Denied> + Send + Sync;

impl Authenticator {
    /// One that judges so.
    pub fn new(
        judge: impl Fn(Credentials<'_>) -> Result<Caller, Denied> + Send + Sync + 'static,
    ) -> Authenticator {
        Authenticator(Arc::new(judge))
    }

    /// Who it is, or why not.
    pub fn admit(&self, credentials: Credentials<'_>) -> Result<Caller, Denied> {
        (self.0)(credentials)
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doorkeeper")
    }
}

/// Why a body is not read to its end. The gate gives a body this error; whoever reads it finds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyDelay {
    /// It comes too slowly.
    #[error("the body comes too slowly")]
    Late,
    /// Its tenant or its token has as many large bodies on their way as its share allows.
    #[error("too many large bodies are on their way")]
    Busy,
}

/// Why a call did not reach its handler. Each dialect has its own words for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No token came, and without one nothing is open.
    MissingToken,
    /// The token is not known, has expired or was revoked.
    BadToken,
    /// Too many bad tokens came from this address.
    TooManyAttempts {
        /// When asking again may help.
        retry_after: Span,
    },
    /// The token may not do this; says what is missing.
    Forbidden(String),
    /// The request is for another host, or a page of another origin asks; says which.
    Misdirected(String),
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
    /// Something broke inside; the log says what.
    Internal,
}
