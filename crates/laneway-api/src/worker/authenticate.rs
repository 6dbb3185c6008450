//! Authenticates workers: by a token of the tenant with the role `worker` (or `admin`), or by a client certificate.

use std::sync::OnceLock;

use axum::http::HeaderMap;
use laneway_core::{Name, Role};
use laneway_runtime::Caller;
use laneway_wire::frame::{AuthMode, ErrorCode, Handshake};

use super::handshake::{Authenticate, HandshakeRejection};
use super::messages::Member;
use crate::api::Api;
use crate::auth;
use crate::error::{ApiError, Code};
use crate::gate;
use crate::serve::Peer;

/// The authentication of one connection.
pub struct WorkerAuthenticator {
    api: Api,
    /// The headers of the upgrade request, with its token and its host.
    headers: HeaderMap,
    peer: Peer,
    request: Name,
    caller: OnceLock<Caller>,
}

impl WorkerAuthenticator {
    /// The authentication of the connection that this request opened.
    pub fn new(api: Api, headers: HeaderMap, peer: Peer, request: Name) -> WorkerAuthenticator {
        WorkerAuthenticator { api, headers, peer, request, caller: OnceLock::new() }
    }

    /// The authenticated caller.
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.get()
    }

    fn identify(&self, tenant: &str, handshake: &Handshake) -> Result<Caller, HandshakeRejection> {
        let by_certificate = handshake.auth.mode == AuthMode::Mtls;
        let has_certificate = self.peer.identity.is_some();
        let demanded = self.api.config.current().workers.require_certificate;
        let shown = by_certificate && has_certificate;
        if (by_certificate || demanded) && !shown {
            let message = "this server requires a client certificate; set `auth.mode` to `mtls`";
            return Err(HandshakeRejection::new(ErrorCode::AuthMtlsRequired, message));
        }
        let token = match handshake.auth.mode {
            AuthMode::Mtls => Ok(None),
            AuthMode::Token => match &handshake.auth.token {
                Some(token) => Ok(Some(token.0.as_str())),
                None => auth::bearer(&self.headers),
            },
        };
        gate::identify_worker(&self.api, &self.headers, &self.peer, token, tenant, &self.request)
            .map_err(|error| rejection_of(&error))
    }
}

impl Authenticate for WorkerAuthenticator {
    fn admit(&self, tenant: &str, handshake: &Handshake) -> Result<Member, HandshakeRejection> {
        let caller = self.identify(tenant, handshake)?;
        if !matches!(caller.role, Role::Worker | Role::Admin) {
            let message = format!(
                "the role {} may not run jobs; use a token with the role worker",
                caller.role.as_str()
            );
            return Err(HandshakeRejection::new(ErrorCode::SessionDenied, message));
        }
        let worker = Name::new(&handshake.worker.id).map_err(|error| {
            HandshakeRejection::new(ErrorCode::SessionDenied, format!("`worker.id` {error}"))
        })?;
        let member = Member {
            tenant: caller.tenant.clone(),
            worker,
            version: handshake.worker.version.as_str().into(),
            hostname: handshake.worker.hostname.as_str().into(),
        };
        // A connection has only one successful handshake.
        let _ = self.caller.set(caller);
        Ok(member)
    }
}

fn rejection_of(error: &ApiError) -> HandshakeRejection {
    let code = match error.code {
        Code::Unauthorized | Code::TooManyAttempts => ErrorCode::AuthInvalidToken,
        Code::Internal => ErrorCode::Internal,
        _ => ErrorCode::SessionDenied,
    };
    HandshakeRejection::new(code, error.detail.to_string())
}
