//! Actions on elements inside of frames, of the same site and of another one.

use laneway_browser::PageAction;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::site::Site;
use crate::world::{PATIENCE, World, chromium, limits, options};

const FORM: &str = "<div style='height:900px'></div><input id=i><button id=b onclick=\"o.textContent = 'clicked ' + i.value\">Go</button>
    <select id=s><option>one<option>two</select><input type=checkbox id=c><input id=k onkeydown='o.textContent = event.key'>
    <p id=o>nothing</p><div id=red style='width:60px;height:40px;background:#f00'></div>";

/// Two ways to name this machine: a frame of the other one is of another site, and has a process of its own.
const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

/// Shows a page with the form in a frame that is far below and has a border.
async fn show_form_in_frame(world: &World, host: &str) {
    let form = world.site.page(FORM).replace("127.0.0.1", host);
    let frame = format!(
        "<button id=b>outside</button><div style='height:2500px'></div><iframe id=f src='{form}' style='margin:30px;border:7px solid;padding:11px;width:500px;height:300px'></iframe>"
    );
    world.show(&frame).await;
}

fn in_frame(mut action: Value) -> Value {
    action["frame"] = "#f".into();
    action
}

#[tokio::test]
async fn actions_reach_elements_of_frames() {
    for host in HOSTS {
        let world = World::start().await;
        show_form_in_frame(&world, host).await;
        let targets = format!("http://127.0.0.1:{}/json/list", world.browser.debug_port());
        let targets: Value = reqwest::get(targets).await.unwrap().text().await.unwrap().parse().unwrap();
        let is_apart = targets.as_array().unwrap().iter().any(|target| target["type"] == "iframe");
        assert_eq!(is_apart, host == "localhost", "{targets}");
        let read = async |selector: &str| {
            let found = world.act(in_frame(json!({"kind": "extract", "selector": selector}))).await;
            found["value"].clone()
        };
        world.act(in_frame(json!({"kind": "wait", "selector": "#o"}))).await;
        world.act(in_frame(json!({"kind": "type", "selector": "#i", "text": "Ada"}))).await;
        world.act(in_frame(json!({"kind": "click", "selector": "#b"}))).await;
        world.act(in_frame(json!({"kind": "wait", "text": "clicked Ada"}))).await;
        world.act(in_frame(json!({"kind": "fill", "selector": "#i", "value": "Bob"}))).await;
        world.act(in_frame(json!({"kind": "click", "selector": "text:Go"}))).await;
        assert_eq!(read("#o").await, "clicked Bob", "{host}");
        world.act(in_frame(json!({"kind": "press", "selector": "#k", "key": "ArrowUp"}))).await;
        assert_eq!(read("#o").await, "ArrowUp", "{host}");
        world.act(in_frame(json!({"kind": "select", "selector": "#s", "value": "two"}))).await;
        let value = world.act(in_frame(json!({"kind": "extract", "selector": "#s", "what": "value"}))).await;
        assert_eq!(value["value"], "two");
        world.act(in_frame(json!({"kind": "check", "selector": "#c"}))).await;
        let text = world.act(in_frame(json!({"kind": "text"}))).await;
        assert!(
            text["text"].as_str().unwrap().contains("ArrowUp")
                && text["url"].as_str().unwrap().contains(host)
        );
        assert_eq!(world.act(in_frame(json!({"kind": "scroll", "scrollY": -5000}))).await["y"], 0);
        let shot = world.act(in_frame(json!({"kind": "screenshot", "selector": "#red"}))).await;
        assert_eq!(crate::actions::size_of_png(&shot), (60, 40));
        // The page around the frame is another document.
        assert_eq!(world.fails(json!({"kind": "extract", "selector": "#o"})).await, "no element matches #o");
        let own = world.act(json!({"kind": "extract", "selector": "#b"})).await;
        assert_eq!(own["value"], "outside");
        world.end().await;
    }
}

#[tokio::test]
async fn frames_within_frames_are_named_one_after_the_other() {
    let world = World::start().await;
    let inner = world.site.page("<button id=b onclick='this.textContent=\"hit\"'>deep</button>");
    let middle = world.site.page(&format!("<p>m</p><iframe class=inner src='{inner}'></iframe>"));
    let middle = middle.replace("127.0.0.1", "localhost");
    world.show(&format!("<iframe id=f src='{middle}' style='height:400px'></iframe>")).await;
    let path = json!(["#f", "iframe.inner"]);
    world.act(json!({"kind": "wait", "frame": path, "selector": "#b"})).await;
    world.act(json!({"kind": "click", "frame": path, "selector": "#b"})).await;
    let read = world.act(json!({"kind": "extract", "frame": path, "selector": "#b"})).await;
    assert_eq!(read["value"], "hit");
    world.end().await;
}

#[tokio::test]
async fn a_frame_that_is_not_there_or_covered_is_named() {
    let world = World::start().await;
    show_form_in_frame(&world, "localhost").await;
    for (frame, shown) in [(json!("#none"), "#none"), (json!("#b"), "#b"), (json!(["#f", "#none"]), "#none")]
    {
        let error = world.fails(json!({"kind": "click", "frame": frame, "selector": "#b"})).await;
        assert_eq!(error, format!("no frame matches {shown}; give the selector of an <iframe>"));
    }
    world.act(json!({"kind": "wait", "frame": "#none", "selector": "#b", "state": "hidden"})).await;
    world.evaluate("document.body.insertAdjacentHTML('beforeend', '<div id=over style=\"position:fixed;inset:0\"></div>')").await;
    let error = world.fails(in_frame(json!({"kind": "click", "selector": "#b"}))).await;
    assert_eq!(error, "the element #b is covered by <div#over>");
    // A frame that comes later is waited for.
    world.show("<script>setTimeout(() => document.body.innerHTML = '<iframe id=f srcdoc=\"<p id=late>x\">', 300)</script>").await;
    world.act(in_frame(json!({"kind": "wait", "selector": "#late"}))).await;
    world.end().await;
}

#[tokio::test]
async fn snapshots_have_the_elements_of_frames_and_their_refs_are_used_as_they_are() {
    for host in HOSTS {
        let world = World::start().await;
        show_form_in_frame(&world, host).await;
        world.act(in_frame(json!({"kind": "wait", "selector": "#o"}))).await;
        let snapshot = world.act(json!({"kind": "snapshot", "filter": "interactive"})).await;
        let nodes = snapshot["nodes"].as_array().unwrap();
        let shown: Vec<(&str, &str)> = nodes
            .iter()
            .map(|node| (node["ref"].as_str().unwrap(), node["role"].as_str().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                ("e0", "button"),
                ("e1", "iframe"),
                ("e2", "textbox"),
                ("e3", "button"),
                ("e4", "combobox"),
                ("e5", "checkbox"),
                ("e6", "textbox")
            ]
        );
        assert_eq!(
            (&nodes[0]["frame"], &nodes[3]["frame"], &snapshot["count"]),
            (&Value::Null, &json!("e1"), &json!(7))
        );
        world.act(json!({"kind": "fill", "ref": "e2", "value": "Ada"})).await;
        world.act(json!({"kind": "click", "ref": "e3"})).await;
        world.act(json!({"kind": "wait", "frame": "e1", "text": "clicked Ada"})).await;
        let inside = world.act(json!({"kind": "snapshot", "filter": "interactive", "frame": "#f"})).await;
        assert_eq!((&inside["count"], &inside["nodes"][1]["name"]), (&json!(5), &json!("Go")));
        world.act(json!({"kind": "click", "selector": "e1"})).await;
        // The document of the frame is replaced.
        world.evaluate("new Promise(done => { f.onload = () => done(1); f.src = 'about:blank' })").await;
        let stale = world.fails(json!({"kind": "click", "ref": "e1"})).await;
        assert_eq!(stale, "there is no element with the ref e1; take a new snapshot of the page");
        world.end().await;
    }
}

#[tokio::test]
async fn a_page_with_frames_does_not_crash_the_first_tab() {
    // Chromium crashes now and then if its focus is emulated while it shows its first, empty page.
    let (site, stop) = (Site::start().await, CancellationToken::new());
    let own = site.page("<p>x</p>");
    let page = site.page(&format!("<iframe src='{own}'></iframe><iframe srcdoc='<p>y</p>'></iframe>"));
    for _ in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let browser = chromium().launch(&options(&directory), &stop).await.unwrap();
        let tab = browser.tabs().await.unwrap().remove(0);
        let tab = browser.page(&tab.id).await.unwrap();
        let act = async |action: Value| {
            let action = PageAction::parse(&action).unwrap();
            tab.act(&action, &limits(), &stop).await.unwrap()
        };
        for url in [&page, "about:blank", &page.replace("127.0.0.1", "localhost"), &page] {
            act(json!({"kind": "navigate", "url": url})).await;
        }
        let seen =
            json!({"kind": "evaluate", "expression": "[document.hasFocus(), document.visibilityState]"});
        assert_eq!(act(seen).await["result"], json!([true, "visible"]));
        browser.stop(PATIENCE).await;
    }
}

#[test]
fn a_frame_is_for_elements_and_documents() {
    for (action, expected) in [
        (
            json!({"kind": "click", "selector": "#b", "frame": 7}),
            "frame: it must be a selector, or a list of 1 to 8 of them",
        ),
        (
            json!({"kind": "click", "selector": "#b", "frame": []}),
            "frame: it must be a selector, or a list of 1 to 8 of them",
        ),
        (
            json!({"kind": "click", "selector": "#b", "frame": ["#f", ""]}),
            "frame: it must be a selector, or a list of 1 to 8 of them",
        ),
        (
            json!({"kind": "click", "selector": "#b", "frame": vec!["#f"; 9]}),
            "frame: it must be a selector, or a list of 1 to 8 of them",
        ),
        (
            json!({"kind": "click", "x": 1, "y": 1, "frame": "#f"}),
            "frame: it needs the selector of an element in the frame",
        ),
        (
            json!({"kind": "press", "key": "a", "frame": "#f"}),
            "frame: it needs the selector of an element in the frame",
        ),
        (
            json!({"kind": "click", "ref": "e1", "frame": "#f"}),
            "frame: a ref knows its frame; give selector with frame",
        ),
    ] {
        assert_eq!(PageAction::parse(&action).unwrap_err().to_string(), expected);
    }
    // As every field that an action does not know.
    assert!(PageAction::parse(&json!({"kind": "navigate", "url": "http://x/", "frame": "#f"})).is_ok());
}
