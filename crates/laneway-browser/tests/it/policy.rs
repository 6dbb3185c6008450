//! What pages and scripts may not do: files, downloads, other schemes.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn only_pages_of_the_web_are_opened() {
    let world = World::start().await;
    let secret = world.directory.path().join("secret.html");
    std::fs::write(&secret, "<p>secret</p>").unwrap();
    let file = format!("file://{}", secret.display());
    for (url, reason) in [
        (file.as_str(), "file URLs are off; an operator can allow them"),
        ("javascript:alert(1)", "the scheme must be http, https or data"),
        ("chrome://settings", "the scheme must be http, https or data"),
        ("about:version", "the scheme must be http, https or data"),
        ("devtools://devtools/", "the scheme must be http, https or data"),
        ("example.com", "it is no full URL; give one such as https://example.com/"),
    ] {
        let error = world.fails(json!({"kind": "navigate", "url": url})).await;
        assert_eq!(error, format!("the URL {url} is not allowed: {reason}"));
    }
    assert!(
        world
            .fails(json!({"kind": "navigate", "url": format!("view-source:{file}")}))
            .await
            .contains("not allowed")
    );
    // A redirect does not get there either.
    world.site.put("/redirect", "302 Found", &format!("Location: {file}\r\n"), "");
    let error = world.fails(json!({"kind": "navigate", "url": world.site.url("/redirect")})).await;
    assert!(error.contains("net::ERR_UNSAFE_REDIRECT"), "{error}");
    // Nor a frame, nor a script of the page.
    world.show(&format!("<iframe id=f src='{file}'></iframe>")).await;
    let inside = world.evaluate("(() => { try { return f.contentDocument?.body?.innerText ?? null } catch (e) { return null } })()").await;
    assert!(!inside.to_string().contains("secret"), "{inside}");
    let fetched = world.evaluate(&format!("fetch('{file}').then(r => r.text(), () => 'denied')")).await;
    assert_eq!(fetched, "denied");
    world.evaluate(&format!("(location.href = '{file}', 1)")).await;
    world.act(json!({"kind": "wait", "ms": 300})).await;
    let shown = world.act(json!({"kind": "text"})).await;
    assert!(!shown["url"].as_str().unwrap().starts_with("file:"), "{shown}");
    world.end().await;
}

/// Another client of the debug port has the tab open a file. Returns Chromium's error.
async fn open_over_the_debug_port(world: &World) -> serde_json::Value {
    let file = world.directory.path().join("secret.html");
    std::fs::write(&file, "<title>secret</title>").unwrap();
    let url = json!({"url": format!("file://{}", file.display())});
    let answer = crate::world::send_to_tab(world, "Page.navigate", url).await.unwrap();
    answer["result"]["errorText"].clone()
}

#[tokio::test]
async fn a_client_of_the_debug_port_does_not_open_files_either() {
    let world = World::start().await;
    assert_eq!(open_over_the_debug_port(&world).await, "net::ERR_ACCESS_DENIED");
    world.end().await;
    let world = World::with(|options| options.allow_file_urls = true).await;
    assert_eq!(open_over_the_debug_port(&world).await, json!(null));
    world.end().await;
}

#[tokio::test]
async fn files_are_opened_where_they_are_allowed() {
    let world = World::with(|options| options.allow_file_urls = true).await;
    let file = world.directory.path().join("a.html");
    std::fs::write(&file, "<title>mine</title>").unwrap();
    let opened = world.act(json!({"kind": "navigate", "url": format!("file://{}", file.display())})).await;
    assert_eq!(opened["title"], "mine");
    world.end().await;
}

/// A page with a link to a download, which is clicked. Returns the data directory's files whose name has `report`.
async fn download(world: &World) -> String {
    let attachment =
        "Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=report.bin\r\n";
    world.site.put("/report", "200 OK", attachment, "0123456789");
    world.show("<a id=a href='/report'>get</a>").await;
    world.act(json!({"kind": "click", "selector": "#a"})).await;
    world.fails(json!({"kind": "navigate", "url": world.site.url("/report")})).await
}

fn downloaded(world: &World) -> Option<Vec<u8>> {
    std::fs::read(world.directory.path().join("profile/Downloads/report.bin")).ok()
}

#[tokio::test]
async fn downloads_are_off() {
    let world = World::start().await;
    let error = download(&world).await;
    assert!(error.contains("it is a download") || error.contains("net::ERR_ABORTED"), "{error}");
    world.act(json!({"kind": "wait", "ms": 500})).await;
    assert_eq!(downloaded(&world), None);
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from).unwrap_or_default();
    assert!(!home.join("Downloads/report.bin").exists());
    world.end().await;
}

#[tokio::test]
async fn downloads_go_below_the_data_directory_where_they_are_allowed() {
    let world = World::with(|options| options.allow_downloads = true).await;
    download(&world).await;
    let limit = std::time::Instant::now() + crate::world::PATIENCE;
    while downloaded(&world).is_none_or(|bytes| bytes.len() < 10) {
        assert!(std::time::Instant::now() < limit, "the download did not come");
        tokio::task::yield_now().await;
    }
    world.end().await;
}

#[tokio::test]
async fn pages_do_not_reach_the_debug_port() {
    let (world, other) = tokio::join!(World::start(), World::start());
    world.show("<p>x</p>").await;
    // Neither that of their own browser nor that of another one.
    for browser in [&world.browser, &other.browser] {
        let port = browser.debug_port();
        let socket = format!(
            "new Promise(done => {{ const s = new WebSocket('{}'); s.onopen = () => done('open'); s.onerror = () => done('denied'); }})",
            browser.devtools_url()
        );
        assert_eq!(world.evaluate(&socket).await, "denied");
        for host in ["127.0.0.1", "localhost", "a.localhost", "2130706433"] {
            for path in ["json/list", "json/version", "json"] {
                let url = format!("http://{host}:{port}/{path}");
                let fetched =
                    format!("fetch('{url}', {{mode: 'no-cors'}}).then(() => 'open', () => 'denied')");
                assert_eq!(world.evaluate(&fetched).await, "denied", "{url}");
                // An action can read what a page cannot.
                let error = world.fails(json!({"kind": "navigate", "url": url})).await;
                assert!(error.contains("net::ERR_"), "{url}: {error}");
                world.show("<p>x</p>").await;
            }
        }
        world.site.put("/go", "302 Found", &format!("Location: http://127.0.0.1:{port}/json\r\n"), "");
        let error = world.fails(json!({"kind": "navigate", "url": world.site.url("/go")})).await;
        assert!(error.contains("net::ERR_"), "{error}");
        world.show("<p>x</p>").await;
    }
    // A name that another site lets point to this machine is no way in.
    let port = world.browser.debug_port();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (host, is_answered) in [("evil.test", false), ("127.0.0.1", true)] {
        let request = client.get(format!("http://127.0.0.1:{port}/json/version")).header("host", host);
        assert_eq!(request.send().await.unwrap().status().is_success(), is_answered, "{host}");
    }
    // Other pages with such a path are pages as any other.
    world.site.put("/json/list", "200 OK", "Content-Type: text/html\r\n", "<title>mine</title>");
    let opened = world.act(json!({"kind": "navigate", "url": world.site.url("/json/list")})).await;
    assert_eq!(opened["title"], "mine");
    world.end().await;
    other.end().await;
}
