//! A profile: what is set of it, and the rules for each field.

use std::fmt;

use laneway_core::{Name, Timing, Wall};
use laneway_runtime::config::Secret;
use serde_json::{Value, json};

use crate::kinds::{BadPayload, PayloadProblem};
use crate::proxy::Proxy;

/// Longest id of a profile, in bytes.
pub const ID_LEN_MAX: usize = 64;
/// Longest name of a profile, in bytes.
pub const NAME_LEN_MAX: usize = 256;
/// Longest user agent, in bytes.
const USER_AGENT_LEN_MAX: usize = 512;
/// Longest locale, in bytes.
const LOCALE_LEN_MAX: usize = 35;
/// Smallest side of a window, in pixels.
pub const WINDOW_SIDE_MIN: u32 = 100;
/// Largest side of a window, in pixels.
pub const WINDOW_SIDE_MAX: u32 = 10_000;
const WINDOW_SIDE: std::ops::RangeInclusive<u32> = WINDOW_SIDE_MIN..=WINDOW_SIDE_MAX;

/// The id of a profile, unique within its tenant: lower-case letters, digits, `_` and `-`. It is the name of a folder, so
/// nothing else is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileId(Name);

impl ProfileId {
    /// Reads an id.
    pub fn parse(text: &str) -> Result<ProfileId, BadPayload> {
        let bad = |problem, message: String| Err(BadPayload::new("profileId", problem, message));
        if text.len() > ID_LEN_MAX {
            let message = format!("has {} bytes; at most {ID_LEN_MAX} are allowed", text.len());
            return bad(PayloadProblem::TooLong, message);
        }
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        let starts = text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
        match Name::new(text) {
            Ok(name) if starts && text.bytes().all(is_plain) => Ok(ProfileId(name)),
            _ => {
                let message = format!(
                    "is {text:?}; write lower-case letters, digits, _ and -, and begin with a letter or digit"
                );
                bad(PayloadProblem::Range, message)
            }
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The id as a name.
    pub fn name(&self) -> &Name {
        &self.0
    }
}

impl fmt::Display for ProfileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a profile can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileStatus {
    /// It can be used.
    Active,
    /// It is in the recycle bin.
    Trashed,
}

impl ProfileStatus {
    /// The name that users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProfileStatus::Active => "active",
            ProfileStatus::Trashed => "trashed",
        }
    }
}

/// A profile as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its id.
    pub id: ProfileId,
    /// What users set of it.
    pub fields: ProfileFields,
    /// When it was put into the recycle bin. `None`: it is not there.
    pub trashed_at: Option<Wall>,
    /// The profile that it is a copy of.
    pub cloned_from: Option<ProfileId>,
    /// When it was created.
    pub created_at: Wall,
    /// When it was last changed.
    pub updated_at: Wall,
    /// Grows with every change.
    pub version: u64,
    /// The job that made it, if one did.
    pub(crate) made_by: Option<String>,
}

impl Profile {
    /// Whether it can be used.
    pub fn status(&self) -> ProfileStatus {
        match self.trashed_at {
            None => ProfileStatus::Active,
            Some(_) => ProfileStatus::Trashed,
        }
    }
}

/// What users set of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileFields {
    /// Its name, for people.
    pub name: String,
    /// The proxy for all requests. `None`: no proxy.
    pub proxy: Option<ProxySpec>,
    /// Width and height of the window in pixels. `None`: Chromium's own.
    pub window: Option<(u32, u32)>,
    /// The user agent that pages see. `None`: Chromium's own.
    pub user_agent: Option<String>,
    /// The language that pages see, such as `de-DE`. `None`: the system's.
    pub locale: Option<String>,
    /// The time zone that pages see, such as `Europe/Berlin`. `None`: the system's.
    pub time_zone: Option<String>,
}

impl ProfileFields {
    /// Checks every field.
    pub fn validate(&self) -> Result<(), BadPayload> {
        let ProfileFields { name, proxy, window, user_agent, locale, time_zone } = self;
        check_text("name", name, NAME_LEN_MAX)?;
        if let Some(proxy) = proxy {
            proxy.to_proxy()?;
        }
        if let Some((width, height)) = window
            && !(WINDOW_SIDE.contains(width) && WINDOW_SIDE.contains(height))
        {
            let message = format!(
                "is {width} × {height}; each side has from {} to {} pixels",
                WINDOW_SIDE.start(),
                WINDOW_SIDE.end()
            );
            return Err(BadPayload::new("window", PayloadProblem::Range, message));
        }
        if let Some(user_agent) = user_agent {
            check_text("userAgent", user_agent, USER_AGENT_LEN_MAX)?;
            if !user_agent.is_ascii() {
                let message = "holds a character that is not ASCII; headers cannot have it";
                return Err(BadPayload::new("userAgent", PayloadProblem::Range, message));
            }
        }
        if let Some(locale) = locale
            && !is_locale(locale)
        {
            let message = format!("is {locale:?}; write a language tag, such as \"de-DE\"");
            return Err(BadPayload::new("locale", PayloadProblem::Range, message));
        }
        if let Some(zone) = time_zone
            && !Timing::knows_zone(zone)
        {
            let message = format!("is {zone:?}; write an IANA name, such as \"Europe/Berlin\"");
            return Err(BadPayload::new("timeZone", PayloadProblem::Range, message));
        }
        Ok(())
    }
}

/// A change of a profile. A field that is `None` stays as it is; `Some(None)` removes its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfilePatch {
    /// Its name.
    pub name: Option<String>,
    /// The proxy. A proxy without a password, with the user, host and port of the present one, keeps the present password.
    pub proxy: Option<Option<ProxySpec>>,
    /// The window.
    pub window: Option<Option<(u32, u32)>>,
    /// The user agent.
    pub user_agent: Option<Option<String>>,
    /// The language.
    pub locale: Option<Option<String>>,
    /// The time zone.
    pub time_zone: Option<Option<String>>,
}

impl ProfilePatch {
    /// The fields with this change.
    pub(super) fn over(self, current: &ProfileFields) -> ProfileFields {
        let ProfilePatch { name, proxy, window, user_agent, locale, time_zone } = self;
        let current = current.clone();
        let proxy = proxy.map(|proxy| proxy.map(|proxy| proxy.keeping_password(current.proxy.as_ref())));
        ProfileFields {
            name: name.unwrap_or(current.name),
            proxy: proxy.unwrap_or(current.proxy),
            window: window.unwrap_or(current.window),
            user_agent: user_agent.unwrap_or(current.user_agent),
            locale: locale.unwrap_or(current.locale),
            time_zone: time_zone.unwrap_or(current.time_zone),
        }
    }
}

/// A proxy as users write it. Its password is never printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySpec {
    /// `http`, `https` or `socks5`.
    pub scheme: String,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
}

impl ProxySpec {
    /// The proxy, if every field is valid.
    pub fn to_proxy(&self) -> Result<Proxy, BadPayload> {
        let password = self.password.as_ref().map(Secret::reveal);
        let made = Proxy::new(&self.scheme, &self.host, self.port, self.username.as_deref(), password);
        made.map_err(|bad| BadPayload::new(format!("proxy.{}", bad.field), PayloadProblem::Range, bad.reason))
    }

    /// The proxy as callers see it: whether it has a password, and not which.
    pub fn shown(&self) -> Value {
        let ProxySpec { scheme, host, port, username, password } = self;
        json!({
            "scheme": scheme, "host": host, "port": port, "username": username,
            "hasPassword": password.is_some(),
        })
    }

    /// The proxy as it is stored, with its password encrypted by `seal`.
    pub(crate) fn stored<E>(&self, seal: impl FnOnce(&str) -> Result<String, E>) -> Result<Value, E> {
        let ProxySpec { scheme, host, port, username, password } = self;
        let password = password.as_ref().map(|password| seal(password.reveal())).transpose()?;
        Ok(json!({
            "scheme": scheme, "host": host, "port": port, "username": username, "password": password,
        }))
    }

    /// Users that see no password cannot send it again.
    fn keeping_password(mut self, current: Option<&ProxySpec>) -> ProxySpec {
        if let Some(current) = current
            && self.password.is_none()
            && self.username.is_some()
            && (&self.scheme, &self.host, self.port, &self.username)
                == (&current.scheme, &current.host, current.port, &current.username)
        {
            self.password.clone_from(&current.password);
        }
        self
    }
}

fn check_text(field: &'static str, text: &str, len_max: usize) -> Result<(), BadPayload> {
    if text.trim().is_empty() {
        return Err(BadPayload::new(field, PayloadProblem::Missing, "is empty; give a text"));
    }
    if text.len() > len_max {
        let message = format!("has {} bytes; at most {len_max} are allowed", text.len());
        return Err(BadPayload::new(field, PayloadProblem::TooLong, message));
    }
    if text.chars().any(char::is_control) {
        return Err(BadPayload::new(field, PayloadProblem::Range, "holds a control character"));
    }
    Ok(())
}

fn is_locale(text: &str) -> bool {
    let mut parts = text.split('-');
    let language = parts.next().unwrap_or_default();
    text.len() <= LOCALE_LEN_MAX
        && (2..=3).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_alphabetic())
        && parts.all(|part| {
            (2..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}
