//! Who sees and does what: login, cookies, forged requests, and every role on every page and action.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::World;
use super::content::{FLAGS, Ids, fill, work};

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

/// The paths of the pages, and of the forms, as the dashboard matches them: `jobs/{id}/cancel`. They come from its source, so that a
/// new one cannot be forgotten here.
fn routes() -> (BTreeSet<String>, BTreeSet<String>) {
    let source = include_str!("../../../../laneway-dashboard/src/pages.rs");
    let (reads, changes) = source.split_once("/// Answers a form.").unwrap();
    let paths = |text: &str| {
        let arms = text.lines().map(str::trim).filter(|line| line.starts_with('[') && line.contains("=>"));
        arms.flat_map(|line| expand(line.split("=>").next().unwrap())).collect()
    };
    (paths(reads), paths(changes))
}

/// The paths of one pattern: `["jobs", id, action @ ("cancel" | "retry")]` has two.
fn expand(pattern: &str) -> Vec<String> {
    let inner = pattern.trim().trim_start_matches('[').trim_end_matches(']');
    let parts = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.fold(vec![String::new()], |paths, part| {
        let quoted: Vec<&str> = part.split('"').skip(1).step_by(2).collect();
        let choices = if quoted.is_empty() { vec!["{id}"] } else { quoted };
        let join = |path: &String, choice: &str| {
            if path.is_empty() { choice.to_owned() } else { format!("{path}/{choice}") }
        };
        paths.iter().flat_map(|path| choices.iter().map(move |choice| join(path, choice))).collect()
    })
}

/// Who may do what. A role with `*` is server-wide.
const READERS: &[&str] =
    &["admin*", "operator*", "submitter*", "viewer*", "admin", "operator", "submitter", "viewer"];
const SUBMITTERS: &[&str] = &["admin*", "operator*", "submitter*", "admin", "operator", "submitter"];
const OPERATORS: &[&str] = &["admin*", "operator*", "admin", "operator"];
const OF_SERVER: &[&str] = &["admin*", "operator*"];
const SERVER_WIDE: &[&str] = &["admin*", "operator*", "submitter*", "viewer*"];
const ADMIN: &[&str] = &["admin*"];

/// Every page with the roles that may open it.
const PAGES: [(&str, &[&str]); 25] = [
    ("", READERS),
    ("jobs", READERS),
    ("jobs/{id}", READERS),
    ("jobs/{id}/payload", READERS),
    ("jobs/{id}/result", READERS),
    ("artifacts/{id}", READERS),
    ("operations", READERS),
    ("operations/{id}", READERS),
    ("runs", READERS),
    ("runs/{id}", READERS),
    ("schedules", READERS),
    ("schedules/{id}", READERS),
    ("sessions", READERS),
    ("sessions/{id}", READERS),
    ("lanes", READERS),
    ("lanes/{id}", READERS),
    ("agents", READERS),
    ("workers", READERS),
    ("capacity", READERS),
    ("browsers", READERS),
    ("webhooks", READERS),
    ("webhooks/{id}", READERS),
    ("audit", OPERATORS),
    ("settings", OF_SERVER),
    ("tenants", SERVER_WIDE),
];

/// Every form with the roles that may send it.
const FORMS: [(&str, &[&str]); 27] = [
    ("jobs/selected", SUBMITTERS),
    ("jobs/{id}/cancel", SUBMITTERS),
    ("jobs/{id}/retry", SUBMITTERS),
    ("jobs/{id}/reschedule", SUBMITTERS),
    ("jobs/{id}/priority", SUBMITTERS),
    ("jobs/{id}/delete", OPERATORS),
    ("operations", SUBMITTERS),
    ("operations/{id}/cancel", SUBMITTERS),
    ("runs/{id}/cancel", SUBMITTERS),
    ("schedules/{id}/pause", SUBMITTERS),
    ("schedules/{id}/resume", SUBMITTERS),
    ("schedules/{id}/fire", SUBMITTERS),
    ("sessions/reset", OPERATORS),
    ("sessions/{id}/stop", SUBMITTERS),
    ("sessions/{id}/stopall", SUBMITTERS),
    ("sessions/{id}/reset", SUBMITTERS),
    ("lanes/{id}/pause", OF_SERVER),
    ("lanes/{id}/resume", OF_SERVER),
    ("lanes/{id}/limits", OF_SERVER),
    ("workers/{id}/drain", OPERATORS),
    ("workers/{id}/resume", OPERATORS),
    ("leases/{id}/revoke", SUBMITTERS),
    ("browsers/{id}/start", SUBMITTERS),
    ("browsers/{id}/stop", SUBMITTERS),
    ("webhooks/{id}/replay", SUBMITTERS),
    ("settings", ADMIN),
    ("settings/reload", ADMIN),
];

/// A path with the ids of things that exist.
fn with_ids(path: &str, ids: &Ids) -> String {
    let id = match path.split('/').next().unwrap() {
        "jobs" => &ids.echo,
        "artifacts" => "00000000-0000-7000-8000-000000000000.1",
        "operations" => &ids.operation,
        "runs" => &ids.run,
        "schedules" => &ids.schedule,
        "sessions" => "chat:1",
        "lanes" => "main",
        "workers" => "press-1",
        "leases" => &ids.lease,
        "browsers" => "shop",
        "webhooks" => &ids.hooked,
        _ => "",
    };
    path.replace("{id}", id)
}

#[tokio::test]
async fn every_role_on_every_page_and_action() {
    let (reads, changes) = routes();
    let known =
        |of: &[(&str, &[&str])]| of.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        (known(&PAGES), known(&FORMS)),
        (reads, changes),
        "a row for each path, and a path for each row"
    );

    // Jobs of browsers fail at once, without Chromium.
    let world = World::new(&[&FLAGS[..], &["--set", "browsers.chromium=\"/nowhere/chromium\""]].concat());
    let ids = fill(&world).await;
    let _helper = work(&world, "press-1", "gpu").await;
    let admin = world.token("", "admin", "*").await;
    for role in
        ["admin*", "operator*", "submitter*", "viewer*", "admin", "operator", "submitter", "viewer", "worker"]
    {
        let (name, tenant) = (role.trim_end_matches('*'), if role.ends_with('*') { "*" } else { "default" });
        let cookie = world.log_in(&world.token(&admin, name, tenant).await).await;
        let sleep = json!({"kind": "sleep", "session": "chat:1", "payload": {"ms": 600_000}});
        let waiting = world.call("POST", "/v1/jobs", &admin, sleep).await;
        for (path, allowed) in PAGES {
            let status = world.get(&with_ids(path, &ids), &cookie).await.status().as_u16();
            let expected = match allowed.contains(&role) {
                true if path == "artifacts/{id}" => 404,
                // The operation of the test is one of the whole server.
                true if path == "operations/{id}" && tenant != "*" => 404,
                true => 200,
                false => 403,
            };
            assert_eq!(status, expected, "{role} reads {path:?}");
        }
        let csrf = {
            let page = world.get("nowhere", &cookie).await.text().await.unwrap();
            page.split_once("name=\"csrf\" value=\"").unwrap().1.split('"').next().unwrap().to_owned()
        };
        for (path, allowed) in FORMS {
            let fields = [
                ("csrf", csrf.as_str()),
                ("id", ids.failed.as_str()),
                ("action", "retry"),
                ("kind", "fail"),
                ("key", "lanes.main.running_max"),
                ("value", "9"),
                ("start", "1h"),
                ("priority", "5"),
            ];
            // Only ended jobs are deleted. This one is not, so every role finds all pages.
            let path_now = match path {
                "jobs/{id}/delete" => path.replace("{id}", waiting["id"].as_str().unwrap()),
                _ => with_ids(path, &ids),
            };
            let status = world.post(&path_now, &cookie, &fields).await.status().as_u16();
            // 200: the question before a change. 404: the lease of the test is revoked already.
            let expected: &[u16] = match allowed.contains(&role) {
                true if path == "leases/{id}/revoke" => &[303, 404, 409],
                true if path == "operations/{id}/cancel" && tenant != "*" => &[404],
                true => &[200, 303, 409],
                false => &[403],
            };
            assert!(expected.contains(&status), "{role} sends {path}: {status}");
        }
        check_buttons(&world, &cookie, role, &ids).await;
    }
}

/// A page has only forms that its reader may send.
async fn check_buttons(world: &World, cookie: &str, role: &str, ids: &Ids) {
    for (path, _) in PAGES.iter().filter(|(path, readers)| readers.contains(&role) && !path.contains("load"))
    {
        let page = world.get(&with_ids(path, ids), cookie).await;
        if !page.headers()["content-type"].to_str().unwrap().starts_with("text/html") {
            continue;
        }
        let page = page.text().await.unwrap();
        for part in page.split("method=\"post\" action=\"").skip(1) {
            let action = part.split('"').next().unwrap().trim_start_matches("./").trim_start_matches("../");
            if action == "logout" {
                continue;
            }
            let allowed = |(form, roles): &(&str, &[&str])| {
                let fits = form.split('/').count() == action.split('/').count()
                    && form
                        .split('/')
                        .zip(action.split('/'))
                        .all(|(form, part)| form == "{id}" || form == part);
                fits && roles.contains(&role)
            };
            assert!(FORMS.iter().any(allowed), "{role} sees a form to {action} on {path:?}");
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

/// A server-wide reader can look at one tenant alone. The selection is part of the address, and a bound reader cannot widen its own.
#[tokio::test]
async fn a_tenant_can_be_selected_in_the_address() {
    let world = World::new(&[]);
    let admin = world.token("", "admin", "*").await;
    let acme = world.token(&admin, "submitter", "acme").await;
    let here = world.call("POST", "/v1/jobs", &admin, json!({"kind": "echo", "agent": "at-home"})).await;
    let there = world.call("POST", "/v1/jobs", &acme, json!({"kind": "echo", "agent": "abroad"})).await;
    for job in [&here, &there] {
        world.until(job["id"].as_str().unwrap(), &admin, "succeeded").await;
    }
    let cookie = world.log_in(&admin).await;
    let text = async |path: &str, cookie: &str| world.get(path, cookie).await.text().await.unwrap();
    let page = text("jobs", &cookie).await;
    assert!(page.contains("at-home") && page.contains("abroad") && page.contains("All tenants"), "{page}");
    let tenants = text("tenants", &cookie).await;
    assert!(tenants.contains("./@acme/") && tenants.contains("./@default/"), "{tenants}");
    let page = text("@acme/jobs", &cookie).await;
    assert!(!page.contains("at-home") && page.contains("abroad"), "{page}");
    // Links stay with the tenant, and the way out is one click.
    assert!(page.contains("href=\"./lanes\"") && page.contains("href=\"../jobs\""), "{page}");
    let stats = text("@acme/agents", &cookie).await;
    assert!(!stats.contains("at-home") && stats.contains("abroad"), "{stats}");
    assert_eq!(world.get("@acme", &cookie).await.headers()["location"], "@acme/");
    let named = world.get("tenants?tenant=acme", &cookie).await;
    assert_eq!(named.headers()["location"], "./@acme/");
    // A job of another tenant does not exist there.
    let job = here["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("@acme/jobs/{job}"), &cookie).await.status(), 404);
    assert_eq!(world.get(&format!("@default/jobs/{job}"), &cookie).await.status(), 200);
    // Changes go to the tenant.
    let csrf = world.csrf(&cookie).await;
    world
        .call("POST", "/v1/jobs", &acme, json!({"kind": "sleep", "session": "s", "payload": {"ms": 600_000}}))
        .await;
    let stopped = world.post("@acme/sessions/s/stopall", &cookie, &[("csrf", &csrf)]).await;
    assert_eq!(stopped.headers()["location"], "../../sessions/s");
    // A reader of one tenant sees its own, and no other.
    let bound = world.log_in(&acme).await;
    assert_eq!(world.get("@acme/jobs", &bound).await.status(), 200);
    assert_eq!(world.get("@default/jobs", &bound).await.status(), 403);
    assert_eq!(world.get("tenants", &bound).await.status(), 403);
    assert_eq!(world.get("@%3Cscript%3E/jobs", &cookie).await.status(), 400);
    // Without a session, the login comes first and leads back.
    let asked = world.get("@acme/jobs?state=failed", "").await;
    assert_eq!(asked.headers()["location"], "../login?next=%40acme%2Fjobs%3Fstate%3Dfailed");
}

/// Lanes and tenants that the configuration adds differ from the default only where it says so.
#[tokio::test]
async fn settings_show_what_was_changed_and_what_was_added() {
    let flags = ["--set", "lanes.bulk.queued_max=5", "--set", "kinds.render.timeout=\"9m\""];
    let world = World::new(&flags);
    let page = world.get("settings", "").await.text().await.unwrap();
    let part = |from: &str, to: &str| page.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned();
    let changed = part("Different from the default", "Added by the configuration");
    assert!(changed.contains("lanes.bulk.queued_max"), "{changed}");
    for key in ["lanes.bulk.running_max", "lanes.bulk.order", "lanes.main", "kinds.render"] {
        assert!(!changed.contains(key), "{key} in {changed}");
    }
    let added = part("Added by the configuration", "As by default");
    assert!(added.contains("kinds.render.timeout") && !added.contains("lanes."), "{added}");
}
