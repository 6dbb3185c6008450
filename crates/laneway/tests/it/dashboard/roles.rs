//! Who sees and does what: login, cookies, forged requests, and every role on every page and action.

use serde_json::{Value, json};

use super::World;

#[tokio::test]
async fn a_browser_at_the_root_finds_the_dashboard_and_programs_find_the_index() {
    let world = World::new(&[]);
    assert_eq!(world.server.banner["dashboard"], json!(format!("{}/ui/", world.server.url)));
    let root = format!("{}/", world.server.url);
    let page =
        world.client.get(&root).header("accept", "text/html,application/xhtml+xml").send().await.unwrap();
    assert_eq!((page.status().as_u16(), page.headers()["location"].to_str().unwrap()), (303, "ui/"));
    for accept in ["*/*", "application/json"] {
        let index = world.client.get(&root).header("accept", accept).send().await.unwrap();
        assert_eq!(index.json::<Value>().await.unwrap()["name"], "laneway");
    }
    let bare = world.client.get(format!("{}/ui", world.server.url)).send().await.unwrap();
    assert_eq!(bare.headers()["location"].to_str().unwrap(), "ui/");
    let page = world.get("", "").await;
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert!(page.text().await.unwrap().contains("<h1>Overview</h1>"));
}

#[tokio::test]
async fn the_dashboard_can_be_moved_and_switched_off() {
    let world = World::new(&["--set", "dashboard.prefix=\"/tools/lw\""]);
    let page = world.client.get(format!("{}/tools/lw/jobs", world.server.url)).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.text().await.unwrap().contains("href=\"./assets/style.css"), "links are relative");
    let world = World::new(&["--set", "dashboard.enabled=false"]);
    assert_eq!(world.get("", "").await.status(), 404);
    let root = world
        .client
        .get(format!("{}/", world.server.url))
        .header("accept", "text/html")
        .send()
        .await
        .unwrap();
    assert_eq!(root.json::<Value>().await.unwrap()["name"], "laneway");
    assert_eq!(world.server.banner["dashboard"], Value::Null);
}

#[tokio::test]
async fn a_session_begins_with_a_token_and_ends_with_it() {
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let asked = world.get("jobs?state=failed", "").await;
    assert_eq!(asked.headers()["location"].to_str().unwrap(), "./login?next=jobs%3Fstate%3Dfailed");
    let form = world.get("login?next=jobs%3Fstate%3Dfailed", "").await.text().await.unwrap();
    assert!(form.contains("value=\"jobs?state=failed\""), "{form}");
    let wrong = world.post("login", "", &[("token", "lw_0000_1111")]).await;
    assert_eq!(wrong.status(), 401);
    assert!(!wrong.headers().contains_key("set-cookie"));
    let response = world.post("login", "", &[("token", &admin), ("next", "jobs?state=failed")]).await;
    assert_eq!(response.headers()["location"].to_str().unwrap(), "./jobs?state=failed");
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(&admin) && !cookie.contains("Path="), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let page = world.get("", cookie).await.text().await.unwrap();
    assert!(page.contains("Log out") && !page.contains(&admin));
    // Another token is revoked while its owner reads.
    let viewer = world.token(&admin, "viewer", "*").await;
    let other = world.log_in(&viewer).await;
    assert_eq!(world.get("jobs", &other).await.status(), 200);
    let id = viewer.split('_').nth(1).unwrap();
    world.call("DELETE", &format!("/v1/tokens/{id}"), &admin, Value::Null).await;
    assert_eq!(world.get("jobs", &other).await.status(), 303, "the session has ended");
    // Logout.
    let csrf = world.csrf(cookie).await;
    assert_eq!(world.post("logout", cookie, &[("csrf", &csrf)]).await.status(), 303);
    assert_eq!(world.get("jobs", cookie).await.status(), 303);
}

#[tokio::test]
async fn secure_cookies_behind_a_proxy_with_tls() {
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let response = world
        .client
        .post(world.at("login"))
        .header("x-forwarded-proto", "https")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("token={admin}"))
        .send()
        .await
        .unwrap();
    assert!(response.headers()["set-cookie"].to_str().unwrap().contains("; Secure"));
}

#[tokio::test]
async fn forged_forms_change_nothing() {
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let cookie = world.log_in(&admin).await;
    let csrf = world.csrf(&cookie).await;
    let wrong: [&[(&str, &str)]; 3] = [&[], &[("csrf", "")], &[("csrf", "0000")]];
    for fields in wrong {
        assert_eq!(world.post("lanes/main/pause", &cookie, fields).await.status(), 403, "{fields:?}");
    }
    for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        let request =
            world.client.post(world.at("lanes/main/pause")).header("cookie", &cookie).header(name, value);
        let request =
            request.header("content-type", "application/x-www-form-urlencoded").body(format!("csrf={csrf}"));
        assert_eq!(request.send().await.unwrap().status(), 403, "{name}");
    }
    let lane = world.call("GET", "/v1/lanes/main", &admin, Value::Null).await;
    assert_eq!(lane["paused"], false);
    let right =
        world.post("lanes/main/pause", &cookie, &[("csrf", &csrf), ("back", "https://evil.example")]).await;
    assert_eq!(
        (right.status().as_u16(), right.headers()["location"].to_str().unwrap()),
        (303, "../../lanes/main")
    );
    assert_eq!(world.call("GET", "/v1/lanes/main", &admin, Value::Null).await["paused"], true);
}

/// Each page with the roles that may open it, and each action with the roles that may do it. A role with `*` is server-wide.
#[tokio::test]
async fn every_role_on_every_page_and_action() {
    const READERS: &[&str] =
        &["admin*", "operator*", "submitter*", "viewer*", "admin", "operator", "submitter", "viewer"];
    const SUBMITTERS: &[&str] = &["admin*", "operator*", "submitter*", "admin", "operator", "submitter"];
    const OPERATORS: &[&str] = &["admin*", "operator*", "admin", "operator"];
    const OF_SERVER: &[&str] = &["admin*", "operator*"];
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let job = world.call("POST", "/v1/jobs", &admin, json!({"kind": "echo"})).await;
    let job = job["id"].as_str().unwrap().to_owned();
    world.until(&job, &admin, "succeeded").await;
    let schedule = json!({"name": "n", "every": "1h", "job": {"kind": "echo"}});
    let schedule =
        world.call("POST", "/v1/schedules", &admin, schedule).await["id"].as_str().unwrap().to_owned();
    let (job_page, schedule_page) = (format!("jobs/{job}"), format!("schedules/{schedule}"));
    let pages: [(&str, &[&str]); 18] = [
        ("", READERS),
        ("?range=1d", READERS),
        ("jobs", READERS),
        (&job_page, READERS),
        ("runs", READERS),
        ("schedules", READERS),
        (&schedule_page, READERS),
        ("sessions", READERS),
        ("sessions/s", READERS),
        ("lanes", READERS),
        ("lanes/main", READERS),
        ("agents", READERS),
        ("workers", READERS),
        ("capacity", READERS),
        ("browsers", READERS),
        ("webhooks", READERS),
        ("audit", OPERATORS),
        ("settings", OF_SERVER),
    ];
    let (retry, fire) = (format!("jobs/{job}/retry"), format!("schedules/{schedule}/fire"));
    let (pause, resume) = (format!("schedules/{schedule}/pause"), format!("schedules/{schedule}/resume"));
    let actions: [(&str, &[&str]); 11] = [
        (&retry, SUBMITTERS),
        (&fire, SUBMITTERS),
        (&pause, SUBMITTERS),
        (&resume, SUBMITTERS),
        ("sessions/s/stop", SUBMITTERS),
        ("sessions/s/stopall", SUBMITTERS),
        ("sessions/s/reset", SUBMITTERS),
        ("sessions/reset", OPERATORS),
        ("lanes/main/pause", OF_SERVER),
        ("lanes/main/resume", OF_SERVER),
        ("settings/reload", &["admin*"]),
    ];
    for role in
        ["admin*", "operator*", "submitter*", "viewer*", "admin", "operator", "submitter", "viewer", "worker"]
    {
        let (name, tenant) = (role.trim_end_matches('*'), if role.ends_with('*') { "*" } else { "default" });
        let cookie = world.log_in(&world.token(&admin, name, tenant).await).await;
        let sleep = json!({"kind": "sleep", "session": "s", "payload": {"ms": 600_000}});
        world.call("POST", "/v1/jobs", &admin, sleep).await;
        for (page, allowed) in &pages {
            let status = world.get(page, &cookie).await.status().as_u16();
            assert_eq!(status, if allowed.contains(&role) { 200 } else { 403 }, "{role} reads {page:?}");
        }
        let csrf = {
            let page = world.get("nowhere", &cookie).await.text().await.unwrap();
            page.split_once("name=\"csrf\" value=\"").unwrap().1.split('"').next().unwrap().to_owned()
        };
        for (action, allowed) in &actions {
            let status = world.post(action, &cookie, &[("csrf", &csrf)]).await.status().as_u16();
            let expected: &[u16] = if allowed.contains(&role) { &[303, 409] } else { &[403] };
            assert!(expected.contains(&status), "{role} sends {action}: {status}");
        }
        // What a role may not do, it does not see.
        if let ("viewer", Ok(page)) = (name, world.get("lanes", &cookie).await.text().await) {
            assert!(!page.contains("lanes/main/pause"), "{role}");
        }
    }
}

#[tokio::test]
async fn payloads_can_be_hidden_from_viewers() {
    let world = World::new(&["--set", "server.viewer_payloads=hidden"]);
    let admin = world.token("", "admin", "*").await;
    let job = world
        .call("POST", "/v1/jobs", &admin, json!({"kind": "echo", "payload": {"pin": "4711-secret"}}))
        .await;
    let job = job["id"].as_str().unwrap().to_owned();
    world.until(&job, &admin, "succeeded").await;
    let viewer = world.token(&admin, "viewer", "default").await;
    let (seen, hidden) = (world.log_in(&admin).await, world.log_in(&viewer).await);
    let page = format!("jobs/{job}");
    assert!(world.get(&page, &seen).await.text().await.unwrap().contains("4711-secret"));
    let page = world.get(&page, &hidden).await.text().await.unwrap();
    assert!(page.contains("hidden from your role") && !page.contains("4711-secret"));
    for path in ["", "/payload", "/logs"] {
        let url = format!("{}/v1/jobs/{job}{path}", world.server.url);
        let response = world.client.get(url).bearer_auth(&viewer).send().await.unwrap();
        assert_eq!(response.status(), if path.is_empty() { 200 } else { 403 }, "{path}");
        assert!(!response.text().await.unwrap().contains("4711-secret"));
    }
    let list = world.call("GET", "/v1/jobs", &viewer, Value::Null).await;
    assert!(!list.to_string().contains("4711-secret") && list["jobs"][0]["state"] == "succeeded");
}
