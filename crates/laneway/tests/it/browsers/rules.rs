//! Rules that hold for profiles and scripts: roles, secrets, tenants, the recycle bin, and what is left after a failure.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use laneway::{Ended, Job, JobHandle, Name, ProfileError, ProfileFields, ProfileId, ProfilePatch, ProxySpec};
use laneway_browser::profiles::{ProfileQuery, ProfileStatus};
use laneway_core::{JobSpec, Origin, RecordName, Role, Submission, TokenRecord, Wall};
use laneway_runtime::config::Secret;
use serde_json::{Value, json};

use super::end_to_end::serve_page;
use super::{World, ended, failure_of, origin, tenant, write_program};

/// Submits a job as the owner of a token, or as another actor.
async fn run_as(world: &World, actor: &str, kind: &str, payload: Value) -> Ended {
    let spec = JobSpec::new(tenant(), Name::new(kind).unwrap());
    let origin = Origin { actor: Name::new(actor).unwrap(), request: None };
    let payload = laneway::Bytes::from(payload.to_string().into_bytes());
    let submitted = world.laneway.scheduler().submit(Submission::new(spec, payload, origin)).await;
    ended(&world.laneway.job(submitted.unwrap().unwrap().job)).await
}

async fn add_token(world: &World, id: &'static str, role: Role) {
    let token = TokenRecord {
        id: Name::fixed(id),
        tenant: None,
        role,
        digest: [role as u8 + 1; 32],
        note: "".into(),
        created_at: Wall(1),
        expires_at: None,
        revoked_at: None,
    };
    let reply = world.laneway.scheduler().put_token(token, origin()).await.unwrap();
    assert!(!matches!(reply, laneway_core::Reply::Rejected(_)), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_operators_run_code_in_pages_whichever_way_the_job_came() {
    let world = World::new().await;
    world.profile("p1").await;
    let started = world.result("browser_start", json!({"profileId": "p1"})).await;
    let script =
        json!({"profileId": "p1", "script": {"steps": [{"kind": "evaluate", "expression": "1 + 1"}]}});
    // The server is open: everybody may do everything.
    assert!(run_as(&world, "open", "script_run", script.clone()).await.succeeded());
    add_token(&world, "a-submitter", Role::Submitter).await;
    add_token(&world, "an-operator", Role::Operator).await;
    for actor in ["a-submitter", "open", "schedule", "cert:submitter:default", "missing"] {
        let denied = run_as(&world, actor, "script_run", script.clone()).await;
        assert_eq!(failure_of(&denied), ("forbidden".to_owned(), false, 1), "{actor}");
    }
    for actor in ["an-operator", "embedded", "cert:operator:default"] {
        let ended = run_as(&world, actor, "script_run", script.clone()).await;
        assert!(ended.succeeded(), "{actor}: {:?}", ended.failure());
    }
    let act =
        |action: &str, params: Value| json!({"tabId": started["tabId"], "action": action, "params": params});
    let evaluate = act("evaluate", json!({"expression": "1 + 1"}));
    let denied = run_as(&world, "a-submitter", "tab_action", evaluate.clone()).await;
    assert!(denied.failure().unwrap().message.contains("403"), "{:?}", denied.failure());
    let allowed = run_as(&world, "an-operator", "tab_action", evaluate).await;
    assert!(allowed.succeeded(), "{:?}", allowed.failure());
    // What runs no code of the caller is for submitters, too.
    let go = act("navigate", json!({"url": serve_page().await}));
    assert!(run_as(&world, "a-submitter", "tab_action", go).await.succeeded());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_runs_only_where_the_configuration_allows_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = "read input; echo working >&2\n\
        printf '{\"url\": \"%s\", \"port\": %s, \"input\": %s, \"secret\": \"%s\"}' \
        \"$LANEWAY_DEVTOOLS_URL\" \"$LANEWAY_DEBUG_PORT\" \"$input\" \"$CARGO_MANIFEST_DIR\"";
    let allowed = write_program(dir.path(), "allowed", script).display().to_string();
    let world = World::with(&[("browsers.programs", vec![allowed.clone()].into())]).await;
    world.profile("p1").await;
    let started = world.result("browser_start", json!({"profileId": "p1"})).await;
    let program = |path: &str| json!({"profileId": "p1", "program": {"path": path, "input": {"n": 7}}});
    let denied = world.run("script_run", program("/bin/sh")).await;
    assert_eq!(failure_of(&denied), ("program_not_allowed".to_owned(), false, 1));
    let result = world.result("script_run", program(&allowed)).await;
    assert_eq!(result["url"], started["devtoolsUrl"]);
    assert_eq!(result["port"], started["debugPort"]);
    assert_eq!(result["input"], json!({"n": 7}));
    assert_eq!(result["secret"], "", "variables of the server are not passed on");
    world.stop().await;
}

fn proxy(password: &str) -> ProxySpec {
    ProxySpec {
        scheme: "http".to_owned(),
        host: "proxy.example".to_owned(),
        port: 3_128,
        username: Some("user".to_owned()),
        password: Some(Secret::new(password)),
    }
}

fn record_name(id: &str) -> RecordName {
    RecordName { tenant: tenant(), collection: Name::fixed("profiles"), id: Name::new(id).unwrap() }
}

#[tokio::test]
async fn passwords_of_proxies_are_encrypted_and_never_printed() {
    let world = World::new().await;
    let profiles = world.laneway.browsers().unwrap().profiles().clone();
    let fields =
        ProfileFields { name: "P".to_owned(), proxy: Some(proxy("hunter2")), ..ProfileFields::default() };
    let id = Some(ProfileId::parse("p1").unwrap());
    let profile = profiles.create(&tenant(), id, fields, origin()).await.unwrap();
    assert_eq!(profile.fields.proxy.as_ref().unwrap().password, Some(Secret::new("hunter2")));
    assert!(!format!("{profile:?}").contains("hunter2"));
    let shown = profile.fields.proxy.as_ref().unwrap().shown();
    assert_eq!((&shown["hasPassword"], shown.to_string().contains("hunter2")), (&json!(true), false));
    let record = world.laneway.scheduler().record(record_name("p1")).await.unwrap().unwrap();
    let stored = String::from_utf8(record.body.to_vec()).unwrap();
    assert!(!stored.contains("hunter2") && stored.contains("sealed:v1:"), "{stored}");
    // The encrypted password is of no use in another record.
    let copied = world.laneway.scheduler().put_record(record_name("p2"), None, record.body, origin()).await;
    copied.unwrap();
    let other = profiles.get(&tenant(), &ProfileId::parse("p2").unwrap()).await.unwrap();
    assert_eq!(other.fields.proxy.unwrap().password, None);
    // A change that does not send the password keeps it.
    let patch = ProfilePatch {
        proxy: Some(Some(ProxySpec { password: None, ..proxy("") })),
        ..ProfilePatch::default()
    };
    let changed = profiles.update(&tenant(), &profile.id, patch, origin()).await.unwrap();
    assert_eq!(changed.fields.proxy.unwrap().password, Some(Secret::new("hunter2")));
    // Neither is one in a payload.
    let given = json!({"proxy": {"host": "127.0.0.1", "port": 1, "username": "u", "password": "hunter2"}});
    let job = world.submit("proxy_test", given).await;
    assert_eq!(failure_of(&ended(&job).await).0, "proxy_unreachable");
    let id = job.id();
    let payload = world.laneway.scheduler().read(move |reader| {
        let seq = reader.job(id)?.expect("the job is stored").row.seq;
        reader.payload(seq)
    });
    let payload = String::from_utf8(payload.await.unwrap().unwrap().to_vec()).unwrap();
    assert!(!payload.contains("hunter2") && payload.contains("sealed:v1:"), "{payload}");
    world.stop().await;
}

#[tokio::test]
async fn a_migration_rewrites_records_of_an_earlier_version_once() {
    let world = World::new().await;
    world.profile("new").await;
    let old = json!({"name": "Old", "proxy": "socks5://user:hunter2@proxy.example:1080", "locale": "de-DE"});
    let body = laneway::Bytes::from(old.to_string().into_bytes());
    world.laneway.scheduler().put_record(record_name("old"), None, body, origin()).await.unwrap();
    let migrated = world.result("db_migration", json!({})).await;
    assert_eq!(migrated, json!({"checked": 2, "migrated": 1}));
    let record = world.laneway.scheduler().record(record_name("old")).await.unwrap().unwrap();
    assert!(!String::from_utf8(record.body.to_vec()).unwrap().contains("hunter2"));
    let profiles = world.laneway.browsers().unwrap().profiles();
    let profile = profiles.get(&tenant(), &ProfileId::parse("old").unwrap()).await.unwrap();
    assert_eq!(profile.fields.locale.as_deref(), Some("de-DE"));
    let proxy = profile.fields.proxy.unwrap();
    assert_eq!((proxy.scheme.as_str(), proxy.port), ("socks5", 1_080));
    assert_eq!(proxy.password, Some(Secret::new("hunter2")));
    let again = world.result("db_migration", json!({})).await;
    assert_eq!(again, json!({"checked": 2, "migrated": 0}));
    world.stop().await;
}

#[tokio::test]
async fn a_profile_goes_into_the_recycle_bin_and_comes_back_or_is_deleted_with_its_files() {
    let world = World::new().await;
    let profiles = world.laneway.browsers().unwrap().profiles().clone();
    let (id, kept) = (world.profile("p1").await, world.profile("kept").await);
    let files = world.dir.path().join("data/browsers/default/p1/Default");
    std::fs::create_dir_all(&files).unwrap();
    let not_there = profiles.delete(&tenant(), &id, origin()).await;
    assert!(matches!(not_there, Err(ProfileError::NotTrashed(_))), "{not_there:?}");
    profiles.trash(&tenant(), &id, origin()).await.unwrap();
    let twice = profiles.trash(&tenant(), &id, origin()).await;
    assert!(matches!(twice, Err(ProfileError::Trashed(_))), "{twice:?}");
    assert_eq!(profiles.restore(&tenant(), &id, origin()).await.unwrap().status(), ProfileStatus::Active);
    profiles.trash(&tenant(), &id, origin()).await.unwrap();
    // It is there for thirty days, unless the job says otherwise.
    let young = world.result("recycle_bin_cleanup", json!({})).await;
    assert_eq!(young, json!({"deleted": []}));
    let over = world.result("recycle_bin_cleanup", json!({"retentionDays": 0})).await;
    assert_eq!(over, json!({"deleted": ["p1"]}));
    assert!(!files.exists() && profiles.get(&tenant(), &kept).await.is_ok());
    let gone = profiles.get(&tenant(), &id).await;
    assert!(matches!(gone, Err(ProfileError::NotFound(_))), "{gone:?}");
    world.stop().await;
}

#[tokio::test]
async fn profiles_are_listed_by_page_and_text_for_their_tenant() {
    let world = World::new().await;
    let profiles = world.laneway.browsers().unwrap().profiles().clone();
    for id in ["a1", "a2", "b1"] {
        world.profile(id).await;
    }
    let query = |search: Option<&str>, offset, limit| ProfileQuery {
        search: search.map(str::to_owned),
        offset,
        limit,
        ..ProfileQuery::default()
    };
    let page = profiles.list(&tenant(), &query(None, 1, 1)).await.unwrap();
    assert_eq!((page.total, page.profiles.len()), (3, 1));
    let found = profiles.list(&tenant(), &query(Some("PROFILE A"), 0, 10)).await.unwrap();
    assert_eq!(found.total, 2);
    assert_eq!(profiles.list(&Name::fixed("other"), &query(None, 0, 10)).await.unwrap().total, 0);
    let id = ProfileId::parse("a1").unwrap();
    let exists = profiles.create(&tenant(), Some(id), fields("x"), origin()).await;
    assert!(matches!(exists, Err(ProfileError::Exists(_))), "{exists:?}");
    let bad = profiles.create(&tenant(), None, fields(""), origin()).await;
    assert!(matches!(bad, Err(ProfileError::Invalid(_))), "{bad:?}");
    let mode = std::fs::metadata(world.dir.path().join("data/browsers")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    world.stop().await;
}

fn fields(name: &str) -> ProfileFields {
    ProfileFields { name: name.to_owned(), ..ProfileFields::default() }
}

#[tokio::test]
async fn a_copy_that_fails_leaves_nothing_and_one_that_succeeded_is_not_made_twice() {
    let world = World::new().await;
    let (_, existing) = (world.profile("p1").await, world.profile("p2").await);
    let folder = world.dir.path().join("data/browsers/default");
    write_file(&folder.join("p1/Default/Cookies"), "cookies");
    write_file(&folder.join("p2/Default/Cookies"), "others");
    let taken = json!({"profileId": "p1", "newProfileId": existing.as_str()});
    let ended = world.run("profile_clone", taken).await;
    assert_eq!(failure_of(&ended), ("profile_exists".to_owned(), false, 1));
    assert_eq!(std::fs::read_to_string(folder.join("p2/Default/Cookies")).unwrap(), "others");
    // What an earlier attempt left is no obstacle.
    write_file(&folder.join("p3/Default/Cookies"), "half a copy");
    let made = world.result("profile_clone", json!({"profileId": "p1", "newProfileId": "p3"})).await;
    assert_eq!(made["clonedFrom"], "p1");
    assert_eq!(std::fs::read_to_string(folder.join("p3/Default/Cookies")).unwrap(), "cookies");
    // Without an id, each job makes one of its own.
    let job: JobHandle = world.submit("profile_clone", json!({"profileId": "p1"})).await;
    let copy: Value = super::ended(&job).await.json().unwrap();
    assert_eq!(copy["profileId"], format!("c-{}", job.id()));
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
    world.stop().await;
}

fn write_file(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn a_job_cannot_choose_its_own_place() {
    // A key of its own would be a place beside the limit.
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let job = Job::new("browser_start").json(&json!({"profileId": "p1"})).key("browser", "elsewhere");
    let job = world.laneway.submit(job).await.unwrap();
    let id = job.id();
    let row = world.laneway.scheduler().read(move |reader| reader.job(id)).await.unwrap().unwrap().row;
    let values: Vec<&str> = row.spec.keys.iter().map(|key| key.value.as_str()).collect();
    assert_eq!(values, ["open", "p1"]);
    job.cancel().await.unwrap();
    world.stop().await;
}
