//! An agent turn: what a message asks of an agent, as the payload of a job carries it.
//!
//! Gateways make such jobs of chat messages, the dialect `goclaw` of cron jobs. Whoever runs the kind [`AGENT_TURN`] finds
//! everything here that belongs to the turn; what becomes of its answer is in `outbound.rs`. The keys are those of the
//! dialect, because its handlers read them, too.

use laneway_core::{Bytes, JobSpec, Name, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of jobs that are agent turns.
pub const AGENT_TURN: &str = "agent_turn";
/// The lane of turns that a schedule asks for.
pub const CRON_LANE: &str = "cron";
/// The agent of turns that name none.
pub const AGENT_DEFAULT: &str = "default";
/// An answer that holds this word is not sent to anybody.
const NO_REPLY: &[u8] = b"NO_REPLY";

/// What a message asks of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTurn {
    /// Always [`AGENT_TURN`].
    pub kind: String,
    /// What is said to the agent.
    #[serde(default)]
    pub message: String,
    /// A command instead of a message, where a gateway knows such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whose credentials the run uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_user_id: Option<String>,
    /// Who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The name of the cron job that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// The sender's name for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// What traces of the run are filed under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// True: the run begins without the session's history.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stateless: bool,
    /// True: the answer is sent to `deliver_to` by `deliver_channel`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deliver: bool,
    /// The channel that the turn belongs to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deliver_channel: String,
    /// Whom the answer goes to there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deliver_to: String,
    /// True: after a success the agent's heartbeat is woken.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wake_heartbeat: bool,
    /// What came with the message: addresses of pictures, sounds, ….
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<String>,
    /// What the channel says about the message: its id, its thread, ….
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// What the caller wants the run to know.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
}

impl AgentTurn {
    /// A turn with this message and nothing else.
    pub fn new(message: impl Into<String>) -> AgentTurn {
        AgentTurn { kind: AGENT_TURN.to_owned(), message: message.into(), ..AgentTurn::default() }
    }

    /// Reads a payload; says what is wrong with one that is no turn.
    pub fn read(payload: &[u8]) -> Result<AgentTurn, String> {
        serde_json::from_slice(payload).map_err(|error| format!("the payload is no agent turn: {error}"))
    }

    /// May somebody who brings these credentials change or start what has this payload? What names somebody's credentials is
    /// for those alone who bring the same. A payload that names them in a way that cannot be read is for nobody.
    pub fn is_open_to(payload: &[u8], credential: Option<&str>) -> bool {
        match AgentTurn::read(payload) {
            Ok(AgentTurn { credential_user_id: None, .. }) => true,
            Ok(AgentTurn { credential_user_id: bound, .. }) => bound.as_deref() == credential,
            Err(_) => !names_credential(payload),
        }
    }

    /// The payload.
    pub fn write(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts and JSON values are JSON").into()
    }

    /// The job that a turn of this agent is, in the lane and the session that are meant.
    pub fn job(tenant: Name, agent: Name, lane: Name, session: Session) -> JobSpec {
        JobSpec { agent, lane, session: Some(session), ..JobSpec::new(tenant, Name::fixed(AGENT_TURN)) }
    }

    /// What each slot of a cron job makes: a turn of the agent, in the job's own session, one after the other. `job` is
    /// the schedule's id, or [`laneway_core::schedule::SCHEDULE_SELF`] before it has one.
    pub fn of_cron(tenant: &Name, agent: Option<&str>, job: &str) -> Result<JobSpec, String> {
        let agent = agent.unwrap_or(AGENT_DEFAULT);
        if agent.contains(':') {
            return Err("must not hold a colon: it parts the names of sessions".to_owned());
        }
        let session = Name::new(&cron_session(agent, job)).map_err(|_| "is too long".to_owned())?;
        let agent = Name::new(agent).map_err(|error| error.to_string())?;
        Ok(AgentTurn::job(tenant.clone(), agent, Name::fixed(CRON_LANE), Session::new(session)))
    }

    /// Where the answer goes: the channel, and whom to. `None`: nowhere.
    pub fn goes_to(&self) -> Option<(&str, &str)> {
        let named = self.deliver && !self.deliver_channel.is_empty() && !self.deliver_to.is_empty();
        named.then_some((self.deliver_channel.as_str(), self.deliver_to.as_str()))
    }
}

/// Does a payload that is no turn name somebody's credentials all the same?
fn names_credential(payload: &[u8]) -> bool {
    match serde_json::from_slice(payload) {
        Ok(Value::Object(fields)) => fields.get("credentialUserId").is_some_and(|value| !value.is_null()),
        Ok(_) => false,
        // What is no JSON here may be read by somebody else.
        Err(_) => payload.windows(16).any(|part| part == b"credentialUserId"),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The agent and the rest of a session key such as `agent:writer:telegram:direct:42`.
pub fn parts_of_session(key: &str) -> Option<(&str, &str)> {
    let (agent, rest) = key.strip_prefix("agent:")?.split_once(':')?;
    (!agent.is_empty() && !rest.is_empty()).then_some((agent, rest))
}

/// The session of a cron job. A `job` that is a session key itself gives its rest, so that no key is wrapped twice.
pub fn cron_session(agent: &str, job: &str) -> String {
    let job = parts_of_session(job).map_or(job, |(_, rest)| rest);
    format!("agent:{agent}:cron:{job}")
}

/// True when an answer asks not to be sent: it holds `NO_REPLY` in any case, with no letter or digit beside it.
pub fn asks_for_silence(answer: &str) -> bool {
    let bytes = answer.as_bytes();
    let is_edge = |at: Option<&u8>| at.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    bytes.windows(NO_REPLY.len()).enumerate().any(|(at, window)| {
        window.eq_ignore_ascii_case(NO_REPLY)
            && is_edge(at.checked_sub(1).and_then(|before| bytes.get(before)))
            && is_edge(bytes.get(at + NO_REPLY.len()))
    })
}

/// The text of a run's result: a JSON string, the `content` of a JSON object, or the bytes as they are.
pub fn answer_of(result: &[u8]) -> String {
    match serde_json::from_slice(result) {
        Ok(Value::String(text)) => text,
        Ok(Value::Null) => String::new(),
        Ok(Value::Object(fields)) if fields.get("content").is_some_and(Value::is_string) => {
            fields["content"].as_str().unwrap_or_default().to_owned()
        }
        _ => String::from_utf8_lossy(result).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_h2_answers_that_ask_for_silence() {
        for (answer, silent) in [
            ("NO_REPLY", true),
            ("no_reply", true),
            ("  NO_REPLY\n", true),
            ("I have nothing to say. NO_REPLY", true),
            ("(NO_REPLY)", true),
            ("NO_REPLY_", true),
            ("NO_REPLYING", false),
            ("XNO_REPLY", false),
            ("NO REPLY", false),
            ("", false),
            ("XNO_REPLY but NO_REPLY", true),
            ("äNO_REPLYä", true),
        ] {
            assert_eq!(asks_for_silence(answer), silent, "{answer:?}");
        }
    }

    #[test]
    fn gc_h4_session_keys_of_cron_jobs_are_never_wrapped_twice() {
        assert_eq!(cron_session("default", "reminder"), "agent:default:cron:reminder");
        assert_eq!(cron_session("default", "agent:foo:cron:reminder"), "agent:default:cron:cron:reminder");
        assert_eq!(cron_session("default", "agent:foo"), "agent:default:cron:agent:foo");
        assert_eq!(parts_of_session("agent:a:b:c"), Some(("a", "b:c")));
        assert_eq!(parts_of_session("agent:a:"), None);
        assert_eq!(parts_of_session("chat:1"), None);
    }

    #[test]
    fn gc_h1_what_a_turn_carries_comes_back() {
        let turn =
            AgentTurn { credential_user_id: Some("c".into()), stateless: true, ..AgentTurn::new("hi") };
        let written = turn.write();
        assert_eq!(
            std::str::from_utf8(&written).unwrap(),
            r#"{"kind":"agent_turn","message":"hi","credentialUserId":"c","stateless":true}"#
        );
        assert_eq!(AgentTurn::read(&written), Ok(turn));
        assert!(AgentTurn::read(b"{\"kind\":1}").unwrap_err().contains("payload"));
    }

    #[test]
    fn defect_13_credentials_that_cannot_be_read_are_nobodys() {
        for (payload, open_to_all, open_to_c) in [
            (r#"{"kind":"agent_turn","credentialUserId":"c"}"#, false, true),
            (r#"{"kind":"agent_turn","message":1,"credentialUserId":"c"}"#, false, false),
            (r#"{"credentialUserId":7}"#, false, false),
            (r#"{"kind":"agent_turn","credentialUserId":"c","credentialUserId":"d"}"#, false, false),
            (r#"{"credentialUserId":"c""#, false, false),
            (r#"{"kind":"agent_turn","credentialUserId":null}"#, true, true),
            (r#"{"kind":1}"#, true, true),
            ("[1]", true, true),
        ] {
            assert_eq!(AgentTurn::is_open_to(payload.as_bytes(), None), open_to_all, "{payload}");
            assert_eq!(AgentTurn::is_open_to(payload.as_bytes(), Some("c")), open_to_c, "{payload}");
        }
    }

    #[test]
    fn answers_are_texts() {
        for (result, answer) in [
            ("plain", "plain"),
            ("\"a\"", "a"),
            (r#"{"content":"b"}"#, "b"),
            (r#"{"c":1}"#, r#"{"c":1}"#),
            ("null", ""),
        ] {
            assert_eq!(answer_of(result.as_bytes()), answer);
        }
    }
}
