//! Profiles: create, list, recycle bin, restore.

use serde_json::{Value, json};

use super::world::World;

#[tokio::test]
async fn a_profile_is_created_with_every_field_and_its_password_is_not_shown() {
    let world = World::new("").await;
    let body = json!({
        "id": "shop-1", "name": "Shop", "window": {"width": 1280, "height": 800}, "userAgent": "UA/1",
        "locale": "de-DE", "timeZone": "Europe/Berlin",
        "proxy": {"scheme": "socks5", "host": "127.0.0.1", "port": 1080, "username": "u", "password": "secret"},
    });
    let (status, answer) = world.post("/api/env/create/quick", body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        answer["data"],
        json!({
            "id": "shop-1", "name": "Shop", "status": "active", "isOpen": false,
            "proxy": {"scheme": "socks5", "host": "127.0.0.1", "port": 1080, "username": "u", "hasPassword": true},
            "window": {"width": 1280, "height": 800}, "userAgent": "UA/1", "locale": "de-DE",
            "timeZone": "Europe/Berlin", "clonedFrom": null, "createdAt": "2023-11-14T22:13:20Z",
            "updatedAt": "2023-11-14T22:13:20Z", "trashedAt": null,
        })
    );
    let (status, answer) = world.post("/api/env/create/quick", json!({"id": "shop-1"})).await;
    assert_eq!((status, &answer["code"]), (400, &json!(-1603)), "the id is taken: {answer}");
    let (status, answer) = world.post("/api/env/create/quick", Value::Null).await;
    assert_eq!((status, &answer["data"]["name"]), (200, &json!("Profile 2023-11-14T22:13:20Z")), "{answer}");
}

#[tokio::test]
async fn profiles_are_listed_by_page_text_and_status() {
    let world = World::new("").await;
    let mut ids = Vec::new();
    for name in ["alpha", "beta", "alphabet"] {
        ids.push(world.profile(name).await);
    }
    world.trashed_profile("old alpha").await;
    let listed = async |query: &str| {
        let (status, answer) = world.get(&format!("/api/env/list?{query}")).await;
        assert_eq!(status, 200, "{answer}");
        let names = answer["data"]["list"].as_array().unwrap().iter();
        let mut names: Vec<String> =
            names.map(|profile| profile["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        (names, answer["data"]["total"].as_u64().unwrap())
    };
    assert_eq!(listed("").await, (vec!["alpha".to_owned(), "alphabet".to_owned(), "beta".to_owned()], 3));
    assert_eq!(listed("search=ALPHA").await, (vec!["alpha".to_owned(), "alphabet".to_owned()], 2));
    assert_eq!(listed("status=trashed").await, (vec!["old alpha".to_owned()], 1));
    assert_eq!(listed("status=all").await.1, 4);
    let (first, total) = listed("pageSize=2").await;
    assert_eq!((first.len(), total), (2, 3));
    assert_eq!(listed("pageSize=2&pageNum=2").await.0.len(), 1);
    assert_eq!(listed("pageNum=9").await.0.len(), 0);
}

#[tokio::test]
async fn a_profile_goes_to_the_recycle_bin_and_comes_back() {
    let world = World::new("").await;
    let (one, other) = (world.profile("one").await, world.trashed_profile("other").await);
    let ids = json!({"ids": [one, other, "no-such-profile", "NO WAY"]});
    let (status, answer) = world.post("/api/env/removeToRecycleBin/batch", ids).await;
    assert_eq!((status, &answer["code"]), (200, &json!(0)));
    assert_eq!(answer["data"]["removed"], json!([one]));
    let failed: Vec<(&str, i64)> = answer["data"]["failed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failed| (failed["id"].as_str().unwrap(), failed["code"].as_i64().unwrap()))
        .collect();
    assert_eq!(failed, [(other.as_str(), -1004), ("no-such-profile", -1001), ("NO WAY", -1001)]);
    let (status, answer) = world.post(&format!("/api/profiles/{one}/restore"), json!({})).await;
    assert_eq!((status, &answer["data"]["status"]), (200, &json!("active")), "{answer}");
    let (status, answer) = world.post(&format!("/api/profiles/{one}/restore"), Value::Null).await;
    assert_eq!((status, &answer["data"]["status"]), (200, &json!("active")), "again: {answer}");
    world.enqueue("/api/env/start", json!({"id": one})).await;
}

#[tokio::test]
async fn clone_and_cleanup_do_what_they_say_with_the_real_handlers() {
    let world = World::with_browsers("").await;
    let id = world.profile("shop").await;
    let clone = world.enqueue("/api/env/clone", json!({"id": id, "name": "copy"})).await;
    let job = world.ended(&clone).await;
    assert_eq!(job["status"], "succeeded", "{job}");
    let copy = job["result"]["profileId"].as_str().unwrap();
    let (_, answer) = world.get("/api/env/list?search=copy").await;
    assert_eq!(answer["data"]["list"][0]["clonedFrom"], json!(id), "{answer}");
    world.post("/api/env/removeToRecycleBin/batch", json!({"ids": [copy]})).await;
    let cleanup = world.enqueue("/api/recycleBin/cleanup", json!({"retentionDays": 0})).await;
    assert_eq!(world.ended(&cleanup).await["status"], "succeeded");
    let (_, answer) = world.get("/api/env/list?status=all").await;
    assert_eq!(answer["data"]["total"], 1, "{answer}");
}
