//! Parts of artifacts: requested, sent, rejected, late.

use laneway_runtime::PartTrouble;
use laneway_wire::frame::ResourceRead;

use super::super::artifact_chunks::{CHUNK_REQUESTS_MAX, CHUNK_TIMEOUT};
use super::*;

impl World {
    /// A reader requests eight bytes of `res-1`. Returns the id of the frame.
    fn request_chunk(&mut self, offset: u64) -> Result<String, PartTrouble> {
        let read = ResourceRead { resource_id: Text::fixed("res-1"), offset, limit: 8 };
        let asked = self.session.request_chunk(self.now(), read, &mut self.actions);
        let id = asked.map(|_| self.last_sent().id.to_string());
        self.record();
        id
    }

    /// The worker replies to a frame.
    fn receive_answer(&mut self, kind: &str, corr: &str, payload: Value) {
        let mut frame = self.frame(kind, payload);
        frame["corr"] = json!(corr);
        frame.as_object_mut().unwrap().remove("ack");
        self.receive_frame(&frame);
    }

    fn receive_chunk(&mut self, corr: &str, offset: u64, data_base64: &str) {
        let data =
            json!({"resource_id": "res-1", "offset": offset, "size_bytes": 12, "data_base64": data_base64});
        self.receive_answer("resource.data", corr, data);
    }
}

#[test]
fn parts_are_requested_once_and_sent_once() {
    let mut world = World::up();
    let (first, second) = (world.request_chunk(0).unwrap(), world.request_chunk(8).unwrap());
    world.receive_chunk(&second, 8, "aWprbA==");
    world.receive_chunk(&first, 0, "YWJjZGVmZ2g=");
    // A duplicate, or a part that was never requested, has no reader.
    world.receive_chunk(&first, 0, "YWJjZGVmZ2g=");
    world.receive_chunk("s7-99", 0, "YWJjZGVmZ2g=");
    world.receive_chunk("of-another-connection", 0, "YWJjZGVmZ2g=");
    world.check(&expect![[r#"
        scheduler resource.read
        scheduler resource.read
        worker    resource.data w-4
        session   has part 4: "ijkl" of 12
        worker    resource.data w-5
        session   has part 3: "abcdefgh" of 12
        worker    resource.data w-6
        worker    resource.data w-7
        worker    resource.data w-8
    "#]]);
}

#[test]
fn a_worker_may_send_less_but_neither_more_nor_nothing_nor_other_data() {
    let mut world = World::up();
    let asked = world.request_chunk(0).unwrap();
    world.receive_chunk(&asked, 0, "YWI=");
    let wrong = [(0, "YWJjZGVmZ2hp"), (0, ""), (1, "YWI="), (0, "no base64")];
    for (offset, data) in wrong {
        let asked = world.request_chunk(0).unwrap();
        world.receive_chunk(&asked, offset, data);
    }
    let behind = world.request_chunk(12).unwrap();
    world.receive_chunk(&behind, 12, "");
    world.check(&expect![[r#"
        scheduler resource.read
        worker    resource.data w-4
        session   has part 3: "ab" of 12
        scheduler resource.read
        worker    resource.data w-5
        scheduler error E.CMD.UNKNOWN w-5
        session   has no part 4: Failed("`data_base64` has more bytes than were requested or exist, or none although some exist")
        scheduler resource.read
        worker    resource.data w-6
        scheduler error E.CMD.UNKNOWN w-6
        session   has no part 6: Failed("`data_base64` has more bytes than were requested or exist, or none although some exist")
        scheduler resource.read
        worker    resource.data w-7
        scheduler error E.CMD.UNKNOWN w-7
        session   has no part 8: Failed("`resource_id` or `offset` does not match the request")
        scheduler resource.read
        worker    resource.data w-8
        scheduler error E.CMD.UNKNOWN w-8
        session   has no part 10: Failed("`data_base64` is not base64")
        scheduler resource.read
        worker    resource.data w-9
        session   has part 12: "" of 12
    "#]]);
}

#[test]
fn a_missing_part_is_reported_and_a_worker_without_support_is_not_asked_again() {
    let mut world = World::up();
    for code in ["E.RESOURCE.MISSING", "E.CMD.CONCURRENCY_VIOLATION", "E.INTERNAL", "E.CMD.UNKNOWN"] {
        let asked = world.request_chunk(0).unwrap();
        world.receive_answer("error", &asked, json!({"code": code, "message": "no"}));
    }
    assert_eq!(world.request_chunk(0), Err(PartTrouble::Unknown));
    world.check(&expect![[r#"
        scheduler resource.read
        worker    error w-4
        session   has no part 3: Missing
        scheduler resource.read
        worker    error w-5
        session   has no part 4: Busy
        scheduler resource.read
        worker    error w-6
        session   has no part 5: Failed("E.INTERNAL")
        scheduler resource.read
        worker    error w-7
        session   has no part 6: Unknown
    "#]]);
}

#[test]
fn a_late_part_times_out() {
    let mut world = World::up();
    let asked = world.request_chunk(0).unwrap();
    let beat = json!({"healthy": true, "metrics": {"inflight": 0}});
    let mut given_up = None;
    for second in 1..=60 {
        world.pass(1_000);
        if world.log.contains("has no part 3: TimedOut") && given_up.is_none() {
            given_up = Some(Duration::from_secs(second));
        }
        if second % 5 == 0 {
            world.receive("heartbeat", beat.clone());
            world.answer(Answer::Alive { lease: Span::secs(30) });
        }
    }
    assert_eq!(given_up, Some(CHUNK_TIMEOUT));
    world.log.clear();
    world.receive_chunk(&asked, 0, "YWI=");
    assert!(!world.log.contains("has part"), "no reader waits for it: {}", world.log);
}

#[test]
fn open_requests_to_one_worker_are_bounded() {
    let mut world = World::up();
    let asked: Vec<String> = (0..CHUNK_REQUESTS_MAX).map(|_| world.request_chunk(0).unwrap()).collect();
    assert_eq!(world.request_chunk(0), Err(PartTrouble::Busy));
    world.receive_chunk(&asked[0], 0, "YWI=");
    assert!(world.request_chunk(0).is_ok());
}
