//! Authentication: tokens, client certificates, or no credentials while the server is open.
//!
//! A token is `lw_<id>_<secret>`. The server stores the SHA-256 of the secret: 256 random bits need no slow hash. A
//! lookup takes the same time for known and unknown ids. `authority.rs` has the permissions of each role,
//! `auth/site.rs` checks requests of web pages and for foreign hosts, and `auth/guard.rs` limits bad tokens.

mod guard;
mod identity;
mod import;
mod site;

use std::fmt::Write as _;
use std::net::SocketAddr;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use laneway_core::{Name, Role, TokenRecord, Wall};
use laneway_runtime::TokenTable;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thiserror::Error;

pub use guard::{BadTokens, network_of};
pub use identity::Identity;
pub use import::import;
pub use site::check_site;

use crate::error::{ApiError, Code};

/// The header by which a server-wide caller acts for one tenant.
pub const TENANT_HEADER: &str = "laneway-tenant";
/// The prefix of every token.
const PREFIX: &str = "lw_";
/// The random bytes of a token's id: enough to make 10,000 ids distinct.
const ID_BYTES: usize = 8;
/// Random bytes of a token's secret.
const SECRET_BYTES: usize = 32;

/// The caller, as an extractor for handlers. The gate adds it to the request, for this crate and for the dialects.
#[derive(Clone, Debug)]
pub struct Caller(pub laneway_runtime::Caller);

impl std::ops::Deref for Caller {
    type Target = laneway_runtime::Caller;

    fn deref(&self) -> &laneway_runtime::Caller {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    /// The gate has added the caller.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, ApiError> {
        let caller = parts.extensions.get::<laneway_runtime::Caller>().cloned();
        caller.map(Caller).ok_or_else(|| ApiError::internal("a handler was called without a gate"))
    }
}

/// An authenticated identity, before the request is examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// A token's id, a certificate's identity, or `open`.
    pub actor: Name,
    /// Its role.
    pub role: Role,
    /// The tenant that it is bound to. `None`: the whole server.
    pub bound: Option<Name>,
    /// When it expires.
    pub expires_at: Option<Wall>,
    /// True when it comes from a token.
    pub by_token: bool,
}

impl Principal {
    /// The identity of every caller of an open server.
    pub fn open() -> Principal {
        Principal {
            actor: Name::fixed("open"),
            role: Role::Admin,
            bound: None,
            expires_at: None,
            by_token: false,
        }
    }
}

/// The bearer token of a request.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let token = value.to_str().ok().and_then(|text| text.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthorized("send the token as Authorization: Bearer lw_…")),
    }
}

/// The principal of a token, if the token is valid now.
pub fn verify(tokens: &TokenTable, presented: &str, now: Wall) -> Option<Principal> {
    record_of(tokens, presented).filter(|record| is_active(record, now)).map(|record| Principal {
        actor: record.id.clone(),
        role: record.role,
        bound: record.tenant.clone(),
        expires_at: record.expires_at,
        by_token: true,
    })
}

/// True for a token that was valid once: it has expired or was revoked. Only its owner can learn that.
pub fn has_ended(tokens: &TokenTable, presented: &str, now: Wall) -> bool {
    record_of(tokens, presented).is_some_and(|record| !is_active(record, now))
}

/// The record of a token, valid or not.
fn record_of<'t>(tokens: &'t TokenTable, presented: &str) -> Option<&'t TokenRecord> {
    let (id, secret) =
        presented.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).unwrap_or(("", presented));
    let digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
    let record = match Name::new(id).ok() {
        Some(id) => tokens.get(&id),
        // A string of another form may be an imported secret.
        None => tokens.imported(&digest),
    };
    // The digest of an unknown id is compared as well, so that the response time does not reveal which ids exist.
    let kept = record.map_or([0; 32], |record| record.digest);
    let matches = bool::from(digest.ct_eq(&kept));
    record.filter(|_| matches)
}

/// True while a token is valid.
pub fn is_active(record: &TokenRecord, now: Wall) -> bool {
    record.is_active(now)
}

/// The tenant in the header of a request.
pub fn named_tenant(headers: &HeaderMap, principal: &Principal) -> Result<Option<Name>, ApiError> {
    let Some(value) = headers.get(TENANT_HEADER) else { return Ok(None) };
    tenant_named(value.to_str().unwrap_or(""), principal).map(Some)
}

/// The named tenant, if the caller may act for it.
pub fn tenant_named(text: &str, principal: &Principal) -> Result<Name, ApiError> {
    let tenant = crate::convert::name(TENANT_HEADER, text)?;
    match &principal.bound {
        Some(bound) if *bound != tenant => Err(ApiError::new(
            Code::Forbidden,
            "the token is bound to another tenant; send the request without laneway-tenant",
        )),
        _ => Ok(tenant),
    }
}

/// A new token: the record to store, and the string that is shown once.
pub fn mint(
    tenant: Option<Name>,
    role: Role,
    note: &str,
    created_at: Wall,
    expires_at: Option<Wall>,
) -> Result<(TokenRecord, String), getrandom::Error> {
    let id = hex(&random::<ID_BYTES>()?);
    let secret = hex(&random::<SECRET_BYTES>()?);
    let record = TokenRecord {
        id: Name::new(&id).expect("hex digits are a name"),
        tenant,
        role,
        digest: Sha256::digest(secret.as_bytes()).into(),
        note: note.into(),
        created_at,
        expires_at,
        revoked_at: None,
    };
    Ok((record, format!("{PREFIX}{id}_{secret}")))
}

/// Random bytes from the operating system.
pub fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes every digit");
        text
    })
}

/// The error for a request without a valid token.
pub fn unauthorized(detail: &'static str) -> ApiError {
    ApiError::new(Code::Unauthorized, detail)
}

/// Why the server does not listen on an address.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "cannot listen on {0}: everyone who reaches this address could run jobs, because there is neither a token nor \
     a demand for client certificates. Listen on 127.0.0.1, or make a token first (`laneway token create --role admin`), \
     or set server.tls.client_ca"
)]
pub struct ListenRejected(SocketAddr);

/// Checks whether the server may listen on `addr`. An address that other machines can reach requires tokens or client
/// certificates.
pub fn check_listen(
    addr: SocketAddr,
    tokens_exist: bool,
    tls_client_auth: bool,
) -> Result<(), ListenRejected> {
    if addr.ip().to_canonical().is_loopback() || tokens_exist || tls_client_auth {
        return Ok(());
    }
    Err(ListenRejected(addr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_random_and_kept_as_digests() {
        let (record, text) = mint(None, Role::Admin, "n", Wall(1), None).unwrap();
        let (id, secret) = text.strip_prefix("lw_").unwrap().split_once('_').unwrap();
        assert_eq!((id.len(), secret.len()), (16, 64));
        assert_eq!(record.id.as_str(), id);
        assert_eq!(record.digest, <[u8; 32]>::from(Sha256::digest(secret)));
        assert_ne!(mint(None, Role::Admin, "n", Wall(1), None).unwrap().1, text);
    }

    #[test]
    fn reads_only_bearer_tokens() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers), Ok(None));
        headers.insert(AUTHORIZATION, "bearer  lw_a_b".parse().unwrap());
        assert_eq!(bearer(&headers), Ok(Some("lw_a_b")));
        headers.insert(AUTHORIZATION, "Basic YTpi".parse().unwrap());
        assert_eq!(bearer(&headers).unwrap_err().code, Code::Unauthorized);
    }

    #[test]
    fn listens_for_others_only_with_tokens_or_certificates() {
        for addr in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(check_listen(addr.parse().unwrap(), false, false), Ok(()), "{addr}");
        }
        for addr in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let addr = addr.parse().unwrap();
            assert_eq!(check_listen(addr, false, false), Err(ListenRejected(addr)));
            assert_eq!(check_listen(addr, true, false), Ok(()));
            assert_eq!(check_listen(addr, false, true), Ok(()));
        }
    }
}
