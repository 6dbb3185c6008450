//! Every page in real Chromium: buttons, hostile texts, themes, a phone, and a server that stops and comes back.

use serde_json::{Value, json};

use super::World;
use super::chromium::Browser;

/// Texts that must stay text.
const HOSTILE: &str =
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u{202e}\u{7}'\"&";

/// The paths of all pages without an id.
const PAGES: [&str; 13] = [
    "",
    "jobs",
    "runs",
    "schedules",
    "sessions",
    "lanes",
    "agents",
    "workers",
    "capacity",
    "browsers",
    "webhooks",
    "audit",
    "settings",
];

/// Most bytes of a page with everything that it loads.
const WEIGHT_MAX: usize = 150 * 1024;

/// Fills a server with jobs of all sorts. The result are the pages with ids.
async fn fill(world: &World) -> Vec<String> {
    let post = async |path: &str, body: Value| world.call("POST", path, "", body).await;
    let text = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let hostile = post("/v1/jobs", json!({"kind": "echo", "agent": "a", "payload": {"text": HOSTILE}})).await;
    let large = post("/v1/jobs", json!({"kind": "echo", "payload": {"text": "x".repeat(1_000_000)}})).await;
    let failed = post("/v1/jobs", json!({"kind": "fail", "payload": {"permanent": true}})).await;
    let running =
        post("/v1/jobs", json!({"kind": "sleep", "session": "chat:1", "payload": {"ms": 600_000}})).await;
    for _ in 0..60 {
        post(
            "/v1/jobs",
            json!({"kind": "sleep", "session": "chat:1", "payload": {"ms": 600_000}, "tags": ["batch"]}),
        )
        .await;
    }
    let nodes = json!([{"node": "a", "job": {"kind": "echo"}}, {"node": "b", "job": {"kind": "sleep", "payload": {"ms": 600_000}}, "depends_on": ["a"]}]);
    let run = post("/v1/runs", json!({"name": "digest", "nodes": nodes})).await;
    let schedule = json!({"name": "nightly", "cron": "0 3 * * *", "job": {"kind": "echo", "payload": {"text": HOSTILE}}});
    let schedule = post("/v1/schedules", schedule).await;
    post("/v1/profiles", json!({"id": "shop", "name": HOSTILE.replace(['\u{202e}', '\u{7}'], "")})).await;
    for (job, state) in
        [(&hostile, "succeeded"), (&large, "succeeded"), (&failed, "failed"), (&running, "running")]
    {
        world.until(&text(job), "", state).await;
    }
    let jobs = [&hostile, &large, &failed, &running].map(|job| format!("jobs/{}", text(job)));
    let mut pages = jobs.to_vec();
    pages.extend([format!("runs/{}", text(&run)), format!("schedules/{}", text(&schedule))]);
    pages.extend(
        ["sessions/chat:1", "lanes/main", "jobs?state=failed&kind=fail", "?range=1d"].map(str::to_owned),
    );
    pages
}

#[tokio::test]
async fn every_page_is_light_safe_and_fits_a_phone() {
    let world = World::new(&[]);
    let mut pages = fill(&world).await;
    pages.extend(PAGES.map(str::to_owned));
    let mut browser = Browser::start().await;
    for page in &pages {
        let response = world.get(page, "").await;
        assert_eq!(response.status(), 200, "{page}");
        let mut weight = response.text().await.unwrap().len();
        for file in ["assets/style.css", "assets/app.js", "assets/icon.svg"] {
            weight += world.get(file, "").await.bytes().await.unwrap().len();
        }
        assert!(weight <= WEIGHT_MAX, "{page} has {weight} bytes");
        for (theme, width) in [("light", 1280), ("dark", 390)] {
            browser.open(&world.at(page), theme, width).await;
            let name: String = page.chars().filter(|c| c.is_ascii_alphanumeric()).take(12).collect();
            browser.screenshot(&format!("{name}-{theme}-{width}")).await;
            assert_ne!(browser.eval("document.title").await, json!("owned"), "{page}");
            assert_eq!(
                browser.eval("document.images.length > 2").await,
                json!(false),
                "{page} has a foreign picture"
            );
            let wide = browser.eval("document.documentElement.scrollWidth > innerWidth").await;
            assert_eq!(wide, json!(false), "{page} scrolls sideways at {width}");
            assert_ne!(browser.eval("document.querySelector('h1').textContent.trim()").await, json!(""));
        }
    }
    assert_eq!(browser.violations().await, Vec::<String>::new(), "the content policy holds");
}

#[tokio::test]
async fn buttons_keys_and_the_theme_switch_work() {
    let world = World::new(&[]);
    let pages = fill(&world).await;
    let mut browser = Browser::start().await;
    let (failed, running, run, schedule) = (&pages[2], &pages[3], &pages[4], &pages[5]);
    // Each button leads to a page with a note.
    let buttons: [(&str, &str); 12] = [
        (failed.as_str(), "Retry as a new job"),
        (running, "Cancel job"),
        (run, "Cancel run"),
        (schedule, "Run now"),
        (schedule, "Pause"),
        (schedule, "Resume"),
        ("sessions/chat:1", "Stop"),
        ("sessions/chat:1", "Stop all"),
        ("sessions/chat:1", "Reset"),
        ("sessions", "Reset all sessions"),
        ("lanes", "Pause"),
        ("lanes", "Resume"),
    ];
    for (page, button) in buttons {
        browser.open(&world.at(page), "light", 1280).await;
        let press = format!(
            "window.confirm = () => true; [...document.querySelectorAll('main button')].find((b) => b.textContent === {button:?}).click()"
        );
        browser.eval(&press).await;
        browser.until("document.querySelector('.note') !== null", &format!("{button} on {page}")).await;
    }
    // A change of limits is previewed first.
    browser.open(&world.at("lanes/main"), "light", 1280).await;
    browser.eval("document.querySelector('[name=running_max]').value = 3; document.querySelector('[value=preview]').click()").await;
    browser
        .until("document.querySelector('.preview')?.textContent.includes('At most 3')", "the preview")
        .await;
    browser.eval("document.querySelector('[value=apply]').click()").await;
    browser
        .until("document.querySelector('.note')?.textContent.includes('in effect')", "the new limits")
        .await;
    assert_eq!(world.call("GET", "/v1/lanes/main", "", Value::Null).await["running_max"], 3);
    // Selected jobs.
    browser.open(&world.at("jobs?state=failed"), "light", 1280).await;
    browser
        .eval("document.querySelector('[data-all]').click(); document.querySelector('[value=retry]').click()")
        .await;
    browser
        .until("document.querySelector('.note')?.textContent.startsWith('Retried')", "the selected jobs")
        .await;
    // All jobs of a filter: counted first.
    browser.open(&world.at("jobs?kind=fail"), "light", 1280).await;
    browser.eval("[...document.querySelectorAll('main button')].find((b) => b.textContent.startsWith('Retry all')).click()").await;
    browser
        .until("document.querySelector('.preview')?.textContent.includes('Nothing has changed')", "the count")
        .await;
    browser.eval("[...document.querySelectorAll('main button')].find((b) => b.textContent === 'Retry them').click()").await;
    browser.until("document.querySelector('.note')?.textContent.includes('started')", "the operation").await;
    browser.until("document.querySelector('main .state.s-done') !== null", "the end of the operation").await;
    // Keys: the filter, rows, and another page.
    browser.open(&world.at("jobs"), "light", 1280).await;
    let key = |key: &str| {
        format!("document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: {key:?}, bubbles: true}}))")
    };
    browser.eval(&key("/")).await;
    browser.until("document.activeElement.name === 'search'", "the filter").await;
    browser.eval("document.activeElement.blur()").await;
    browser.eval(&key("j")).await;
    browser.until("document.querySelectorAll('tr.at').length === 1", "the first row").await;
    browser.eval(&key("?")).await;
    browser.until("document.getElementById('keys').open", "the list of keys").await;
    browser.eval("document.getElementById('keys').close()").await;
    browser.eval(&key("g")).await;
    browser.eval(&key("l")).await;
    browser.until("document.querySelector('h1')?.textContent === 'Lanes'", "the lanes").await;
    browser.eval("document.querySelector('[data-theme-switch]').click(); document.querySelector('[data-theme-switch]').click()").await;
    browser.until("document.documentElement.dataset.theme === 'dark'", "the dark theme").await;
}

#[tokio::test]
async fn a_page_shows_new_jobs_by_itself_and_survives_a_stopped_server() {
    let world = World::new(&[]);
    let mut browser = Browser::start().await;
    browser.open(&world.at("jobs"), "light", 1280).await;
    browser.until("document.querySelector('.pulse.on') !== null", "the stream").await;
    world.call("POST", "/v1/jobs", "", json!({"kind": "echo", "agent": "newcomer"})).await;
    browser.until("document.querySelector('main').textContent.includes('newcomer')", "the new job").await;
    let address = world.server.url.clone();
    let World { server, _dir: dir, .. } = world;
    assert_eq!(server.stop(), Some(0), "open pages do not hold up a stop");
    browser.until("!document.querySelector('[data-offline]').hidden", "the message").await;
    let server = crate::cli::Server::start_at(address.strip_prefix("http://").unwrap(), dir.path(), &[]);
    browser.until("document.querySelector('[data-offline]').hidden", "the return").await;
    server.submit(&["echo", "--agent", "second-life"]);
    browser.until("document.querySelector('main').textContent.includes('second-life')", "the next job").await;
}
