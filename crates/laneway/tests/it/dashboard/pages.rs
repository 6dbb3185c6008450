//! Every page in real Chromium: both themes, two widths, empty and full, and a server that stops and comes back.

use serde_json::{Value, json};

use super::World;
use super::chromium::Browser;
use super::content::{FLAGS, fill, work};

/// The paths of all pages without an id.
const PAGES: [&str; 15] = [
    "",
    "jobs",
    "operations",
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
    "tenants",
];

/// Most bytes of a page with everything that it loads.
const WEIGHT_MAX: usize = 150 * 1024;

/// Checks what holds for each page: its weight, its title, that nothing scrolls sideways, that texts are readable.
pub async fn check_page(world: &World, browser: &mut Browser, page: &str, name: &str, status: u16) {
    let response = world.get(page, "").await;
    assert_eq!(response.status(), status, "{page}");
    let mut weight = response.text().await.unwrap().len();
    for file in ["assets/style.css", "assets/app.js", "assets/icon.svg"] {
        weight += world.get(file, "").await.bytes().await.unwrap().len();
    }
    assert!(weight <= WEIGHT_MAX, "{page} has {weight} bytes");
    for (theme, width) in [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)] {
        browser.open(&world.at(page), theme, width).await;
        browser.screenshot(&format!("{name}-{theme}-{width}")).await;
        assert_ne!(browser.eval("document.title").await, json!("owned"), "{page}");
        let images = browser.eval("document.images.length > 2").await;
        assert_eq!(images, json!(false), "{page} has a foreign picture");
        let wide = browser
            .eval(&format!("Math.max(document.documentElement.scrollWidth, innerWidth) > {width}"))
            .await;
        assert_eq!(wide, json!(false), "{page} scrolls sideways at {width}");
        assert_ne!(browser.eval("document.querySelector('h1').textContent.trim()").await, json!(""));
        let faint = browser.eval(FAINT).await;
        assert_eq!(faint, json!([]), "texts of {page} with too little contrast, {theme}");
    }
}

/// Texts whose contrast with their ground is below 4.5 (WCAG AA), with the contrast.
const FAINT: &str = r"(() => {
    const parse = (text) => { const n = text.match(/[\d.]+/g).map(Number); return { c: n.slice(0, 3), a: n[3] ?? 1 }; };
    const shine = (c) => c.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    const light = (c) => { const [r, g, b] = shine(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const { c, a } = parse(getComputedStyle(at).backgroundColor);
            if (a === 1) return c;
        }
        return parse(getComputedStyle(document.body).backgroundColor).c;
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *')) {
        const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent.trim()).join('');
        if (!text || element.closest('svg, [hidden], dialog, .sr, .skip, script') || !element.checkVisibility()) continue;
        const style = getComputedStyle(element);
        if (style.color.startsWith('color(') || element.disabled) continue;
        const [a, b] = [light(parse(style.color).c), light(ground(element))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) faint.push(text.slice(0, 30) + ' ' + contrast.toFixed(2));
    }
    return faint;
})()";

#[tokio::test]
async fn every_page_is_light_readable_and_fits_a_phone() {
    let world = World::new(&FLAGS);
    let mut browser = Browser::start().await;
    for page in PAGES {
        let name = if page.is_empty() { "overview" } else { page };
        check_page(&world, &mut browser, page, &format!("empty-{name}"), 200).await;
    }
    let ids = fill(&world).await;
    let _helper = work(&world, "press-1", "label:zone=eu").await;
    for page in PAGES {
        let name = if page.is_empty() { "overview" } else { page };
        check_page(&world, &mut browser, page, name, 200).await;
    }
    for (name, page) in ids.pages() {
        check_page(&world, &mut browser, &page, name, if name == "no-page" { 404 } else { 200 }).await;
    }
    assert_eq!(browser.violations().await, Vec::<String>::new(), "the content policy holds");
}

/// The overview says why jobs wait, also when their session blocks all of them.
#[tokio::test]
async fn the_overview_says_what_waits_and_why() {
    let world = World::new(&FLAGS);
    let long = json!({"kind": "sleep", "session": "chat:1", "payload": {"ms": 600_000}});
    let first = world.call("POST", "/v1/jobs", "", long.clone()).await;
    world.until(first["id"].as_str().unwrap(), "", "running").await;
    world.call("POST", "/v1/jobs", "", long).await;
    let page = world.get("", "").await.text().await.unwrap();
    assert!(!page.contains("No job waits") && page.contains("chat:1"), "{page}");
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
    browser.screenshot("offline-light-1280").await;
    let server = crate::cli::Server::start_at(address.strip_prefix("http://").unwrap(), dir.path(), &[]);
    browser.until("document.querySelector('[data-offline]').hidden", "the return").await;
    server.submit(&["echo", "--agent", "second-life"]);
    browser.until("document.querySelector('main').textContent.includes('second-life')", "the next job").await;
}

/// The names of pages in the test are those of the navigation, so that a new page cannot be forgotten.
#[tokio::test]
async fn the_list_of_pages_is_complete() {
    let world = World::new(&[]);
    let page = world.get("", "").await.text().await.unwrap();
    let links = page.split("<a href=\"./").skip(1).map(|rest| rest.split('"').next().unwrap());
    let missing: Vec<&str> =
        links.filter(|link| !link.contains(['?', '/']) && !PAGES.contains(link)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert_ne!(world.call("GET", "/v1/stats", "", Value::Null).await, Value::Null);
}
