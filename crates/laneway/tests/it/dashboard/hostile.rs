//! Hostile texts in every field that users control: shown as text, never executed, on pages that stay usable.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::chromium::Browser;
use super::content::{FLAGS, HOSTILE, HOSTILE_TEXT, fill_with_hostile_names, work};
use super::pages::check_page;
use super::{PATIENCE, World};

/// A text as a page shows it: control characters and marks of direction are visible.
fn shown(text: &str) -> String {
    let visible = |c: char| match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap(),
        '\u{202e}' => '\u{fffd}',
        other => other,
    };
    text.chars().map(visible).collect()
}

fn encoded(text: &str) -> String {
    let mut url = reqwest::Url::parse("http://x/").unwrap();
    url.path_segments_mut().unwrap().push(text);
    url.path().trim_start_matches('/').to_owned()
}

/// True when the page shows this text somewhere in its main part.
async fn shows(browser: &mut Browser, text: &str) -> bool {
    // Names keep marks of direction, which `bdi` isolates; other texts show them.
    let script = format!(
        "[{text:?}, {:?}].some((text) => document.getElementById('main').textContent.includes(text))",
        shown(text)
    );
    let script = script
        .replace("\\u{202e}", "\\u202e")
        .replace("\\u{7}", "\\u0007")
        .replace("\\u{1b}", "\\u001b")
        .replace("\\0", "\\u0000");
    browser.eval(&script).await == json!(true)
}

#[tokio::test]
async fn hostile_texts_stay_text_on_every_page() {
    let dir = TempDir::new().unwrap();
    let ids = fill_with_hostile_names(&dir).await;
    let long_lane = format!("lanes.{}.running_max=3", "w".repeat(128));
    let flags = [&FLAGS[..], &["--set", &long_lane]].concat();
    let world = World::over(dir, &flags);
    // The API takes no zero characters.
    let printable_text = HOSTILE_TEXT.replace('\0', "");
    let post = async |path: &str, body: Value| world.call("POST", path, "", body).await;
    let _helper = work(&world, HOSTILE, &format!("label:{}={}", &HOSTILE[..40], &HOSTILE[..40])).await;
    let schedule =
        json!({"name": HOSTILE, "every": "1h", "job": {"kind": "echo", "payload": {"text": printable_text}}});
    let schedule = post("/v1/schedules", schedule).await["id"].as_str().unwrap().to_owned();
    let printable: String = HOSTILE.chars().filter(|c| *c != '\u{202e}').collect();
    post("/v1/profiles", json!({"id": "shop", "name": printable})).await;
    let url = format!("http://127.0.0.1:9/{}?a={}", encoded(HOSTILE), encoded(HOSTILE));
    let hooked =
        post("/v1/jobs", json!({"kind": "echo", "callback": url})).await["id"].as_str().unwrap().to_owned();
    let leased =
        post("/v1/jobs", json!({"kind": "crawl", "lane": "pull"})).await["id"].as_str().unwrap().to_owned();
    let lease = post("/v1/leases", json!({"worker": "c", "job": leased})).await["lease"]["id"].clone();
    let report = json!({"worker": "c", "progress": 0.5, "message": printable_text});
    post(&format!("/v1/leases/{}/report", lease.as_str().unwrap()), report).await;

    // Each page, and a text that it must show.
    let pages: [(&str, String, &str); 21] = [
        ("failed-job", format!("jobs/{}", ids.failed), HOSTILE_TEXT),
        ("failed-job", format!("jobs/{}", ids.failed), HOSTILE),
        ("noisy-job", format!("jobs/{}", ids.noisy), HOSTILE_TEXT),
        ("binary-job", format!("jobs/{}", ids.binary), "\u{fffd}\u{fffd}\u{2400}<script>"),
        ("huge-job", format!("jobs/{}", ids.huge), "The beginning of"),
        ("leased-job", format!("jobs/{leased}"), &printable_text),
        ("overview", String::new(), HOSTILE),
        ("jobs", "jobs".to_owned(), HOSTILE),
        ("jobs-of-agent", format!("jobs?search={}", encoded("<zzz>")), "No job matches"),
        ("runs", "runs".to_owned(), HOSTILE),
        ("run", format!("runs/{}", ids.run), HOSTILE),
        ("schedules", "schedules".to_owned(), HOSTILE),
        ("schedule", format!("schedules/{schedule}"), HOSTILE),
        ("session", format!("sessions/{}", encoded(HOSTILE)), HOSTILE),
        ("lane", format!("lanes/{}", "w".repeat(128)), "wwww"),
        ("lanes", "lanes".to_owned(), "wwww"),
        ("agents", "agents".to_owned(), HOSTILE),
        ("workers", "workers".to_owned(), HOSTILE),
        ("browsers", "browsers".to_owned(), &printable),
        ("webhook", format!("webhooks/{hooked}"), "onerror"),
        ("audit", "audit".to_owned(), "Audit"),
    ];
    let mut browser = Browser::start().await;
    for (name, page, text) in &pages {
        check_page(&world, &mut browser, page, &format!("hostile-{name}"), 200).await;
        assert!(
            shows(&mut browser, text).await,
            "{name} shows {text:?}: {}",
            browser.eval("document.getElementById('main').textContent").await
        );
    }
    // What the address itself carries is text, too.
    let asked = encoded(HOSTILE);
    for page in [
        format!("jobs?kind={asked}"),
        format!("jobs?state={asked}"),
        format!("jobs?cursor={asked}"),
        format!("jobs/{asked}"),
        format!("runs?state={asked}"),
        format!("webhooks?state={asked}"),
        format!("settings?search={asked}"),
        format!("audit?action={asked}"),
        format!("lanes/{asked}"),
        format!("sessions/{asked}x"),
        format!("login?next={asked}"),
        asked.clone(),
    ] {
        browser.open(&world.at(&page), "light", 390).await;
        assert_ne!(browser.eval("document.title").await, json!("owned"), "{page}");
        let wide = browser.eval("Math.max(document.documentElement.scrollWidth, innerWidth) > 390").await;
        assert_eq!(wide, json!(false), "{page} scrolls sideways");
    }
    assert_eq!(browser.violations().await, Vec::<String>::new(), "no script was even tried");
    // A worker of this name can be drained: its name survives the way through the address.
    browser.open(&world.at("workers"), "light", 1280).await;
    browser.press("Drain", "gets no new tasks").await;
    let workers = world.call("GET", "/v1/workers", "", Value::Null).await;
    assert_eq!(
        (&workers["workers"][0]["id"], &workers["workers"][0]["drained"]),
        (&json!(HOSTILE), &json!(true))
    );
    // An artifact of a hostile name and type is a download, never a page.
    let list = world.call("GET", &format!("/v1/jobs/{}/artifacts", ids.noisy), "", Value::Null).await;
    let artifact = list["artifacts"][0]["id"].as_str().unwrap();
    let response = world.get(&format!("artifacts/{artifact}"), "").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/octet-stream".parse().unwrap())
    );
    assert!(response.headers()["content-disposition"].to_str().unwrap().starts_with("attachment"));
}

/// Ten thousand log lines: the page has the last ones, stays light, and follows new ones.
#[tokio::test]
async fn a_job_with_ten_thousand_log_lines_has_a_usable_page() {
    let world = World::new(&FLAGS);
    let _helper = work(&world, "press-1", "gpu").await;
    let job =
        world.call("POST", "/v1/jobs", "", json!({"kind": "noisy"})).await["id"].as_str().unwrap().to_owned();
    world.until(&job, "", "succeeded").await;
    let mut browser = Browser::start().await;
    let begin = std::time::Instant::now();
    check_page(&world, &mut browser, &format!("jobs/{job}"), "ten-thousand-lines", 200).await;
    assert!(begin.elapsed() < PATIENCE / 4, "four views took {:?}", begin.elapsed());
    let elements = browser.eval("document.querySelectorAll('*').length").await.as_u64().unwrap();
    assert!(elements < 2_500, "the page has {elements} elements");
    assert_eq!(browser.eval("document.querySelectorAll('.log li').length").await, 300);
    assert_eq!(browser.eval("document.querySelectorAll('.log .log').length").await, 0);
    let last = browser.eval("document.querySelector('.log li:last-child').textContent").await;
    let first = browser.eval("document.querySelector('.log li').textContent").await;
    assert!(first.as_str().unwrap().contains("line "), "{first}");
    let page = world.get(&format!("jobs/{job}"), "").await.text().await.unwrap();
    assert!(page.contains("9700 earlier ones") || page.contains("earlier ones are in"), "{last}");
}
