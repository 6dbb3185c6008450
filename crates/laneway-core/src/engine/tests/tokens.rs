//! Tokens: shares of tenants, rotation, and how long ended ones are kept.

use crate::command::AdminCommand;
use crate::engine::{Engine, Recovery, Restart, StoreCounters};
use crate::token::{TOKENS_MAX, TOKENS_PER_TENANT_MAX};
use crate::{Change, Command, Effects, Name, Now, Reply, Role, Settings, Span, TokenRecord, Wall};

use super::scenario::{START, Scenario};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Another one for each id: two tokens never have the same secret.
fn digest_of(id: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    digest[..id.len()].copy_from_slice(id.as_bytes());
    digest
}

fn token(id: &str, tenant: Option<&str>) -> TokenRecord {
    TokenRecord {
        id: name(id),
        tenant: tenant.map(name),
        role: Role::Admin,
        digest: digest_of(id),
        note: "".into(),
        created_at: START.wall,
        expires_at: None,
        revoked_at: None,
    }
}

fn later(passed: Span) -> Now {
    Now { mono: START.mono + passed, wall: START.wall + passed }
}

struct Tokens(Engine);

impl Tokens {
    fn new() -> Tokens {
        Tokens(Engine::new(Settings::default(), 7, START))
    }

    fn apply(&mut self, now: Now, command: Command) -> (Reply, Effects) {
        let mut effects = Effects::default();
        let reply = self.0.apply(now, command, &mut effects);
        (reply, effects)
    }

    fn put(&mut self, now: Now, token: TokenRecord) -> bool {
        let (reply, _) =
            self.apply(now, Command::Admin(AdminCommand::PutToken(Box::new(token), Scenario::origin())));
        reply == Reply::Done
    }

    fn rotate(&mut self, now: Now, old: &str, ends_at: Wall, token: TokenRecord) -> Reply {
        let (old, token, origin) = (name(old), Box::new(token), Scenario::origin());
        self.apply(now, Command::Admin(AdminCommand::RotateToken { old, ends_at, token, origin })).0
    }

    fn fill(&mut self, tenant: Option<&str>) {
        let whose = tenant.unwrap_or("server");
        for number in 0..TOKENS_PER_TENANT_MAX {
            assert!(self.put(START, token(&format!("{whose}-{number}"), tenant)));
        }
        assert!(!self.put(START, token(&format!("{whose}-more"), tenant)), "the share of {whose} is full");
        self.0.check_invariants().unwrap();
    }

    fn has(&self, id: &str) -> bool {
        self.0.tokens().any(|token| token.id.as_str() == id)
    }
}

#[test]
fn defect_08_no_tenant_keeps_others_from_making_tokens() {
    let mut tokens = Tokens::new();
    for tenant in 0..TOKENS_MAX / TOKENS_PER_TENANT_MAX {
        tokens.fill(Some(&format!("t{tenant}")));
    }
    assert!(!tokens.put(START, token("late", Some("late"))), "all tenants together have a bound");
    tokens.fill(None);
}

#[test]
fn defect_08_ended_tokens_of_others_are_forgotten_where_all_are_taken() {
    let mut tokens = Tokens::new();
    for tenant in 0..TOKENS_MAX / TOKENS_PER_TENANT_MAX {
        let tenant = format!("t{tenant}");
        for number in 0..TOKENS_PER_TENANT_MAX {
            // The tokens of the first tenant end first, in reverse order; all others end later.
            let ends = START.wall + Span::secs(1 + (TOKENS_PER_TENANT_MAX - number) as u64);
            let expires_at = (tenant == "t0").then_some(ends);
            let record = token(&format!("{tenant}-{number}"), Some(&tenant));
            assert!(tokens.put(START, TokenRecord { expires_at, ..record }));
        }
    }
    assert!(!tokens.put(START, token("late", Some("late"))), "none has ended yet");
    let all_ended = later(Span::hours(1));
    assert!(tokens.put(all_ended, token("late", Some("late"))));
    assert!(!tokens.has("t0-999") && tokens.has("t0-998"), "the one that ended first was forgotten");
    assert!(tokens.put(all_ended, token("later", Some("later"))));
    assert_eq!(tokens.0.tokens().count(), TOKENS_MAX);
    tokens.0.check_invariants().unwrap();
}

#[test]
fn defect_08_ended_tokens_leave_their_share_and_are_forgotten() {
    let mut tokens = Tokens::new();
    for number in 0..TOKENS_PER_TENANT_MAX {
        let brief = TokenRecord {
            expires_at: Some(START.wall + Span::secs(1 + number as u64)),
            ..token(&format!("b{number}"), Some("t"))
        };
        assert!(tokens.put(START, brief));
    }
    assert!(!tokens.put(START, token("lasting", Some("t"))));
    // Two have ended; the one that ended first is forgotten.
    assert!(tokens.put(later(Span::secs(2)), token("lasting", Some("t"))));
    assert!(!tokens.has("b0") && tokens.has("b1") && tokens.has("lasting"));
    // The others are forgotten a day after their end, not before.
    tokens.apply(later(Span::hours(23)), Command::Tick);
    assert!(tokens.has("b1") && tokens.has("b999"));
    let (_, effects) = tokens.apply(later(Span::hours(25)), Command::Tick);
    let forgotten =
        effects.changes.iter().filter(|change| matches!(change, Change::TokenForgotten(_))).count();
    assert_eq!(forgotten, TOKENS_PER_TENANT_MAX - 1);
    assert_eq!(tokens.0.tokens().count(), 1);
}

/// A server without any token is open, so the last one is never forgotten: ended or not, after a restart or not.
#[test]
fn defect_08_defect_14_a_server_that_had_tokens_stays_closed() {
    let mut tokens = Tokens::new();
    for (id, tenant, hours) in [("b", None, 1), ("a", Some("t"), 3), ("c", Some("u"), 2)] {
        let expires_at = Some(START.wall + Span::hours(hours));
        assert!(tokens.put(START, TokenRecord { expires_at, ..token(id, tenant) }));
    }
    tokens.apply(later(Span::hours(25)), Command::Tick);
    tokens.apply(later(Span::hours(24 * 400)), Command::Tick);
    tokens.0.check_invariants().unwrap();
    assert_eq!(tokens.0.tokens().map(|token| token.id.as_str()).collect::<Vec<_>>(), ["a"], "it ended last");

    let stored: Vec<TokenRecord> = tokens.0.tokens().cloned().collect();
    let restarted = later(Span::hours(24 * 500));
    let recovery = Recovery::new(Settings::default(), stored, StoreCounters::default(), 8, restarted);
    let mut tokens = Tokens(recovery.finish(restarted, Restart::Process, &mut Effects::default()));
    tokens.apply(later(Span::hours(24 * 510)), Command::Tick);
    tokens.0.check_invariants().unwrap();
    assert!(tokens.has("a"));
    // As soon as there is another one, it goes like all others.
    let now = later(Span::hours(24 * 511));
    assert!(tokens.put(now, token("d", None)));
    tokens.apply(later(Span::hours(24 * 520)), Command::Tick);
    assert!(!tokens.has("a") && tokens.has("d"));
}

#[test]
fn defect_08_rotation_works_where_the_share_is_full() {
    let mut tokens = Tokens::new();
    tokens.fill(Some("t"));
    for number in 0..TOKENS_PER_TENANT_MAX * 2 {
        let (old, new) = (format!("r{number}"), format!("r{}", number + 1));
        let old = if number == 0 { "t-0" } else { &old };
        assert_eq!(tokens.rotate(START, old, START.wall, token(&new, Some("t"))), Reply::Done);
        assert!(tokens.has(&new));
        assert!(tokens.0.tokens().count() <= TOKENS_PER_TENANT_MAX);
    }
    // With a grace both work for a while; how many may do so is bounded.
    let grace = START.wall + Span::hours(1);
    let rotated = (0..TOKENS_PER_TENANT_MAX)
        .take_while(|number| {
            let reply = tokens.rotate(
                START,
                &format!("t-{}", number + 1),
                grace,
                token(&format!("g{number}"), Some("t")),
            );
            reply == Reply::Done
        })
        .count();
    assert_eq!(rotated, TOKENS_PER_TENANT_MAX / 10);
    assert_eq!(tokens.rotate(START, "nothing", START.wall, token("n", Some("t"))), Reply::NotFound);
}
