//! Browser profiles: what a browser keeps between its starts, and how it appears to pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::object;

/// A browser profile. The server never shows the password of its proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Profile {
    /// Its id, unique within its tenant.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// `active`, or `trashed`: it is in the recycle bin.
    pub status: String,
    /// True while its browser is open.
    pub open: bool,
    /// The proxy for all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProfileProxy>,
    /// The size of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<ProfileWindow>,
    /// The user agent that pages see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// The language that pages see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// The time zone that pages see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The profile that it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<String>,
    /// When it was created.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
    /// When it was put into the recycle bin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trashed_at: Option<String>,
}

/// The proxy of a profile, without its password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileProxy {
    /// `http`, `https` or `socks5`.
    pub scheme: String,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// True when the server sends a password to it.
    pub has_password: bool,
}

/// The size of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileWindow {
    /// The width in pixels, 100 to 10000.
    pub width: u32,
    /// The height in pixels, 100 to 10000.
    pub height: u32,
}

/// One page of a list of profiles, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileList {
    /// The profiles.
    pub profiles: Vec<Profile>,
    /// The number of profiles on all pages.
    pub total: u64,
    /// The cursor of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A new profile.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileRequest {
    /// Its id: lower-case letters, digits, `_` and `-`. Defaults to a random one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "shop")]
    pub id: Option<String>,
    /// Its name, for people. Defaults to the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The proxy for all requests. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub proxy: Option<ProxyRequest>,
    /// The size of the window. Defaults to that of Chromium.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub window: Option<ProfileWindow>,
    /// The user agent that pages see. Defaults to that of Chromium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// The language that pages see, such as `de-DE`. Defaults to that of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "de-DE")]
    pub locale: Option<String>,
    /// The time zone that pages see, such as `Europe/Berlin`. Defaults to that of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

/// The changes to a profile. An absent field keeps its value, `null` removes it. An open browser keeps the values that it
/// was started with.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfilePatchRequest {
    /// A new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another proxy. Without a password, a proxy with the address and the user of the present one keeps its password.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable_object")]
    #[schema(value_type = Option<ProxyRequest>)]
    pub proxy: Option<Option<ProxyRequest>>,
    /// Another size of the window.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable_object")]
    #[schema(value_type = Option<ProfileWindow>)]
    pub window: Option<Option<ProfileWindow>>,
    /// Another user agent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub user_agent: Option<Option<String>>,
    /// Another language.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub locale: Option<Option<String>>,
    /// Another time zone.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub time_zone: Option<Option<String>>,
}

/// A proxy.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyRequest {
    /// `http`, `https` or `socks5`. Defaults to `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The host.
    #[schema(example = "proxy.example")]
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password. It is stored encrypted, and never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

impl std::fmt::Debug for ProxyRequest {
    /// Without the password: requests may be logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ProxyRequest { scheme, host, port, username, password } = self;
        f.debug_struct("ProxyRequest")
            .field("scheme", scheme)
            .field("host", host)
            .field("port", port)
            .field("username", username)
            .field("has_password", &password.is_some())
            .finish()
    }
}
