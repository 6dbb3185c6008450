//! Every action kind on a real page.

use std::time::Duration;

use laneway_browser::page::PageError;
use laneway_browser::{PageAction, PageLimits};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn mouse_actions_reach_elements() {
    let world = World::start().await;
    world.show("<button id=b onclick='log(\"click\")' ondblclick='log(\"dblclick\")' oncontextmenu='log(\"menu\")'>Send it</button>
        <a id=h href='#' onmouseover='log(\"over\")'>Link</a><div style='height:3000px'></div>
        <button id=low onclick='log(\"low\")'>Below</button>
        <script>var seen=[]; function log(x){seen.push(x)}</script>").await;
    assert_eq!(world.act(json!({"kind": "click", "selector": "#b"})).await, json!({"clicked": true}));
    assert_eq!(world.evaluate("seen.splice(0)").await, json!(["click"]));
    world.act(json!({"kind": "dblclick", "selector": "#b"})).await;
    assert_eq!(world.evaluate("seen.splice(0)").await, json!(["click", "click", "dblclick"]));
    world.act(json!({"kind": "click", "selector": "#b", "button": "right"})).await;
    assert_eq!(world.evaluate("seen.splice(0)").await, json!(["menu"]));
    assert_eq!(world.act(json!({"kind": "hover", "selector": "#h"})).await, json!({"hovered": true}));
    assert_eq!(world.evaluate("seen.splice(0)").await, json!(["over"]));
    // An element far below is scrolled to.
    world.act(json!({"kind": "click", "selector": "#low"})).await;
    assert_eq!(world.evaluate("[seen.splice(0)[0], scrollY > 1000]").await, json!(["low", true]));
    world.act(json!({"kind": "click", "selector": "#low", "mode": "dom"})).await;
    assert_eq!(world.evaluate("seen.splice(0)").await, json!(["low"]));
    // Other ways to name an element.
    for selector in ["xpath://button[@id='b']", "//button[@id='b']", "text:send it", "css:#b"] {
        world.act(json!({"kind": "click", "selector": selector})).await;
        assert_eq!(world.evaluate("seen.splice(0)").await, json!(["click"]), "{selector}");
    }
    let at = world.evaluate("(r => [r.x + 5, r.y + 5])(b.getBoundingClientRect())").await;
    world.act(json!({"kind": "click", "x": at[0], "y": at[1]})).await;
    assert_eq!(world.evaluate("seen.splice(0)").await, json!(["click"]));
    for kind in ["mouse-move", "mouse-down", "mouse-up"] {
        world.act(json!({"kind": kind, "selector": "#b"})).await;
    }
    assert_eq!(world.evaluate("seen.splice(0)").await, json!(["click"]));
    world.end().await;
}

#[tokio::test]
async fn elements_that_cannot_be_used_are_named() {
    let world = World::start().await;
    world
        .show(
            "<button id=off disabled>x</button><button id=gone style='display:none'>x</button><p id=p>x</p>
        <button id=under>x</button><div id=over style='position:fixed;inset:0'></div>
        <input id=ro readonly><input id=n type=number><select id=s><option value=a>A</select>",
        )
        .await;
    for (action, expected) in [
        (json!({"kind": "click", "selector": "#none"}), "no element matches #none"),
        (json!({"kind": "click", "selector": "text:nowhere"}), "no element matches text:nowhere"),
        (json!({"kind": "click", "selector": "#off"}), "the element #off is disabled"),
        (json!({"kind": "click", "selector": "#gone"}), "the element #gone is not visible"),
        (json!({"kind": "click", "selector": "#under"}), "the element #under is covered by <div#over>"),
        (json!({"kind": "fill", "selector": "#p", "value": "x"}), "the element #p is no text field"),
        (json!({"kind": "fill", "selector": "#ro", "value": "x"}), "the element #ro is read-only"),
        (json!({"kind": "fill", "selector": "#n", "value": "x"}), "the element #n does not take this value"),
        (json!({"kind": "select", "selector": "#p", "value": "x"}), "the element #p is no <select>"),
        (json!({"kind": "select", "selector": "#s", "value": "x"}), "the element #s has no option \"x\""),
        (json!({"kind": "check", "selector": "#p"}), "the element #p is no checkbox"),
        (
            json!({"kind": "click", "ref": "e9"}),
            "there is no element with the ref e9; take a new snapshot of the page",
        ),
    ] {
        assert_eq!(world.fails(action).await, expected);
    }
    let bad = world.fails(json!({"kind": "click", "selector": "##"})).await;
    assert!(bad.starts_with("the selector ## is not valid: "), "{bad}");
    world.end().await;
}

#[tokio::test]
async fn keyboard_actions_type_and_press() {
    let world = World::start().await;
    world.show("<input id=i value='a' oninput='inputs++'><textarea id=t></textarea><div id=e contenteditable>x</div>
        <input id=k onkeydown='keys.push(event.key+event.code+(event.ctrlKey?\"!\":\"\"))'>
        <form onsubmit='sent=true;return false'><input id=f></form><script>var inputs=0,keys=[],sent=false</script>").await;
    assert_eq!(world.act(json!({"kind": "focus", "selector": "#t"})).await, json!({"focused": true}));
    assert_eq!(world.evaluate("document.activeElement.id").await, "t");
    world.act(json!({"kind": "type", "selector": "#i", "text": "Bc 1ä→"})).await;
    assert_eq!(world.evaluate("[i.value, inputs]").await, json!(["aBc 1ä→", 6]));
    assert_eq!(
        world.act(json!({"kind": "fill", "selector": "#i", "value": "new"})).await,
        json!({"filled": "new"})
    );
    assert_eq!(world.evaluate("i.value").await, "new");
    world.act(json!({"kind": "fill", "selector": "#i", "text": ""})).await;
    assert_eq!(world.evaluate("i.value").await, "");
    world.act(json!({"kind": "type", "selector": "#t", "text": "one\ntwo"})).await;
    assert_eq!(world.evaluate("t.value").await, "one\ntwo");
    world.act(json!({"kind": "fill", "selector": "#e", "value": "rich"})).await;
    world.act(json!({"kind": "type", "selector": "#e", "text": "er"})).await;
    assert_eq!(world.evaluate("e.textContent").await, "richer");
    world.act(json!({"kind": "press", "selector": "#k", "key": "ArrowDown"})).await;
    world.act(json!({"kind": "press", "key": "Control+b"})).await;
    assert_eq!(world.evaluate("keys.splice(0)").await, json!(["ArrowDownArrowDown", "bKeyB!"]));
    world.act(json!({"kind": "keydown", "key": "Shift"})).await;
    world.act(json!({"kind": "keyup", "key": "Shift"})).await;
    world.act(json!({"kind": "keyboard-type", "text": "x"})).await;
    world.act(json!({"kind": "keyboard-inserttext", "text": "yz"})).await;
    assert_eq!(world.evaluate("[keys, k.value]").await, json!([["ShiftShiftLeft", "xKeyX"], "xyz"]));
    world.act(json!({"kind": "press", "selector": "#f", "key": "Enter"})).await;
    assert_eq!(world.evaluate("sent").await, true);
    world.act(json!({"kind": "fill", "selector": "#f", "value": "abc"})).await;
    world.act(json!({"kind": "press", "selector": "#f", "key": "Control+a"})).await;
    world.act(json!({"kind": "press", "key": "Backspace"})).await;
    assert_eq!(world.evaluate("f.value").await, "");
    world.end().await;
}

#[tokio::test]
async fn forms_and_scrolling() {
    let world = World::start().await;
    world
        .show(
            "<select id=s onchange='n++'><option value=a>Alpha<option value=b>Beta</select>
        <select id=m multiple><option>1<option>2<option>3</select>
        <input type=checkbox id=c><label id=l><input type=radio id=r>Pick</label>
        <div id=box style='height:50px;overflow:auto'><div style='height:500px'></div></div>
        <div style='height:5000px'></div><p id=end>end</p><script>var n=0</script>",
        )
        .await;
    assert_eq!(
        world.act(json!({"kind": "select", "selector": "#s", "value": "b"})).await,
        json!({"selected": ["b"]})
    );
    assert_eq!(
        world.act(json!({"kind": "select", "selector": "#s", "value": "Alpha"})).await,
        json!({"selected": ["a"]})
    );
    assert_eq!(
        world.act(json!({"kind": "select", "selector": "#m", "values": ["1", "3"]})).await,
        json!({"selected": ["1", "3"]})
    );
    assert_eq!(world.evaluate("n").await, 2);
    for (kind, on) in [("check", true), ("check", true), ("uncheck", false), ("uncheck", false)] {
        assert_eq!(world.act(json!({"kind": kind, "selector": "#c"})).await, json!({"checked": on}));
        assert_eq!(world.evaluate("c.checked").await, on);
    }
    world.act(json!({"kind": "check", "selector": "#l"})).await;
    assert_eq!(world.evaluate("r.checked").await, true);
    let never = world.fails(json!({"kind": "uncheck", "selector": "#r"})).await;
    assert_eq!(never, "the element #r is still checked after a click");
    let scrolled = world.act(json!({"kind": "scroll", "scrollY": 300})).await;
    assert_eq!(scrolled, json!({"scrolled": true, "x": 0, "y": 300}));
    assert_eq!(world.act(json!({"kind": "scroll", "direction": "up"})).await["y"], 0);
    assert_eq!(world.act(json!({"kind": "scroll", "selector": "#box", "scrollY": 40})).await["y"], 40);
    world.act(json!({"kind": "scroll", "selector": "#end"})).await;
    assert_eq!(world.evaluate("scrollY > 3000").await, true);
    world.end().await;
}

#[tokio::test]
async fn pages_are_opened_waited_for_and_read() {
    let world = World::start().await;
    let first = world.site.page("<h1>One</h1><ul><li title=x>a<li>b</ul><a id=a href='/two'>next</a>");
    world.site.put("/two", "200 OK", "Content-Type: text/html\r\n", "<title>Two</title><h1>Two</h1>");
    let opened = world.act(json!({"kind": "navigate", "url": first})).await;
    assert_eq!(opened, json!({"url": first, "title": "Test", "status": 200}));
    for (action, expected) in [
        (json!({"selector": "h1"}), json!("One")),
        (json!({"selector": "li", "all": true}), json!(["a", "b"])),
        (json!({"selector": "li", "attribute": "title"}), json!("x")),
        (json!({"selector": "h1", "what": "html"}), json!("<h1>One</h1>")),
        (json!({"selector": ".none", "all": true}), json!([])),
    ] {
        let mut action = action;
        action["kind"] = "extract".into();
        assert_eq!(world.act(action).await, json!({"value": expected}));
    }
    let text = world.act(json!({"kind": "text"})).await;
    assert_eq!((&text["title"], text["text"].as_str().unwrap().contains("One")), (&json!("Test"), true));
    world.act(json!({"kind": "click", "selector": "#a", "waitNav": true})).await;
    assert_eq!(world.act(json!({"kind": "extract", "selector": "h1"})).await["value"], "Two");
    assert_eq!(world.act(json!({"kind": "back"})).await["title"], "Test");
    assert_eq!(world.act(json!({"kind": "forward"})).await["title"], "Two");
    assert_eq!(world.act(json!({"kind": "reload"})).await["title"], "Two");
    let end = world.fails(json!({"kind": "forward"})).await;
    assert_eq!(end, "cannot load the history: there is nothing to go forward to");
    let missing = world.act(json!({"kind": "navigate", "url": world.site.url("/none")})).await;
    assert_eq!(missing["status"], 404);
    let closed = world.fails(json!({"kind": "navigate", "url": "http://127.0.0.1:1/"})).await;
    assert!(closed.starts_with("cannot load http://127.0.0.1:1/: net::ERR_"), "{closed}");
    world.end().await;
}

#[tokio::test]
async fn waits_end_when_something_happens() {
    let world = World::start().await;
    world.show("<p id=p hidden>late</p><script>setTimeout(() => { p.hidden = false; window.ready = 1; history.pushState({}, '', '/done') }, 300)</script>").await;
    for condition in [
        json!({"selector": "#p"}),
        json!({"text": "late"}),
        json!({"url": "/done"}),
        json!({"url": "http://*/done"}),
        json!({"function": "window.ready"}),
        json!({"load": "network-idle"}),
        json!({"load": "load"}),
        json!({"ms": 10}),
        json!({"selector": "#nothing", "state": "hidden"}),
    ] {
        let mut action = condition.clone();
        action["kind"] = "wait".into();
        assert_eq!(world.act(action).await["waited"], true, "{condition}");
    }
    let never = PageAction::parse(&json!({"kind": "wait", "selector": "#never"})).unwrap();
    let short = PageLimits { time: Duration::from_millis(200), ..PageLimits::default() };
    let error = world.page.act(&never, &short, &world.stop).await.unwrap_err();
    assert_eq!(error.to_string(), "the element #never (visible) did not happen within 200 ms");
    assert!(error.is_timeout());
    world.end().await;
}

#[tokio::test]
async fn snapshots_have_refs_that_actions_use() {
    let world = World::start().await;
    world.show("<h1>Head</h1><button onclick='hit=1'>Go</button><input placeholder=Name><input type=password value=secret><p>text</p>").await;
    let snapshot = world.act(json!({"kind": "snapshot", "filter": "interactive"})).await;
    let nodes = snapshot["nodes"].as_array().unwrap();
    assert_eq!(snapshot["count"], 3);
    assert_eq!((&nodes[0]["role"], &nodes[0]["name"]), (&json!("button"), &json!("Go")));
    assert_eq!((&nodes[1]["role"], &nodes[1]["name"]), (&json!("textbox"), &json!("Name")));
    assert!(!snapshot.to_string().contains("secret"));
    world.act(json!({"kind": "click", "ref": nodes[0]["ref"]})).await;
    assert_eq!(world.evaluate("hit").await, 1);
    world.act(json!({"kind": "fill", "selector": nodes[1]["ref"], "value": "Ada"})).await;
    assert_eq!(world.evaluate("document.querySelector('input').value").await, "Ada");
    let whole = world.act(json!({"kind": "snapshot"})).await;
    assert_eq!(whole["nodes"][0]["role"], "heading");
    world.show("<p>another page</p>").await;
    let stale = world.fails(json!({"kind": "click", "ref": "e0"})).await;
    assert_eq!(stale, "there is no element with the ref e0; take a new snapshot of the page");
    world.end().await;
}

#[tokio::test]
async fn javascript_runs_in_the_page_with_limits() {
    let world = World::start().await;
    let csp = "Content-Type: text/html\r\nContent-Security-Policy: default-src 'self'\r\n";
    world.site.put("/csp", "200 OK", csp, "<title>strict</title>");
    world.act(json!({"kind": "navigate", "url": world.site.url("/csp")})).await;
    for (expression, expected) in [
        ("1 + 1", json!(2)),
        ("document.title", json!("strict")),
        ("Promise.resolve({a: [1, null]})", json!({"a": [1, null]})),
        ("undefined", json!(null)),
        ("false", json!(false)),
        ("'x'", json!("x")),
    ] {
        assert_eq!(world.evaluate(expression).await, expected, "{expression}");
    }
    let thrown = world.fails(json!({"kind": "evaluate", "expression": "throw new Error('no')"})).await;
    assert!(thrown.starts_with("the script failed in the page: Error: no"), "{thrown}");
    let small = PageLimits { result_bytes: 1000, ..crate::world::limits() };
    let large = PageAction::parse(&json!({"kind": "evaluate", "expression": "'x'.repeat(1e6)"})).unwrap();
    let error = world.page.act(&large, &small, &world.stop).await.unwrap_err();
    assert_eq!(error, PageError::ResultTooLarge { bytes_max: 1000 });
    let short = PageLimits { time: Duration::from_millis(500), ..PageLimits::default() };
    for endless in ["while (true) {}", "new Promise(() => {})"] {
        let action = PageAction::parse(&json!({"kind": "evaluate", "expression": endless})).unwrap();
        let error = world.page.act(&action, &short, &world.stop).await.unwrap_err();
        assert!(error.is_timeout(), "{endless}: {error}");
        // The page is free again.
        assert_eq!(world.evaluate("2 + 2").await, 4);
    }
    world.end().await;
}

#[tokio::test]
async fn dialogs_are_dismissed_and_reported() {
    let world = World::start().await;
    world.show("<button id=b onclick='answer = confirm(\"Sure?\")'>b</button><button id=p onclick='answer = prompt(\"Name?\")'>p</button>
        <button id=a onclick='for (let i = 0; i < 3; i++) alert(i)'>a</button><script>onbeforeunload = (e) => { e.preventDefault(); return 'x' }</script>").await;
    let clicked = world.act(json!({"kind": "click", "selector": "#b"})).await;
    assert_eq!(clicked, json!({"clicked": true, "dialogs": [{"type": "confirm", "message": "Sure?"}]}));
    assert_eq!(world.evaluate("answer").await, false);
    world.act(json!({"kind": "click", "selector": "#b", "dialogAction": "accept"})).await;
    assert_eq!(world.evaluate("answer").await, true);
    world
        .act(json!({"kind": "click", "selector": "#p", "dialogAction": "accept", "dialogText": "Ada"}))
        .await;
    assert_eq!(world.evaluate("answer").await, "Ada");
    let three = world.act(json!({"kind": "click", "selector": "#a"})).await;
    assert_eq!(three["dialogs"].as_array().unwrap().len(), 3);
    // A page cannot hold on to its tab.
    world.show("<p>left</p>").await;
    world.end().await;
}

#[tokio::test]
async fn screenshots_and_pdfs_show_the_page() {
    let world = World::with(|options| options.window = Some((800, 600))).await;
    world.show("<style>body{margin:0}</style><div id=red style='width:60px;height:40px;background:#f00'></div><div style='height:2000px'></div>").await;
    let png = world.act(json!({"kind": "screenshot", "selector": "#red"})).await;
    assert_eq!(size_of_png(&png), (60, 40));
    let whole = world.act(json!({"kind": "screenshot", "fullPage": true})).await;
    assert_eq!(size_of_png(&whole).1, 2040);
    let window = size_of_png(&world.act(json!({"kind": "screenshot"})).await);
    assert!(window.0 <= 800 && window.1 <= 600 && window.0 > 700, "{window:?}");
    let jpeg = bytes(&world.act(json!({"kind": "screenshot", "format": "jpg", "quality": 50})).await);
    assert!(jpeg.starts_with(&[0xff, 0xd8, 0xff]));
    let pdf = bytes(&world.act(json!({"kind": "pdf", "landscape": true})).await);
    assert!(pdf.starts_with(b"%PDF-"));
    // A second tab has a screenshot, too, and the first one still has.
    let second = world.browser.new_tab().await.unwrap();
    let shot = PageAction::parse(&json!({"kind": "screenshot"})).unwrap();
    second.act(&shot, &crate::world::limits(), &world.stop).await.unwrap();
    world.act(json!({"kind": "screenshot"})).await;
    world.end().await;
}

#[tokio::test]
async fn tabs_are_listed_closed_and_crash() {
    let world = World::start().await;
    world.show("<p>x</p>").await;
    let tabs = world.browser.tabs().await.unwrap();
    assert_eq!(tabs.len(), 2);
    let own = tabs.iter().find(|tab| tab.id == world.page.tab()).unwrap();
    assert_eq!(own.title, "Test");
    let same = world.browser.page(&own.id).await.unwrap();
    assert_eq!(same.tab(), world.page.tab());
    assert_eq!(world.browser.page("nope").await.err().unwrap().to_string(), "there is no tab \"nope\"");
    assert_eq!(world.browser.close_tab("nope").await.unwrap_err().to_string(), "there is no tab \"nope\"");
    // The process of the tab is killed while the tab is waited for.
    let waiting = world.try_act(json!({"kind": "wait", "selector": "#never"}));
    let (waited, _) = tokio::join!(waiting, crash(&world));
    assert_eq!(waited.unwrap_err(), PageError::TabCrashed);
    assert_eq!(world.fails(json!({"kind": "text"})).await, "the tab crashed");
    let fresh = world.browser.new_tab().await.unwrap();
    world.browser.close_tab(fresh.tab()).await.unwrap();
    let text = PageAction::parse(&json!({"kind": "text"})).unwrap();
    let closed = fresh.act(&text, &crate::world::limits(), &world.stop).await.unwrap_err();
    assert_eq!(closed, PageError::Closed);
    world.end().await;
}

/// Crashes the tab over a DevTools connection of its own.
async fn crash(world: &World) {
    crate::world::send_to_tab(world, "Page.navigate", json!({"url": "chrome://crash"})).await;
}

fn bytes(result: &serde_json::Value) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(result["base64"].as_str().unwrap()).unwrap()
}

pub fn size_of_png(result: &serde_json::Value) -> (u32, u32) {
    let png = bytes(result);
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}
