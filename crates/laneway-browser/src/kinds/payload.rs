//! The payloads of the kinds: what a job may say, and the checks of every field.

use laneway_core::JobSpec;
use laneway_runtime::config::Secret;
use reqwest::Url;
use serde_json::{Value, json};

use super::fields::{BadPayload, Fields, PayloadProblem};
use crate::instances::TAB_LEN_MAX;
use crate::profiles::{ID_LEN_MAX, NAME_LEN_MAX, ProfileId, ProxySpec};
use crate::script::Script;

/// Longest URL, in bytes.
const URL_LEN_MAX: usize = 2_048;
/// Most arguments of a program, and the longest one in bytes.
const ARGUMENTS_MAX: usize = 64;
const ARGUMENT_LEN_MAX: usize = 8 << 10;
/// Longest timeout of a `script_run` job, in seconds.
pub const SCRIPT_TIMEOUT_MAX_SECS: u64 = 3_600;
/// Longest retention that a cleanup may ask for, in days.
const RETENTION_DAYS_MAX: u64 = 3_650;

/// The payload of `browser_start`: `{"profileId": "p1", "headless": true, "url": "https://…"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartPayload {
    /// The profile.
    pub profile_id: ProfileId,
    /// Without a window. `None`: as the configuration says.
    pub headless: Option<bool>,
    /// The page that the first tab opens. `None`: an empty page.
    pub url: Option<String>,
}

impl StartPayload {
    /// Reads and checks a payload.
    pub fn parse(payload: &[u8]) -> Result<StartPayload, BadPayload> {
        let mut fields = Fields::of_payload(payload)?;
        let payload = StartPayload {
            profile_id: profile_id(&mut fields)?,
            headless: fields.opt_flag("headless")?,
            url: fields.opt_text("url", URL_LEN_MAX)?,
        };
        fields.finish()?;
        if let Some(url) = &payload.url {
            check_url("url", url, &["http", "https", "file", "about"])?;
        }
        Ok(payload)
    }

    /// The payload as JSON.
    pub fn to_json(&self) -> Value {
        let StartPayload { profile_id, headless, url } = self;
        without_nulls(json!({"profileId": profile_id.as_str(), "headless": headless, "url": url}))
    }
}

/// The payload of `browser_stop` and `cache_clear_local`: `{"profileId": "p1"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilePayload {
    /// The profile.
    pub profile_id: ProfileId,
}

impl ProfilePayload {
    /// Reads and checks a payload.
    pub fn parse(payload: &[u8]) -> Result<ProfilePayload, BadPayload> {
        let mut fields = Fields::of_payload(payload)?;
        let profile_id = profile_id(&mut fields)?;
        fields.finish()?;
        Ok(ProfilePayload { profile_id })
    }

    /// The payload as JSON.
    pub fn to_json(&self) -> Value {
        json!({"profileId": self.profile_id.as_str()})
    }
}

/// The payload of `browser_stop_all`, `db_migration` and `cache_clear_cloud`: `{}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPayload;

impl NoPayload {
    /// Checks that a payload has no fields.
    pub fn parse(payload: &[u8]) -> Result<NoPayload, BadPayload> {
        Fields::of_payload(payload)?.finish().map(|()| NoPayload)
    }
}

/// The payload of `script_run`: `{"profileId": "p1", "script": {"steps": […]}}`, or a `program` instead of the script.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptPayload {
    /// The profile whose browser is open.
    pub profile_id: ProfileId,
    /// The tab. `None`: a new one, which is closed at the end.
    pub tab_id: Option<String>,
    /// What runs.
    pub work: ScriptWork,
}

/// What a `script_run` job runs.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptWork {
    /// A script of steps.
    Script(Value),
    /// A program of this machine.
    Program(ProgramSpec),
}

/// A program of this machine, with the DevTools URL in its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// The program: one that the configuration allows.
    pub path: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// JSON for its standard input.
    pub input: Value,
}

impl ScriptPayload {
    /// Reads and checks a payload, the script included.
    pub fn parse(payload: &[u8]) -> Result<ScriptPayload, BadPayload> {
        let mut fields = Fields::of_payload(payload)?;
        let profile_id = profile_id(&mut fields)?;
        let tab_id = fields.opt_text("tabId", TAB_LEN_MAX)?;
        let script = fields.value("script");
        let program = fields.object("program", "program.")?.map(program).transpose()?;
        fields.finish()?;
        let work = match (script, program) {
            (Some(script), None) => {
                let bad = |bad: crate::script::BadScript| {
                    let field = format!("script.{}", bad.to_string().split(": ").next().unwrap_or_default());
                    let message = match bad.reason.strip_prefix("it ") {
                        Some(rest) => rest.to_owned(),
                        None => format!("is not valid: {}", bad.reason),
                    };
                    BadPayload::new(field, PayloadProblem::Range, message)
                };
                Script::parse(&script).map_err(bad)?;
                ScriptWork::Script(script)
            }
            (None, Some(program)) => ScriptWork::Program(program),
            (None, None) => {
                let message = "is missing; give a script, or a program";
                return Err(BadPayload::new("script", PayloadProblem::Missing, message));
            }
            (Some(_), Some(_)) => {
                let message = "stands beside `script`; give one of them";
                return Err(BadPayload::new("program", PayloadProblem::Range, message));
            }
        };
        Ok(ScriptPayload { profile_id, tab_id, work })
    }

    /// The payload as JSON.
    pub fn to_json(&self) -> Value {
        let ScriptPayload { profile_id, tab_id, work } = self;
        let (script, program) = match work {
            ScriptWork::Script(script) => (Some(script.clone()), None),
            ScriptWork::Program(ProgramSpec { path, args, input }) => {
                (None, Some(json!({"path": path, "args": args, "input": input})))
            }
        };
        without_nulls(json!({
            "profileId": profile_id.as_str(), "tabId": tab_id, "script": script, "program": program,
        }))
    }
}

/// The payload of `proxy_test`: `{"profileId": "p1"}` for the proxy of a profile, or `{"proxy": {…}}`; `url` is what to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyTestPayload {
    /// The proxy.
    pub proxy: TestedProxy,
    /// What to request. `None`: as the configuration says.
    pub url: Option<Url>,
}

/// Which proxy is tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestedProxy {
    /// That of a profile.
    OfProfile(ProfileId),
    /// This one.
    Given(ProxySpec),
}

impl ProxyTestPayload {
    /// Reads and checks a payload.
    pub fn parse(payload: &[u8]) -> Result<ProxyTestPayload, BadPayload> {
        let mut fields = Fields::of_payload(payload)?;
        let profile = opt_profile_id(&mut fields)?;
        let given = fields.object("proxy", "proxy.")?.map(proxy).transpose()?;
        let url = fields.opt_text("url", URL_LEN_MAX)?;
        fields.finish()?;
        let url = url.map(|url| check_url("url", &url, &["http", "https"])).transpose()?;
        let proxy = match (profile, given) {
            (Some(profile), None) => TestedProxy::OfProfile(profile),
            (None, Some(proxy)) => TestedProxy::Given(proxy),
            (None, None) => {
                let message = "is missing; give a proxy, or the profileId of a profile that has one";
                return Err(BadPayload::new("proxy", PayloadProblem::Missing, message));
            }
            (Some(_), Some(_)) => {
                let message = "stands beside `profileId`; give one of them";
                return Err(BadPayload::new("proxy", PayloadProblem::Range, message));
            }
        };
        Ok(ProxyTestPayload { proxy, url })
    }

    /// The payload as JSON. A password is in it as it is; it is encrypted when the job is submitted.
    pub fn to_json(&self) -> Value {
        let ProxyTestPayload { proxy, url } = self;
        let url = url.as_ref().map(Url::as_str);
        let plain = |password: &str| Ok::<String, std::convert::Infallible>(password.to_owned());
        match proxy {
            TestedProxy::OfProfile(profile) => {
                without_nulls(json!({"profileId": profile.as_str(), "url": url}))
            }
            TestedProxy::Given(proxy) => {
                let Ok(proxy) = proxy.stored(plain);
                without_nulls(json!({"proxy": without_nulls(proxy), "url": url}))
            }
        }
    }
}

/// The payload of `profile_clone`: `{"profileId": "p1", "name": "Copy", "newProfileId": "p2"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClonePayload {
    /// The profile to copy.
    pub profile_id: ProfileId,
    /// The name of the copy. `None`: that of the original, with ` (copy)` behind it.
    pub name: Option<String>,
    /// The id of the copy. `None`: one that is made of the job's id.
    pub new_profile_id: Option<ProfileId>,
}

impl ClonePayload {
    /// Reads and checks a payload.
    pub fn parse(payload: &[u8]) -> Result<ClonePayload, BadPayload> {
        let mut fields = Fields::of_payload(payload)?;
        let profile_id = profile_id(&mut fields)?;
        let name = fields.opt_text("name", NAME_LEN_MAX)?;
        let new = fields.opt_text("newProfileId", ID_LEN_MAX)?;
        fields.finish()?;
        let rename = |bad: BadPayload| BadPayload { field: "newProfileId".to_owned(), ..bad };
        let new_profile_id = new.map(|id| ProfileId::parse(&id)).transpose().map_err(rename)?;
        if new_profile_id.as_ref() == Some(&profile_id) {
            let message = "is the id of the original; give another one, or none";
            return Err(BadPayload::new("newProfileId", PayloadProblem::Range, message));
        }
        Ok(ClonePayload { profile_id, name, new_profile_id })
    }

    /// The payload as JSON.
    pub fn to_json(&self) -> Value {
        let ClonePayload { profile_id, name, new_profile_id } = self;
        without_nulls(json!({
            "profileId": profile_id.as_str(), "name": name,
            "newProfileId": new_profile_id.as_ref().map(ProfileId::as_str),
        }))
    }
}

/// The payload of `recycle_bin_cleanup`: `{"retentionDays": 30}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPayload {
    /// Profiles that were in the recycle bin for so long are deleted. `None`: as the configuration says.
    pub retention_days: Option<u64>,
}

impl CleanupPayload {
    /// Reads and checks a payload.
    pub fn parse(payload: &[u8]) -> Result<CleanupPayload, BadPayload> {
        let mut fields = Fields::of_payload(payload)?;
        let retention_days = fields.opt_number("retentionDays", 0, RETENTION_DAYS_MAX)?;
        fields.finish()?;
        Ok(CleanupPayload { retention_days })
    }

    /// The payload as JSON.
    pub fn to_json(&self) -> Value {
        without_nulls(json!({"retentionDays": self.retention_days}))
    }
}

/// Checks the payload of a job of one of the kinds. `None`: another kind. For callers that submit only what can run.
pub fn validate(spec: &JobSpec, payload: &[u8]) -> Option<Result<(), BadPayload>> {
    let checked = match spec.kind.as_str() {
        super::BROWSER_START => StartPayload::parse(payload).map(drop),
        super::BROWSER_STOP | super::CACHE_CLEAR_LOCAL => ProfilePayload::parse(payload).map(drop),
        super::BROWSER_STOP_ALL | super::DB_MIGRATION | super::CACHE_CLEAR_CLOUD => {
            NoPayload::parse(payload).map(drop)
        }
        super::SCRIPT_RUN => ScriptPayload::parse(payload).map(drop),
        super::PROXY_TEST => ProxyTestPayload::parse(payload).map(drop),
        super::PROFILE_CLONE => ClonePayload::parse(payload).map(drop),
        super::RECYCLE_BIN_CLEANUP => CleanupPayload::parse(payload).map(drop),
        _ => return None,
    };
    Some(checked)
}

fn profile_id(fields: &mut Fields) -> Result<ProfileId, BadPayload> {
    ProfileId::parse(&fields.text("profileId", ID_LEN_MAX)?)
}

fn opt_profile_id(fields: &mut Fields) -> Result<Option<ProfileId>, BadPayload> {
    fields.opt_text("profileId", ID_LEN_MAX)?.map(|id| ProfileId::parse(&id)).transpose()
}

fn program(mut fields: Fields) -> Result<ProgramSpec, BadPayload> {
    let program = ProgramSpec {
        path: fields.text("path", URL_LEN_MAX)?,
        args: fields.texts("args", ARGUMENTS_MAX, ARGUMENT_LEN_MAX)?,
        input: fields.value("input").unwrap_or(Value::Null),
    };
    fields.finish()?;
    if program.path.contains('\0') || program.args.iter().any(|argument| argument.contains('\0')) {
        let message = "holds a zero byte; programs cannot get it";
        return Err(BadPayload::new("program", PayloadProblem::Range, message));
    }
    Ok(program)
}

fn proxy(mut fields: Fields) -> Result<ProxySpec, BadPayload> {
    const TEXT_MAX: usize = 1_024;
    let port = fields.opt_number("port", 1, u64::from(u16::MAX))?;
    let missing = || BadPayload::new("proxy.port", PayloadProblem::Missing, "is missing; give a port");
    let spec = ProxySpec {
        scheme: fields.opt_text("scheme", TEXT_MAX)?.unwrap_or_else(|| "http".to_owned()),
        host: fields.text("host", TEXT_MAX)?,
        port: port.and_then(|port| u16::try_from(port).ok()).ok_or_else(missing)?,
        username: fields.opt_text("username", TEXT_MAX)?,
        password: fields.opt_text("password", 4 * TEXT_MAX)?.map(|password| Secret::new(&password)),
    };
    fields.finish()?;
    spec.to_proxy()?;
    Ok(spec)
}

fn check_url(field: &'static str, text: &str, schemes: &[&str]) -> Result<Url, BadPayload> {
    let url = Url::parse(text).ok().filter(|url| schemes.contains(&url.scheme()));
    url.ok_or_else(|| {
        let message = format!("is {text:?}; write a URL that begins with {}", schemes.join(": or ") + ":");
        BadPayload::new(field, PayloadProblem::Range, message)
    })
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(object) = &mut value {
        object.retain(|_, value| !value.is_null());
    }
    value
}
