//! Streams without sockets: parsed ids, keep-alives, and skipped events.

use laneway_core::{Mono, Name, Now, Role, Seed, Settings, Wall};
use laneway_runtime::{Caller, Clock, Options, Scheduler};
use laneway_store::MemoryStore;
use tokio::time::Instant;

use super::stream::{HEARTBEAT, Seen, stream};

#[test]
fn ids_say_where_to_go_on() {
    let seen = |text: &str| Seen::parse(text).map(|seen| format!("{seen:?}"));
    let at = |after: u64, frames: usize| Some(format!("Seen {{ after: {after}, frames: {frames} }}"));
    assert_eq!(seen("41"), at(41, 0));
    assert_eq!(seen("41.2"), at(40, 2), "two frames of event 41");
    assert_eq!(seen("41~7"), at(41, 0), "frames that are not durable are not replayed");
    for odd in ["", "x", "-1", "0.1", "4.x", "~"] {
        assert_eq!(seen(odd), None, "{odd:?}");
    }
}

/// Paused time advances when every task waits: 45 s of silence pass at once.
#[tokio::test(start_paused = true)]
async fn silence_is_filled_with_a_heartbeat_after_45_seconds() {
    let mut options = Options::new(Settings::default());
    options.clock = Clock::manual(Now { mono: Mono(1_000), wall: Wall(1_700_000_000_000) });
    options.seed = Some(Seed::from(7));
    let (scheduler, _running) = Scheduler::start(Box::new(MemoryStore::new()), options).unwrap();
    let caller = Caller {
        actor: Name::fixed("open"),
        role: Role::Admin,
        bound: None,
        tenant: Name::fixed("default"),
        sees_one_tenant: false,
        request: Name::fixed("r"),
        expires_at: None,
        by_token: false,
    };
    let mut stream = stream(&scheduler, caller, Name::fixed("desk"), None, None);
    assert_eq!(
        stream.next().await.as_deref(),
        Some(&b"retry: 1000\n\n"[..]),
        "the first frame comes at once"
    );
    assert_eq!(HEARTBEAT.as_secs(), 45);
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(stream.next().await.as_deref(), Some(&b": heartbeat\n\n"[..]));
        let silent = began.elapsed();
        assert!(silent >= HEARTBEAT && silent.as_secs() < 46, "{silent:?}");
    }
}
