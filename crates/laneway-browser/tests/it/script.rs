//! Scripts on a real page.

use std::sync::Mutex;
use std::time::Duration;

use laneway_browser::{Script, ScriptError, ScriptOutput};
use serde_json::{Value, json};

use crate::world::World;

/// Keeps everything in memory.
#[derive(Default)]
struct Output {
    lines: Mutex<Vec<String>>,
    artifacts: Mutex<Vec<(String, String, Vec<u8>)>>,
    is_full: bool,
}

impl ScriptOutput for Output {
    fn log(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }

    fn artifact(&self, name: &str, content_type: &str, bytes: Vec<u8>) -> Result<(), String> {
        if self.is_full {
            return Err("the disk is full".to_owned());
        }
        self.artifacts.lock().unwrap().push((name.to_owned(), content_type.to_owned(), bytes));
        Ok(())
    }
}

async fn run(world: &World, output: &Output, script: Value) -> Result<Value, ScriptError> {
    Script::parse(&script).unwrap().run(&world.page, output, &world.stop).await
}

#[tokio::test]
async fn every_kind_of_step_runs() {
    let world = World::start().await;
    let url = world.site.page(
        "<h1>Form</h1><input id=i><select id=s><option>a<option>b</select><input type=checkbox id=c>
         <button id=b onclick=\"setTimeout(() => o.textContent = i.value + s.value + c.checked, 100); alert('sent')\">Send</button><p id=o></p>
         <div style='height:3000px'></div>",
    );
    let output = Output::default();
    let result = run(
        &world,
        &output,
        json!({"timeoutMs": 120000, "steps": [
            {"kind": "navigate", "url": url, "name": "page"},
            {"kind": "type", "selector": "#i", "text": "Ada"},
            {"kind": "press", "key": "Tab"},
            {"kind": "fill", "selector": "#i", "value": "Eve"},
            {"kind": "select", "selector": "#s", "value": "b"},
            {"kind": "check", "selector": "#c"},
            {"kind": "hover", "selector": "#b"},
            {"kind": "click", "selector": "text:Send"},
            {"kind": "wait", "text": "Evebtrue"},
            {"kind": "wait", "selector": "#o"},
            {"kind": "wait", "load": "network-idle"},
            {"kind": "extract", "selector": "#o", "name": "out"},
            {"kind": "evaluate", "expression": "({sum: 1 + 2})", "name": "sum"},
            {"kind": "scroll", "scrollY": 100},
            {"kind": "screenshot", "name": "shot"},
            {"kind": "screenshot", "format": "jpeg"},
            {"kind": "pdf", "name": "print.pdf"},
        ]}),
    )
    .await
    .unwrap();
    assert_eq!(result["results"]["out"], "Evebtrue");
    assert_eq!(result["results"]["sum"], json!({"sum": 3}));
    assert_eq!(result["results"]["page"]["status"], 200);
    assert_eq!(
        (&result["steps"], &result["artifacts"]),
        (&json!(17), &json!(["shot.png", "screenshot-15.jpeg", "print.pdf"]))
    );
    let artifacts = output.artifacts.lock().unwrap().clone();
    let kinds: Vec<&str> = artifacts.iter().map(|(_, kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["image/png", "image/jpeg", "application/pdf"]);
    assert!(artifacts[0].2.starts_with(b"\x89PNG") && artifacts[2].2.starts_with(b"%PDF-"));
    let lines = output.lines.lock().unwrap().join("\n");
    assert!(lines.contains("steps[7] the page opened a dialog (alert): sent"), "{lines}");
    world.end().await;
}

#[tokio::test]
async fn failed_steps_are_named() {
    let world = World::start().await;
    world.show("<p id=p>x</p>").await;
    let output = Output::default();
    let failed = |error: ScriptError| (error.to_string(), error.code(), error.retryable());
    let error =
        run(&world, &output, json!({"steps": [{"kind": "text"}, {"kind": "click", "selector": "#none"}]}))
            .await;
    assert_eq!(
        failed(error.unwrap_err()),
        ("steps[1] (click): no element matches #none".to_owned(), "element_not_found", false)
    );
    let slow = json!({"steps": [{"kind": "wait", "selector": "#none", "timeoutMs": 100}]});
    assert_eq!(
        failed(run(&world, &output, slow).await.unwrap_err()),
        (
            "steps[0] (wait): the element #none (visible) did not happen within 100 ms".to_owned(),
            "step_timed_out",
            true
        )
    );
    // Also when the time of the browser and that of the server end in the same moment.
    for limit in [300, 20, 21, 22, 23, 24, 25, 26, 27, 28] {
        let endless =
            json!({"timeoutMs": limit, "steps": [{"kind": "evaluate", "expression": "while (true) {}"}]});
        let error = failed(run(&world, &output, endless).await.unwrap_err());
        let text = format!("the script did not end within {limit} ms; it was at steps[0] (evaluate)");
        assert_eq!(error, (text, "timed_out", true));
    }
    world.site.put_silent("/silent");
    let never = json!({"steps": [{"kind": "navigate", "url": world.site.url("/silent"), "timeoutMs": 300}]});
    let error = run(&world, &output, never).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("step_timed_out", true), "{error}");
    assert!(error.to_string().contains("an answer of http://127.0.0.1:"), "{error}");
    // A page whose image never comes.
    world.site.put_silent("/image");
    let url = world.site.page("<img src=/image>");
    let error = run(&world, &output, json!({"steps": [{"kind": "navigate", "url": url, "timeoutMs": 500}]}))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("the load of http://127.0.0.1:"), "{error}");
    let parsed = json!({"steps": [{"kind": "navigate", "url": url, "waitUntil": "domcontentloaded"}]});
    run(&world, &output, parsed).await.unwrap();
    let large = json!({"resultBytesMax": 100, "steps": [
        {"kind": "evaluate", "expression": "'x'.repeat(60)", "name": "a"},
        {"kind": "evaluate", "expression": "'x'.repeat(60)", "name": "b"},
    ]});
    assert_eq!(
        failed(run(&world, &output, large).await.unwrap_err()),
        (
            "steps[1] (evaluate): the results have more than 100 bytes together".to_owned(),
            "result_too_large",
            false
        )
    );
    let full = Output { is_full: true, ..Output::default() };
    let error = run(&world, &full, json!({"steps": [{"kind": "screenshot"}]})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "steps[0] (screenshot): the artifact \"screenshot-0.png\" cannot be kept: the disk is full"
    );
    // What ends an action that is late ends no later one.
    for limit in [20, 25, 30] {
        let never = json!({"timeoutMs": limit, "steps": [{"kind": "evaluate", "expression": "new Promise(() => {})"}]});
        assert_eq!(run(&world, &output, never).await.unwrap_err().code(), "timed_out");
        let next = json!({"steps": [{"kind": "evaluate", "expression": "1 + 2", "name": "sum"}]});
        assert_eq!(run(&world, &output, next).await.unwrap()["results"]["sum"], 3);
    }
    // The page still works after all of this.
    world.show("<p>fine</p>").await;
    world.end().await;
}

#[tokio::test]
async fn a_canceled_script_stops_at_once() {
    let world = World::start().await;
    world.show("<p>x</p>").await;
    let script = Script::parse(&json!({"steps": [{"kind": "wait", "selector": "#never"}]})).unwrap();
    let output = Output::default();
    let stop = world.stop.clone();
    let cancel = async {
        tokio::task::yield_now().await;
        stop.cancel();
    };
    let (result, ()) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(20), script.run(&world.page, &output, &world.stop)),
        cancel
    );
    assert_eq!(result.unwrap().unwrap_err(), ScriptError::Canceled);
    world.end().await;
}
