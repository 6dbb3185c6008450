//! What was written comes back; what was damaged is rejected, whatever the damage.

use laneway_core::{
    Binding, CapacityRequest, Chain, Event, EventKind, FailurePolicy, JobRow, MemberOf, Name, RunId, RunRow,
    RunSpec, RunState, Seq, Session, Wall,
};
use proptest::prelude::*;

use super::*;
use crate::suite::driver::{Driver, failure, rich_spec};
use crate::{MemoryStore, Store};

struct Memory;

impl crate::suite::Fixture for Memory {
    fn open(&self) -> Box<dyn Store> {
        Box::new(MemoryStore::new())
    }
}

fn rich_row() -> JobRow {
    let mut row = Driver::new(&Memory).draft();
    row.spec = rich_spec();
    row.payload_len = 300;
    row
}

fn events() -> Vec<Event> {
    let mut driver = Driver::new(&Memory);
    let row = rich_row();
    let job = driver.submit(row, b"{}");
    driver.open(job);
    driver.server_event(EventKind::ConfigChanged, "détail");
    driver.finish(job, None);
    driver.events
}

fn spec_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_spec(&mut bytes, &rich_row());
    bytes
}

fn run_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_run(&mut bytes, &run_row());
    bytes
}

fn run_row() -> RunRow {
    RunRow {
        first: Seq(1),
        id: RunId(7),
        spec: RunSpec {
            name: Some(Name::fixed("nightly reports")),
            failure: FailurePolicy::Continue,
            client: Some(Name::fixed("desk-7")),
            tags: vec![Name::fixed("red")],
            ..RunSpec::new(Name::fixed("acme"))
        },
        nodes: vec![Name::fixed("a"), Name::fixed("b")],
        created_at: Wall(1),
        submitted_by: Name::fixed("tester"),
        state: RunState::Queued,
        finished_at: None,
    }
}

fn member_row() -> JobRow {
    let mut row = rich_row();
    let binding =
        Binding { from: Name::fixed("a"), source: "/results/x".into(), target: "/parameters/ü".into() };
    row.spec.member = Some(Box::new(MemberOf {
        run: RunId(7),
        node: Name::fixed("b"),
        depends_on: vec![Name::fixed("a")],
        bindings: vec![binding],
        chain: Some(Chain {
            host: Name::fixed("h"),
            middlewares: vec![Name::fixed("a"), Name::fixed("b")],
            index: Some(1),
        }),
        group: true,
        within: Some(Name::fixed("around")),
    }));
    row
}

#[test]
fn what_a_member_knows_of_its_run_comes_back() {
    let mut bytes = Vec::new();
    write_spec(&mut bytes, &member_row());
    let spec = read_spec(&bytes, &mut crate::rows::stored_name).unwrap();
    assert_eq!(spec.member, member_row().spec.member);
    for len in 0..bytes.len() {
        let read = read_spec(&bytes[..len], &mut crate::rows::stored_name);
        assert!(matches!(read, Err(StoreError::Damaged(_))));
    }
}

#[test]
fn every_prefix_of_a_run_is_rejected() {
    let bytes = run_bytes();
    assert_eq!(read_run(&bytes).unwrap().nodes, run_row().nodes);
    for len in 0..bytes.len() {
        assert!(matches!(read_run(&bytes[..len]), Err(StoreError::Damaged(_))));
    }
}

fn failure_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_failure(&mut bytes, &failure());
    bytes
}

fn read_events(bytes: &[u8], first: u64, count: u64) -> Result<Vec<Event>, StoreError> {
    EventReader::new(bytes, first, count)?.collect()
}

/// Reads damaged bytes in every form; must not panic. What can still be read is not wrong by itself: the chain of hashes
/// and the database see to the rest.
fn read_all(bytes: &[u8]) {
    let _ = read_spec(bytes, &mut crate::rows::stored_name);
    let _ = read_failure(bytes);
    let _ = read_run(bytes);
    for count in [1, 4, u64::MAX] {
        let _ = read_events(bytes, 1, count);
    }
}

/// Rows from before sessions had rules hold the concurrency only, and so do rows of sessions without rules today.
#[test]
fn a_session_without_rules_has_the_old_form() {
    let mut row = rich_row();
    (row.spec.schedule, row.spec.callback, row.position) = (None, None, 0);
    row.spec.capacity = CapacityRequest::default();
    row.spec.placement = None;
    row.spec.session = Some(Session { max_concurrent: 3, ..Session::new(Name::fixed("chat:42")) });
    let mut bytes = Vec::new();
    write_spec(&mut bytes, &row);
    assert_eq!(bytes[..2], [1, 0xff], "version, and the first seven bits of the flags");
    assert_eq!(bytes[2], 0x07, "the other three, and none for rules");
    let spec = read_spec(&bytes, &mut crate::rows::stored_name).unwrap();
    assert_eq!(spec.session.unwrap().with_key(Name::fixed("chat:42")), row.spec.session.unwrap());
}

#[test]
fn a_spec_from_before_there_were_callbacks_is_read_and_written_as_ever() {
    let mut row = Driver::new(&Memory).draft();
    row.position = 0;
    let mut bytes = Vec::new();
    write_spec(&mut bytes, &row);
    assert_eq!(bytes, b"\x01\x00\x00\x06tester");
    assert_eq!(read_spec(&bytes, &mut crate::rows::stored_name).unwrap().callback, None);
}

#[test]
fn numbers_of_every_length_come_back() {
    let around = |shift: u32| [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1];
    for value in (0..64).flat_map(around).chain([u64::MAX]) {
        let mut bytes = Vec::new();
        put_u64(&mut bytes, value);
        put_i64(&mut bytes, value.cast_signed());
        let mut input = Input::new("numbers", &bytes);
        assert_eq!(input.u64().unwrap(), value);
        assert_eq!(input.i64().unwrap(), value.cast_signed());
        input.end().unwrap();
    }
}

#[test]
fn a_number_that_is_too_long_is_rejected() {
    for bytes in [&[0x80; 10][..], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]]
    {
        assert!(Input::new("a number", bytes).u64().is_err(), "{bytes:?}");
    }
}

#[test]
fn every_prefix_is_rejected() {
    let (spec, failure) = (spec_bytes(), failure_bytes());
    for len in 0..spec.len() {
        assert!(matches!(
            read_spec(&spec[..len], &mut crate::rows::stored_name),
            Err(StoreError::Damaged(_))
        ));
    }
    for len in 0..failure.len() {
        assert!(matches!(read_failure(&failure[..len]), Err(StoreError::Damaged(_))));
    }
    let events = events();
    let mut writer = EventWriter::default();
    let bytes = writer.write(&events);
    for len in 0..bytes.len() {
        assert!(matches!(read_events(&bytes[..len], 1, events.len() as u64), Err(StoreError::Damaged(_))));
    }
}

#[test]
fn bytes_left_over_and_other_versions_are_rejected() {
    for edit in [|bytes: &mut Vec<u8>| bytes.push(0), |bytes: &mut Vec<u8>| bytes[0] = 2] {
        let (mut spec, mut failure) = (spec_bytes(), failure_bytes());
        edit(&mut spec);
        edit(&mut failure);
        assert!(read_spec(&spec, &mut crate::rows::stored_name).is_err());
        assert!(read_failure(&failure).is_err());
        let events = events();
        let mut bytes = EventWriter::default().write(&events).to_vec();
        edit(&mut bytes);
        assert!(read_events(&bytes, 1, events.len() as u64).is_err());
    }
}

#[test]
fn a_batch_must_be_that_of_its_row() {
    let events = events();
    let mut writer = EventWriter::default();
    let bytes = writer.write(&events);
    let count = events.len() as u64;
    assert_eq!(read_events(bytes, 1, count).unwrap(), events);
    assert!(read_events(bytes, 2, count).is_err());
    assert!(read_events(bytes, 1, count - 1).is_err());
}

#[test]
fn equal_names_are_written_once() {
    let one = events();
    let mut many = Vec::new();
    for number in 1..=100 {
        let mut event = one[0].clone();
        event.number = number;
        many.push(event);
    }
    let mut writer = EventWriter::default();
    let first = writer.write(&many[..1]).len();
    let all = writer.write(&many).len();
    assert!(all < first + 99 * 40, "{first} bytes for one, {all} for a hundred");
}

#[test]
fn a_name_may_not_be_used_before_it_is_given() {
    let event = Event {
        number: 1,
        at: Wall(0),
        kind: EventKind::ConfigChanged,
        tenant: Some(Name::fixed("t")),
        job: None,
        actor: None,
        request: None,
        detail: None,
    };
    let mut bytes = EventWriter::default().write(&[event]).to_vec();
    let at = bytes.len() - 3;
    assert_eq!(bytes[at..], [0, 1, b't']);
    bytes.truncate(at);
    bytes.push(1);
    assert!(read_events(&bytes, 1, 1).is_err());
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(at in 0usize..1_000, bit in 0u8..8, len in 0usize..1_000) {
        let mut writer = EventWriter::default();
        for mut bytes in [spec_bytes(), failure_bytes(), writer.write(&events()).to_vec()] {
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            bytes.truncate(len.max(at + 1));
            read_all(&bytes);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
        let mut versioned = vec![1, 1, 4];
        versioned.extend(bytes);
        read_all(&versioned);
    }
}
