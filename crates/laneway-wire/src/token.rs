//! Tokens: who may call, as whom, and for what.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A token to make.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// `admin`, `operator`, `submitter`, `worker` or `viewer`.
    pub role: String,
    /// The tenant it is bound to, or `*` for the whole server. Defaults to the caller's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it is for, in its owner's words; at most 200 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How long it lives, such as `"90d"`. Absent: until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "90d")]
    pub expires_in: Option<String>,
    /// A secret that its owner has already: 16 to 512 printable ASCII characters without spaces, random ones. Absent: the
    /// server draws one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl fmt::Debug for TokenRequest {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRequest")
            .field("role", &self.role)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

/// How a token is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateTokenRequest {
    /// How long the old token still works, such as `"1h"`. Absent: it is revoked at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1h")]
    pub grace: Option<String>,
    /// How long the new token lives. Absent: as long as the old one was made to live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "90d")]
    pub expires_in: Option<String>,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its public part; what audit entries name.
    pub id: String,
    /// The tenant it is bound to; `*` for the whole server.
    pub tenant: String,
    /// What it may do.
    pub role: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// When it was made.
    pub created_at: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
}

/// A new token with its secret, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenSecret {
    /// What to send as `Authorization: Bearer …`. The server keeps a digest only. Absent when the call brought the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The token.
    pub token: Token,
    /// The token that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

impl fmt::Debug for TokenSecret {
    /// Leaves the secret out: it has no place in a log.
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

/// Who the server takes the caller for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// A token's id, `cert:…` for a client certificate, or `open`.
    pub actor: String,
    /// What the caller may do.
    pub role: String,
    /// The tenant it is bound to; `*` for the whole server.
    pub tenant: String,
}
