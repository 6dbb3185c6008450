//! A session: jobs that belong together, what each of them asks of it, and what is kept of it.
//!
//! Only the words are here. What a session makes of a job that comes for it is decided in `engine/sessions/arrival.rs`.

use crate::{JobId, Name, Seq, Span, Wall};

/// Most jobs that one run takes in besides its own: then a burst is over, whatever still comes.
pub const SESSION_MERGE_MAX: u32 = 100;
/// Most bytes of payload that a burst gathers, the first job's included.
pub const SESSION_MERGE_BYTES_MAX: u64 = 1 << 20;
/// The longest debounce window.
pub const SESSION_DEBOUNCE_MAX: Span = Span::mins(10);
/// The longest time that a burst may put off its start.
pub const SESSION_DEBOUNCE_TOTAL_MAX: Span = Span::hours(1);
/// A burst may put off its start by this many windows, where its first job does not say.
const DEBOUNCE_WINDOWS: u64 = 10;
/// A session is throttled from this share of its context window on, in percent.
const THROTTLE_PERCENT: u128 = 60;

/// A session by name, and what this job asks of it. Nothing here is sticky: the next job asks for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session's name, unique within its tenant.
    pub key: Name,
    /// How many jobs of the session may run at once while this job is the next one. At least 1.
    pub max_concurrent: u32,
    /// What the job does to those before it.
    pub mode: SessionMode,
    /// Most jobs of the session that may wait when this one comes. `None`: any number.
    pub cap: Option<u32>,
    /// Who gives way when `cap` is reached.
    pub drop: DropPolicy,
    /// Jobs that come within this time of one another run as one. `None` or zero: it waits for no other.
    pub debounce: Option<Span>,
    /// The longest time that later jobs may put off the start of the first. `None`: ten times `debounce`.
    pub debounce_max: Option<Span>,
    /// When its sender sent it. Earlier than the session's last stop of everything: it is rejected.
    pub sent_at: Option<Wall>,
}

impl Session {
    /// One at a time, in order, without a cap and without debounce.
    pub fn new(key: Name) -> Session {
        Session {
            key,
            max_concurrent: 1,
            mode: SessionMode::Queue,
            cap: None,
            drop: DropPolicy::Old,
            debounce: None,
            debounce_max: None,
            sent_at: None,
        }
    }

    /// What a chat wants: ten may wait, the oldest gives way, and what comes within 800 ms is one message.
    pub fn chat(key: Name) -> Session {
        ChatSettings::default().session(key)
    }

    /// The debounce window, where there is one.
    pub fn window(&self) -> Option<Span> {
        self.debounce.filter(|window| window.0 > 0)
    }

    /// How long a burst that begins with this job may last.
    pub fn debounce_limit(&self) -> Span {
        let windows = Span(self.debounce.unwrap_or_default().0.saturating_mul(DEBOUNCE_WINDOWS));
        self.debounce_max.unwrap_or(windows).min(SESSION_DEBOUNCE_TOTAL_MAX)
    }

    /// Most jobs that may wait before this one. A cap of zero that drops the old leaves room for the newest.
    pub fn waiting_max(&self) -> Option<u32> {
        self.cap.map(|cap| if self.drop == DropPolicy::Old { cap.max(1) } else { cap })
    }
}

/// What messages of a conversation ask of their session where they do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatSettings {
    /// What a message does to those before it.
    pub mode: SessionMode,
    /// Most messages that may wait.
    pub cap: u32,
    /// Which message gives way then.
    pub drop: DropPolicy,
    /// Messages within this time of one another run as one; zero: each for itself.
    pub debounce: Span,
    /// How many turns of a session may run at once.
    pub max_concurrent: u32,
}

impl Default for ChatSettings {
    fn default() -> ChatSettings {
        ChatSettings {
            mode: SessionMode::Queue,
            cap: 10,
            drop: DropPolicy::Old,
            debounce: Span(800),
            max_concurrent: 1,
        }
    }
}

impl ChatSettings {
    /// The session of this name, as a message that says nothing more joins it.
    pub fn session(&self, key: Name) -> Session {
        let ChatSettings { mode, cap, drop, debounce, max_concurrent } = *self;
        let debounce = Some(debounce).filter(|window| window.0 > 0);
        Session { mode, cap: Some(cap), drop, debounce, max_concurrent, ..Session::new(key) }
    }
}

/// What a job does to the jobs of its session that came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum SessionMode {
    /// It goes behind them.
    #[default]
    Queue = 0,
    /// It goes behind them; another word for the same.
    Followup = 1,
    /// It ends them all, and starts as soon as the last of their runs has ended.
    Interrupt = 2,
}

impl SessionMode {
    /// Every mode, in the order of their codes.
    pub const ALL: [SessionMode; 3] = [SessionMode::Queue, SessionMode::Followup, SessionMode::Interrupt];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionMode::Queue => "queue",
            SessionMode::Followup => "followup",
            SessionMode::Interrupt => "interrupt",
        }
    }

    /// The mode that `word` names.
    pub fn parse(word: &str) -> Option<SessionMode> {
        SessionMode::ALL.into_iter().find(|mode| mode.as_str() == word)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The mode of a stored code.
    pub fn from_code(code: u8) -> Option<SessionMode> {
        SessionMode::ALL.get(usize::from(code)).copied()
    }
}

/// Who gives way when as many jobs of a session wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum DropPolicy {
    /// The oldest that waits ends as dropped.
    #[default]
    Old = 0,
    /// The new one is rejected.
    New = 1,
}

impl DropPolicy {
    /// Every policy, in the order of their codes.
    pub const ALL: [DropPolicy; 2] = [DropPolicy::Old, DropPolicy::New];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            DropPolicy::Old => "old",
            DropPolicy::New => "new",
        }
    }

    /// The policy that `word` names.
    pub fn parse(word: &str) -> Option<DropPolicy> {
        DropPolicy::ALL.into_iter().find(|policy| policy.as_str() == word)
    }

    /// The code in stored rows.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The policy of a stored code.
    pub fn from_code(code: u8) -> Option<DropPolicy> {
        DropPolicy::ALL.get(usize::from(code)).copied()
    }
}

/// The job that another one was merged into: it runs for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedInto {
    /// Its number inside the house.
    pub seq: Seq,
    /// Its id.
    pub job: JobId,
}

/// What is kept of a session beside its jobs. A session of which nothing needs to be known has no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Whose it is.
    pub tenant: Name,
    /// Its name.
    pub key: Name,
    /// When everything of it was last stopped: what was sent before that is stale.
    pub cutoff: Option<Wall>,
    /// How often it was reset.
    pub generation: u64,
    /// Tokens of its context that are used, as last reported.
    pub tokens: u64,
    /// Tokens that its context holds, as last reported; 0: not known.
    pub window: u64,
    /// When any of this last changed.
    pub updated_at: Wall,
}

impl SessionRow {
    /// True when the context is so full that its jobs must run one by one.
    pub fn is_throttled(&self) -> bool {
        is_throttled(self.tokens, self.window)
    }
}

/// True when so much of a context window is used that the session's jobs must run one by one.
pub fn is_throttled(tokens: u64, window: u64) -> bool {
    window > 0 && u128::from(tokens) * 100 >= THROTTLE_PERCENT * u128::from(window)
}
