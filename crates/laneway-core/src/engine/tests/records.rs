//! Records: versions, limits and restarts.

use crate::engine::tests::scenario::{START, Scenario, check};
use crate::record::{
    BODY_BYTES_MAX, COLLECTION_BYTES_MAX, COLLECTION_LEN_MAX, COLLECTIONS_PER_TENANT_MAX, TENANT_BYTES_MAX,
};
use crate::{Bytes, Name, Record, RecordName};
use expect_test::expect;

#[test]
fn a_record_is_stored_changed_and_deleted() {
    check(expect![[r#"
        put profiles/p1 body=one
            record.put profiles/p1 version 1
        wait 5s
        put profiles/p1 body=two
            record.put profiles/p1 version 2
        put profiles/p2 body=other
            record.put profiles/p2 version 3
        records profiles
            p1 version 2: "two", created at 0 s, updated at 5 s
            p2 version 3: "other", created at 5 s, updated at 5 s
        records profiles after=p1
            p2 version 3: "other", created at 5 s, updated at 5 s
        records profiles limit=1
            p1 version 2: "two", created at 0 s, updated at 5 s
        remove profiles/p1
            record.deleted profiles/p1 version 2
        records profiles
            p2 version 3: "other", created at 5 s, updated at 5 s
        remove profiles/p1
            not found
    "#]]);
}

#[test]
fn another_version_than_expected_changes_nothing() {
    check(expect![[r#"
        put profiles/p1 body=one expected=7
            conflict: version 0
        put profiles/p1 body=one expected=0
            record.put profiles/p1 version 1
        put profiles/p1 body=two expected=0
            conflict: version 1
        put profiles/p1 body=two expected=1
            record.put profiles/p1 version 2
        put profiles/p1 body=three expected=1
            conflict: version 2
        remove profiles/p1 expected=1
            conflict: version 2
        records profiles
            p1 version 2: "two", created at 0 s, updated at 0 s
        remove profiles/p1 expected=2
            record.deleted profiles/p1 version 2
        put profiles/p1 body=again expected=0
            record.put profiles/p1 version 4
        put profiles/p1 body=more expected=2
            conflict: version 4
        records profiles
            p1 version 4: "again", created at 0 s, updated at 0 s
    "#]]);
}

#[test]
fn tenants_have_their_own_records() {
    check(expect![[r#"
        put profiles/p1 body=one tenant=t1 expected=0
            record.put profiles/p1 version 1
        put profiles/p1 body=two tenant=t2 expected=0
            record.put profiles/p1 version 2
        records profiles tenant=t1
            p1 version 1: "one", created at 0 s, updated at 0 s
        remove profiles/p1 tenant=t3
            not found
        remove profiles/p1 tenant=t2
            record.deleted profiles/p1 version 2
        records profiles tenant=t1
            p1 version 1: "one", created at 0 s, updated at 0 s
    "#]]);
}

#[test]
fn records_survive_restarts_with_their_versions() {
    check(expect![[r#"
        put profiles/p1 body=one
            record.put profiles/p1 version 1
        put profiles/p2 body=gone | remove profiles/p2
            record.put profiles/p2 version 2
            record.deleted profiles/p2 version 2
        crash
        records profiles
            p1 version 1: "one", created at 0 s, updated at 0 s
        put profiles/p1 body=two expected=1
            record.put profiles/p1 version 4
        rebuild
        records profiles
            p1 version 4: "two", created at 0 s, updated at 0 s
    "#]]);
}

#[test]
fn nothing_is_stored_while_storage_is_low_and_deleting_works() {
    check(expect![[r#"
        put profiles/p1 body=one
            record.put profiles/p1 version 1
        storage low
        put profiles/p1 body=two
            rejected: storage_low: storage runs low; free disk space, then store the record again
        remove profiles/p1
            record.deleted profiles/p1 version 1
    "#]]);
}

/// An engine with a record of so many bytes in the collection of the tenant.
fn stored(scenario: &mut Scenario, (tenant, collection, id): (&str, &str, usize), bytes: usize) {
    let name = |text: &str| Name::new(text).unwrap();
    let id = format!("{id:06}");
    let body = vec![0; bytes - id.len()].into();
    let name = RecordName { tenant: name(tenant), collection: name(collection), id: name(&id) };
    let (created_at, updated_at) = (START.wall, START.wall);
    scenario.store_record(Record { name, version: 1, body, created_at, updated_at });
}

fn put(scenario: &mut Scenario, record: &str) -> String {
    scenario.play(&format!("put {record}")).remove(0)
}

#[test]
fn a_body_is_bounded() {
    let mut scenario = Scenario::new();
    let body = |bytes: usize| "x".repeat(bytes);
    let fits = put(&mut scenario, &format!("c/a body={}", body(BODY_BYTES_MAX)));
    assert!(fits.starts_with("record.put c/a"), "{fits}");
    let rejected = put(&mut scenario, &format!("c/a body={}", body(BODY_BYTES_MAX + 1)));
    assert_eq!(rejected, "rejected: invalid: body: has 65537 bytes; at most 65536 are allowed");
}

#[test]
fn a_collection_is_bounded_in_number_and_others_are_not_affected() {
    let mut scenario = Scenario::new();
    for id in 0..COLLECTION_LEN_MAX {
        stored(&mut scenario, ("default", "c", id), 10);
    }
    let rejected = put(&mut scenario, "c/new");
    assert!(rejected.starts_with("rejected: too_many: collection: c has 10000 records"), "{rejected}");
    for fits in ["c/000007 body=changed", "d/new", "c/new tenant=other"] {
        let stored = put(&mut scenario, fits);
        assert!(stored.starts_with("record.put"), "{fits}: {stored}");
    }
    scenario.play("remove c/000001");
    let stored = put(&mut scenario, "c/new");
    assert!(stored.starts_with("record.put"), "{stored}");
}

#[test]
fn collections_and_tenants_are_bounded_in_bytes() {
    let mut scenario = Scenario::new();
    let records = COLLECTION_BYTES_MAX / BODY_BYTES_MAX;
    for collection in ["c", "d"] {
        for id in 0..records {
            stored(&mut scenario, ("default", collection, id), BODY_BYTES_MAX);
        }
    }
    assert_eq!(2 * COLLECTION_BYTES_MAX, TENANT_BYTES_MAX);
    let rejected = put(&mut scenario, "c/a");
    let expected = "rejected: too_many: body: the records of collection c of tenant default may have";
    assert!(rejected.starts_with(expected), "{rejected}");
    let rejected = put(&mut scenario, "e/a");
    let expected = "rejected: too_many: body: the records of tenant default may have";
    assert!(rejected.starts_with(expected), "{rejected}");
    for fits in ["c/000001 body=smaller", "c/a", "c/a tenant=other"] {
        let stored = put(&mut scenario, fits);
        assert!(stored.starts_with("record.put"), "{fits}: {stored}");
    }
}

/// Tenants that store all they can leave space for the first records of others.
#[test]
fn defect_11_records_of_many_tenants_leave_space_for_others() {
    let mut scenario = Scenario::new();
    let (body, name) = (Bytes::from(vec![0; BODY_BYTES_MAX - 6]), |text: &str| Name::new(text).unwrap());
    let records = TENANT_BYTES_MAX / BODY_BYTES_MAX;
    for tenant in 0..14 {
        for id in 0..records {
            let collection = if id < records / 2 { "c" } else { "d" };
            let (tenant, id) = (name(&format!("t{tenant}")), name(&format!("{id:06}")));
            let (created_at, updated_at) = (START.wall, START.wall);
            let name = RecordName { tenant, collection: name(collection), id };
            scenario.store_record(Record { name, version: 1, body: body.clone(), created_at, updated_at });
        }
    }
    let text = "x".repeat(BODY_BYTES_MAX - 6);
    let mut fill = |tenant: &str| {
        let fits = |id: &usize| {
            let collection = if *id < records / 2 { "c" } else { "d" };
            put(&mut scenario, &format!("{collection}/{id:06} tenant={tenant} body={text}"))
                .starts_with("record")
        };
        (0..records).take_while(fits).count()
    };
    assert_eq!(fill("u"), records, "a tenant that finds the reserve has its limit");
    assert_eq!(fill("v"), records / 2, "the next one leaves as much as it has");
    assert_eq!(fill("w"), records / 4);
    let rejected = put(&mut scenario, &format!("d/new tenant=v body={text}"));
    assert!(rejected.starts_with("rejected: too_many: body: the records of this server"), "{rejected}");
    for fits in ["c/000001 tenant=v body=smaller", "c/a tenant=x"] {
        let stored = put(&mut scenario, fits);
        assert!(stored.starts_with("record.put"), "{fits}: {stored}");
    }
}

#[test]
fn a_tenant_has_a_bounded_number_of_collections() {
    let mut scenario = Scenario::new();
    for number in 0..COLLECTIONS_PER_TENANT_MAX {
        put(&mut scenario, &format!("c{number}/a"));
    }
    let rejected = put(&mut scenario, "one_more/a");
    assert!(rejected.starts_with("rejected: too_many: collection: tenant default has 16"), "{rejected}");
    scenario.play("remove c3/a");
    let stored = put(&mut scenario, "one_more/a");
    assert!(stored.starts_with("record.put"), "{stored}");
}
