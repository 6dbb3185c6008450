//! Which resources are kept, for how long, and for which reader.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use laneway_wire::frame::ResourceRead;

use super::*;
use crate::worker::samples::dispatch;

fn bytes(len: usize) -> ResourceBody {
    ResourceBody::Bytes(vec![0; len].into())
}

fn attempt(seq: u64) -> TaskKey {
    TaskKey { task_id: Text::fixed("t"), seq }
}

fn at(second: i64) -> Wall {
    Wall::from_second(second).unwrap()
}

fn ask(id: &str, offset: u64, limit: u32) -> ResourceRead {
    ResourceRead { resource_id: Text::fixed(id), offset, limit }
}

/// A part of a resource as bytes, with the size of the whole; or the code of the rejection.
fn read(resources: &Resources, asked: &ResourceRead, now: Wall) -> Result<(u64, Vec<u8>), ErrorCode> {
    let data = resources.read(asked, now).map_err(|rejection| rejection.code)?;
    assert_eq!((&data.resource_id, data.offset), (&asked.resource_id, asked.offset));
    Ok((data.size_bytes, STANDARD.decode(&data.data_base64).unwrap()))
}

fn wanted(id: &str, worker: &str) -> ResourceRef {
    ResourceRef {
        resource_id: Text::fixed(id),
        worker_id: Text::fixed(worker),
        r#type: Text::fixed("file"),
        scope: None,
        expires_at: None,
        metadata: None,
    }
}

fn refer_to(resources: &Resources, refs: Vec<ResourceRef>) -> Result<(), Rejection> {
    let mut dispatch = dispatch("t1", "resize");
    dispatch.resource_refs = Some(laneway_wire::frame::List::new(refs).unwrap());
    resources.check(&dispatch, at(1_000))
}

fn refer(resources: &Resources, id: &str, worker: &str) -> Result<(), Rejection> {
    refer_to(resources, vec![wanted(id, worker)])
}

#[test]
fn d17_a_task_with_a_missing_resource_fails_fast() {
    let resources = Resources::new(Text::fixed("w-1"));
    let late = Wall::from_second(2_000).unwrap();
    let early = Wall::from_second(1_000).unwrap();
    let put = |id: &str, kind: &str, until: Wall| {
        resources.put(Text::fixed(id), Text::fixed(kind), Scope::Session, bytes(1), until).unwrap();
    };
    put("there", "file", late);
    put("expired", "file", early);
    put("other", "model", late);
    assert_eq!(refer(&resources, "there", "w-1"), Ok(()));
    for (id, worker) in [("there", "w-2"), ("expired", "w-1"), ("other", "w-1"), ("nowhere", "w-1")] {
        let rejection = refer(&resources, id, worker).unwrap_err();
        assert_eq!(
            (rejection.code, rejection.part),
            (ErrorCode::ResourceMissing, "worker.resources"),
            "{id}"
        );
    }
}

/// The original system takes leases one by one, and keeps those that it has when the next one is not available.
#[test]
fn af_x15_a_task_that_misses_one_resource_holds_none_of_the_others() {
    let resources = Resources::new(Text::fixed("w-1"));
    let run = Scope::Run(Text::fixed("r1"));
    resources.put(Text::fixed("there"), Text::fixed("file"), run, bytes(3), at(2_000)).unwrap();
    assert!(refer_to(&resources, vec![wanted("there", "w-1"), wanted("nowhere", "w-1")]).is_err());
    resources.release_run("r1");
    assert_eq!(resources.usage(), (0, 0), "no task uses it any more");
}

#[test]
fn used_resources_are_not_removed() {
    let resources = Resources::new(Text::fixed("w-1"));
    let until = Wall::from_second(1).unwrap();
    let run = Scope::Run(Text::fixed("r1"));
    resources.put(Text::fixed("a"), Text::fixed("file"), run, bytes(3), until).unwrap();
    let key = TaskKey { task_id: Text::fixed("t"), seq: 1 };
    resources.lock().get_mut("a").unwrap().users.push(key.clone());
    resources.release_run("r1");
    assert_eq!(resources.collect(Wall::MAX), 0);
    resources.release(&key);
    assert_eq!(resources.collect(Wall::MAX), 1);
    assert_eq!(resources.usage(), (0, 0));
}

#[test]
fn a_file_is_removed_with_its_resource() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    std::fs::write(&path, "x").unwrap();
    let resources = Resources::new(Text::fixed("w-1"));
    let artifact =
        resources.keep_for_run("file", "r1", &attempt(1), ResourceBody::File(path.clone()), None).unwrap();
    assert_eq!((artifact.size_bytes, artifact.inline), (Some(1), Some(false)));
    resources.release_run("r2");
    assert!(path.exists());
    resources.release_run("r1");
    assert!(!path.exists());
}

#[test]
fn memory_is_bounded() {
    let resources = Resources::new(Text::fixed("w-1"));
    let put = |id: &str, len: usize| {
        resources.put(Text::fixed(id), Text::fixed("file"), Scope::Session, bytes(len), Wall::MAX)
    };
    put("a", RESOURCE_BYTES_MAX).unwrap();
    assert_eq!(put("b", 1).unwrap_err().code, "resources_full");
}

#[test]
fn parts_of_memory_and_of_files_are_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    std::fs::write(&path, "0123456789").unwrap();
    let resources = Resources::new(Text::fixed("w-1"));
    let put = |id: &str, body: ResourceBody| {
        resources.put(Text::fixed(id), Text::fixed("file"), Scope::Session, body, Wall::MAX).unwrap();
    };
    put("memory", ResourceBody::Bytes(b"0123456789".as_slice().into()));
    put("file", ResourceBody::File(path.clone()));
    for id in ["memory", "file"] {
        let part = |offset, limit| {
            read(&resources, &ask(id, offset, limit), at(1)).map(|(size, part)| (size, part.len()))
        };
        assert_eq!(read(&resources, &ask(id, 3, 4), at(1)), Ok((10, b"3456".to_vec())), "{id}");
        assert_eq!(part(8, 4), Ok((10, 2)), "{id}: the end is the end");
        assert_eq!(part(10, 4), Ok((10, 0)), "{id}: nothing behind it");
        assert_eq!(part(u64::MAX, u32::MAX), Ok((10, 0)), "{id}: nor far behind it");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read(&resources, &ask("file", 0, 1), at(1)), Err(ErrorCode::ResourceMissing));
    assert_eq!(read(&resources, &ask("../made", 0, 1), at(1)), Err(ErrorCode::ResourceMissing));
    assert_eq!(read(&resources, &ask(path.to_str().unwrap(), 0, 1), at(1)), Err(ErrorCode::ResourceMissing));
}

#[test]
fn a_resource_that_expires_during_a_read_is_read_to_its_end() {
    let resources = Resources::new(Text::fixed("w-1"));
    resources.put(Text::fixed("a"), Text::fixed("file"), Scope::Session, bytes(9), at(100)).unwrap();
    assert_eq!(read(&resources, &ask("a", 0, 4), at(99)), Ok((9, vec![0; 4])));
    // It has expired, but a reader has not finished.
    assert_eq!(resources.collect(at(120)), 0);
    assert_eq!(read(&resources, &ask("a", 4, 4), at(120)), Ok((9, vec![0; 4])));
    assert_eq!(
        read(&resources, &ask("a", 0, 4), at(120)),
        Err(ErrorCode::ResourceMissing),
        "no new download begins"
    );
    // A reader that pauses for too long loses it.
    let silent = 120 + i64::try_from(RESOURCE_READ_HOLD.as_secs()).unwrap();
    assert_eq!(read(&resources, &ask("a", 8, 4), at(silent)), Err(ErrorCode::ResourceMissing));
    assert_eq!(resources.collect(at(silent)), 1);
}

#[test]
fn resources_of_an_attempt_without_a_result_are_dropped() {
    let resources = Resources::new(Text::fixed("w-1"));
    let keep = |seq| resources.keep_for_run("file", "r1", &attempt(seq), bytes(1), None).unwrap();
    let (failed, good) = (keep(1), keep(2));
    resources.release_made(&attempt(1));
    assert_eq!(resources.body(&failed.resource_id), None);
    assert!(resources.body(&good.resource_id).is_some());
}

#[test]
fn a_folder_is_removed_with_its_last_file() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    std::fs::create_dir(&folder).unwrap();
    let resources = Resources::new(Text::fixed("w-1"));
    for (name, until) in [("a", 10), ("b", 20)] {
        let path = folder.join(name);
        std::fs::write(&path, name).unwrap();
        let body = ResourceBody::FileInFolder(path);
        resources.put(Text::fixed(name), Text::fixed("file"), Scope::Session, body, at(until)).unwrap();
    }
    assert_eq!(resources.collect(at(15)), 1);
    assert!(folder.exists());
    assert_eq!(resources.collect(at(25)), 1);
    assert!(!folder.exists() && root.path().exists());
}

#[test]
fn no_file_is_left_when_the_worker_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    std::fs::write(&path, "x").unwrap();
    let resources = Resources::new(Text::fixed("w-1"));
    resources.keep_for_run("file", "r1", &attempt(1), ResourceBody::File(path.clone()), None).unwrap();
    resources.close();
    assert_eq!((path.exists(), resources.usage()), (false, (0, 0)));
}

#[test]
fn a_new_body_under_an_old_name_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    std::fs::write(&path, "x").unwrap();
    let resources = Resources::new(Text::fixed("w-1"));
    let put = |body| {
        resources.put(Text::fixed("a"), Text::fixed("file"), Scope::Session, body, Wall::MAX).unwrap();
    };
    put(ResourceBody::File(path.clone()));
    put(ResourceBody::File(path.clone()));
    assert!(path.exists(), "the same file stays");
    put(bytes(1));
    assert!(!path.exists());
}

#[test]
fn only_files_become_artifacts() {
    let folder = tempfile::tempdir().unwrap();
    let resources = Resources::new(Text::fixed("w-1"));
    for path in [folder.path().to_owned(), folder.path().join("nothing")] {
        let kept = resources.keep_for_run("file", "r1", &attempt(1), ResourceBody::File(path), None);
        assert_eq!(kept.unwrap_err().code, "bad_artifact");
    }
}

#[test]
fn disk_use_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let resources = Resources::new(Text::fixed("w-1"));
    let put = |name: &str, len: u64| {
        // A sparse file takes no disk space.
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        let body = ResourceBody::File(path);
        resources.put(Text::fixed(name), Text::fixed("file"), Scope::Session, body, Wall::MAX)
    };
    put("a", RESOURCE_FILE_BYTES_MAX).unwrap();
    assert_eq!(put("b", 1).unwrap_err().code, "resources_full");
}
