//! Tokens: the credentials of callers.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A token to create.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// `admin`, `operator`, `submitter`, `worker` or `viewer`.
    pub role: String,
    /// The tenant it is bound to, or `*` for the whole server. Defaults to the caller's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its purpose; at most 200 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How long it is valid, such as `"90d"`. Absent: until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "90d")]
    pub expires_in: Option<String>,
    /// A secret that the owner already has: 16 to 512 random printable ASCII characters without spaces. Absent: the
    /// server generates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl fmt::Debug for TokenRequest {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRequest")
            .field("role", &self.role)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

/// The settings of a rotation.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateTokenRequest {
    /// How long the old token stays valid, such as `"1h"`. Absent: it is revoked at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1h")]
    pub grace: Option<String>,
    /// How long the new token is valid. Absent: as long as the old one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "90d")]
    pub expires_in: Option<String>,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its public part. Audit entries name it.
    pub id: String,
    /// The tenant it is bound to; `*` for the whole server.
    pub tenant: String,
    /// Its role.
    pub role: String,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// When it was created.
    pub created_at: String,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
}

/// A new token with its secret. The secret is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenSecret {
    /// Send it as `Authorization: Bearer …`. The server stores only a digest. Absent when the request contained the
    /// secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The token.
    pub token: Token,
    /// The token that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

impl fmt::Debug for TokenSecret {
    /// Omits the secret, so that it does not get into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSecret").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Tokens, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// The caller, as the server authenticated it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// A token's id, `cert:…` for a client certificate, or `open`.
    pub actor: String,
    /// The role of the caller.
    pub role: String,
    /// The tenant it is bound to; `*` for the whole server.
    pub tenant: String,
}
