//! A profile as bytes: the JSON that the store keeps, with an encrypted password.
//!
//! Version 1 is the present form. Version 0 has no number and writes the proxy as a URL, with its password in plain text; the kind
//! `db_migration` rewrites such records.

use laneway_core::{Bytes, Record, Wall};
use laneway_runtime::config::{Secret, SecretKey, is_sealed};
use serde_json::{Map, Value, json};

use super::profile::{Profile, ProfileFields, ProfileId, ProxySpec};

/// The version of the form that is written.
pub(crate) const VERSION: u64 = 1;

/// Reads and writes records.
#[derive(Clone)]
pub(crate) struct Codec {
    /// Encrypts passwords. `None`: records live in memory only, and need no encryption.
    pub key: Option<SecretKey>,
}

/// A profile that was read.
pub(crate) struct Decoded {
    pub profile: Profile,
    /// The version of the form.
    pub version: u64,
    /// True: the password is stored in plain text.
    pub plain_password: bool,
}

impl Codec {
    /// The body of a record.
    pub fn encode(&self, tenant: &str, profile: &Profile) -> Result<Bytes, std::io::Error> {
        let Profile {
            id,
            fields,
            trashed_at,
            cloned_from,
            created_at: _,
            updated_at: _,
            version: _,
            made_by,
        } = profile;
        let ProfileFields { name, proxy, window, user_agent, locale, time_zone } = fields;
        let seal = |password: &str| match &self.key {
            Some(key) => key.seal_text(&owner(tenant, id.as_str()), password),
            None => Ok(password.to_owned()),
        };
        let proxy = proxy.as_ref().map(|proxy| proxy.stored(seal)).transpose()?;
        let body = json!({
            "version": VERSION,
            "name": name,
            "proxy": proxy,
            "window": window.map(|(width, height)| [width, height]),
            "userAgent": user_agent,
            "locale": locale,
            "timeZone": time_zone,
            "trashedAt": trashed_at.map(|at| at.0),
            "clonedFrom": cloned_from.as_ref().map(ProfileId::as_str),
            "madeBy": made_by,
        });
        Ok(Bytes::from(body.to_string().into_bytes()))
    }

    /// The profile in a record. The error says why it cannot be read.
    pub fn decode(&self, record: &Record) -> Result<Decoded, String> {
        let body: Map<String, Value> =
            serde_json::from_slice(&record.body).map_err(|error| format!("is no JSON object: {error}"))?;
        let version = body.get("version").and_then(Value::as_u64).unwrap_or(0);
        if version > VERSION {
            return Err(format!("has version {version}; this program reads versions up to {VERSION}"));
        }
        let id = ProfileId::parse(record.name.id.as_str()).map_err(|bad| bad.to_string())?;
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
        let side = |at: usize| {
            let side = body.get("window").and_then(|window| window.get(at)).and_then(Value::as_u64);
            side.and_then(|side| u32::try_from(side).ok())
        };
        let (proxy, plain_password) = match body.get("proxy") {
            None | Some(Value::Null) => (None, false),
            Some(Value::String(url)) => (Some(proxy_of_url(url)?), url.contains('@')),
            Some(proxy) => self.proxy_of(proxy, record.name.tenant.as_str(), id.as_str())?,
        };
        let fields = ProfileFields {
            name: text("name").ok_or("has no name")?,
            proxy,
            window: side(0).zip(side(1)),
            user_agent: text("userAgent"),
            locale: text("locale"),
            time_zone: text("timeZone"),
        };
        let cloned_from = text("clonedFrom").and_then(|id| ProfileId::parse(&id).ok());
        let profile = Profile {
            id,
            fields,
            trashed_at: body.get("trashedAt").and_then(Value::as_i64).map(Wall),
            cloned_from,
            created_at: record.created_at,
            updated_at: record.updated_at,
            version: record.version,
            made_by: text("madeBy"),
        };
        Ok(Decoded { profile, version, plain_password: plain_password && self.key.is_some() })
    }

    /// A password that cannot be decrypted is left out and must be set again.
    fn proxy_of(&self, proxy: &Value, tenant: &str, id: &str) -> Result<(Option<ProxySpec>, bool), String> {
        let text = |key: &str| proxy.get(key).and_then(Value::as_str).map(str::to_owned);
        let port = proxy.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let (mut password, mut is_plain) = (None, false);
        if let Some(stored) = text("password") {
            let opened = match &self.key {
                Some(key) if is_sealed(&stored) => key.open_text(&owner(tenant, id), &stored),
                _ => {
                    is_plain = true;
                    Some(stored)
                }
            };
            if opened.is_none() {
                tracing::warn!(profile = %id, "the stored password of the proxy cannot be decrypted: secret.key is missing or has changed; set it again");
            }
            password = opened.map(|password| Secret::new(&password));
        }
        let proxy = ProxySpec {
            scheme: text("scheme").ok_or("has a proxy without a scheme")?,
            host: text("host").ok_or("has a proxy without a host")?,
            port: port.ok_or("has a proxy without a port")?,
            username: text("username"),
            password,
        };
        Ok((Some(proxy), is_plain))
    }
}

/// The owner of an encrypted password: a password that is copied to another record cannot be decrypted there.
fn owner(tenant: &str, id: &str) -> String {
    format!("profile:{tenant}:{id}")
}

/// The proxy of a URL, as version 0 wrote it. The error does not show the URL, because it may hold a password.
fn proxy_of_url(url: &str) -> Result<ProxySpec, String> {
    let url = reqwest::Url::parse(url).map_err(|error| format!("has a proxy that is no URL: {error}"))?;
    let part = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Ok(ProxySpec {
        scheme: url.scheme().to_owned(),
        host: url.host_str().ok_or("has a proxy without a host")?.to_owned(),
        port: url
            .port_or_known_default()
            .or((url.scheme() == "socks5").then_some(1_080))
            .ok_or("has a proxy without a port")?,
        username: part(url.username()),
        password: url.password().map(Secret::new),
    })
}
