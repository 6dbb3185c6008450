//! Tests of the fields of a profile, and of its record.

use laneway_core::{Bytes, Name, Record, RecordName, Wall};
use laneway_runtime::config::Secret;
use serde_json::json;

use super::record::Codec;
use super::*;

fn fields() -> ProfileFields {
    ProfileFields { name: "Shop".to_owned(), ..ProfileFields::default() }
}

#[test]
fn every_field_has_rules() {
    let full = ProfileFields {
        window: Some((1_280, 800)),
        user_agent: Some("Mozilla/5.0".to_owned()),
        locale: Some("de-DE".to_owned()),
        time_zone: Some("Europe/Berlin".to_owned()),
        ..fields()
    };
    full.validate().unwrap();
    let text = |text: &str| Some(text.to_owned());
    for (wrong, field) in [
        (ProfileFields { name: " ".to_owned(), ..fields() }, "name"),
        (ProfileFields { name: "x".repeat(257), ..fields() }, "name"),
        (ProfileFields { name: "a\nb".to_owned(), ..fields() }, "name"),
        (ProfileFields { window: Some((10, 800)), ..fields() }, "window"),
        (ProfileFields { user_agent: text("a\r\nHost: b"), ..fields() }, "userAgent"),
        (ProfileFields { user_agent: text("ä"), ..fields() }, "userAgent"),
        (ProfileFields { locale: text("--no-sandbox"), ..fields() }, "locale"),
        (ProfileFields { locale: text("d"), ..fields() }, "locale"),
        (ProfileFields { time_zone: text("Mars/Base"), ..fields() }, "timeZone"),
        (ProfileFields { proxy: Some(proxy("ftp")), ..fields() }, "proxy.scheme"),
    ] {
        assert_eq!(wrong.validate().unwrap_err().field, field);
    }
}

fn proxy(scheme: &str) -> ProxySpec {
    ProxySpec {
        scheme: scheme.to_owned(),
        host: "proxy.example".to_owned(),
        port: 1_080,
        username: Some("u".to_owned()),
        password: Some(Secret::new("hunter2")),
    }
}

#[test]
fn a_profile_is_read_as_it_was_written() {
    let profile = Profile {
        fields: ProfileFields { proxy: Some(proxy("socks5")), window: Some((800, 600)), ..fields() },
        trashed_at: Some(Wall(7)),
        cloned_from: Some(ProfileId::parse("p0").unwrap()),
        ..new_profile(ProfileId::parse("p1").unwrap(), fields())
    };
    let codec = Codec { key: None };
    let body = codec.encode("default", &profile).unwrap();
    let decoded = codec.decode(&record(body)).unwrap();
    assert_eq!(decoded.profile, Profile { version: 3, ..profile });
    assert_eq!(decoded.version, VERSION);
}

fn record(body: Bytes) -> Record {
    let name = RecordName {
        tenant: Name::fixed("default"),
        collection: Name::fixed(COLLECTION),
        id: Name::fixed("p1"),
    };
    Record { name, version: 3, body, created_at: Wall(0), updated_at: Wall(0) }
}

#[test]
fn a_record_of_a_later_version_or_without_a_name_is_not_read() {
    let codec = Codec { key: None };
    for (body, why) in [
        (json!({"version": 2, "name": "x"}), "version 2"),
        (json!({"version": 1}), "name"),
        (json!({"name": "x", "proxy": "no URL"}), "proxy"),
        (json!([]), "JSON"),
    ] {
        let error = codec.decode(&record(Bytes::from(body.to_string().into_bytes()))).err().unwrap();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_patch_changes_what_it_names() {
    let current = ProfileFields { proxy: Some(proxy("http")), locale: Some("de".to_owned()), ..fields() };
    let moved = ProxySpec { host: "other.example".to_owned(), password: None, ..proxy("http") };
    let patch =
        ProfilePatch { locale: Some(None), proxy: Some(Some(moved.clone())), ..ProfilePatch::default() };
    let changed = patch.over(&current);
    assert_eq!((changed.name.as_str(), &changed.locale), ("Shop", &None));
    // Another host does not get the password of the present one.
    assert_eq!(changed.proxy, Some(moved));
}
