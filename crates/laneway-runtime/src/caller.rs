//! Who calls, what a call asks for, and why it was turned away: plain facts that the gate of the HTTP side and the surfaces
//! behind it share, so that none of them has to know the other.

use laneway_core::{Name, Origin, Role, Span, Wall};

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

    /// Who asks, for the engine.
    pub fn origin(&self) -> Origin {
        Origin { actor: self.actor.clone(), request: Some(self.request.clone()) }
    }
}

/// What a route of a dialect asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To look at what is the caller's tenant's.
    Look,
    /// To submit and cancel jobs of the caller's tenant.
    Submit,
    /// To change settings of the whole server.
    Administer,
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
