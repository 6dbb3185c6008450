//! Tests of what a script may look like. Scripts that run are in `tests/it/script.rs`.

use serde_json::{Value, json};

use super::{STEPS_MAX, Script};

fn error_of(script: Value) -> String {
    Script::parse(&script).unwrap_err().to_string()
}

#[test]
fn errors_name_the_step_and_the_field() {
    let one = |step: Value| error_of(json!({"steps": [{"kind": "text"}, step]}));
    for (found, expected) in [
        (error_of(json!([])), "script: it must be an object"),
        (error_of(json!({})), "steps: it is required"),
        (error_of(json!({"steps": {}})), "steps: it must be a list"),
        (error_of(json!({"steps": []})), "steps: it must have 1 to 500 steps, and has 0"),
        (error_of(json!({"steps": [], "timeoutMs": 0})), "timeoutMs: it must be a number from 1 to 3600000"),
        (
            error_of(json!({"steps": [], "resultBytesMax": 1e9})),
            "resultBytesMax: it must be a number from 1 to 1048576",
        ),
        (one(json!("click")), "steps[1].step: it must be an object"),
        (one(json!({})), "steps[1].kind: it is required"),
        (one(json!({"kind": "click"})), "steps[1].selector: it is required; give selector, ref, or x and y"),
        (one(json!({"kind": "click", "selector": 7})), "steps[1].selector: it must be a text"),
        (one(json!({"kind": "navigate"})), "steps[1].url: it is required"),
        (
            one(json!({"kind": "fill", "selector": "#a"})),
            "steps[1].value: it is required; an empty one clears the field",
        ),
        (one(json!({"kind": "select", "selector": "#a"})), "steps[1].value: it is required"),
        (
            one(json!({"kind": "select", "selector": "#a", "values": [1]})),
            "steps[1].values: it must be a list of texts",
        ),
        (
            one(json!({"kind": "scroll"})),
            "steps[1].scrollY: it is required without selector; give scrollX, scrollY or direction",
        ),
        (
            one(json!({"kind": "screenshot", "format": "gif"})),
            "steps[1].format: \"gif\" is not known; give one of png, jpeg, jpg, webp",
        ),
        (
            one(json!({"kind": "text", "timeoutMs": "1"})),
            "steps[1].timeoutMs: it must be a number from 1 to 3600000",
        ),
        (
            one(json!({"kind": "wait"})),
            "steps[1].selector: a condition is required: selector, text, url, load, function or ms",
        ),
        (
            one(json!({"kind": "wait", "text": "a", "ms": 5})),
            "steps[1].selector: give one condition: selector, text, url, load, function or ms",
        ),
        (
            one(json!({"kind": "text", "nmae": "x"})),
            "steps[1].nmae: it is not known here; known are frame, kind, name, timeoutMs",
        ),
    ] {
        assert_eq!(found, expected);
    }
    assert!(
        one(json!({"kind": "dance"}))
            .starts_with("steps[1].kind: \"dance\" is not known; give one of back, check,")
    );
    assert!(
        one(json!({"kind": "press", "key": "Hyper+X"})).starts_with("steps[1].key: \"Hyper\" is not known")
    );
    for name in ["", "../a", "a b", ".a", "ä", &"a".repeat(65)] {
        assert!(one(json!({"kind": "text", "name": name})).starts_with("steps[1].name: "), "{name}");
    }
}

#[test]
fn scripts_have_bounds() {
    let steps = |count: usize| json!({"steps": vec![json!({"kind": "text"}); count]});
    assert!(Script::parse(&steps(STEPS_MAX)).is_ok());
    assert_eq!(error_of(steps(STEPS_MAX + 1)), "steps: it must have 1 to 500 steps, and has 501");
    let captures = json!({"steps": vec![json!({"kind": "pdf"}); 51]});
    assert_eq!(error_of(captures), "steps: it has more than 50 screenshots and PDFs");
    let twice = json!({"steps": [{"kind": "text", "name": "a"}, {"kind": "text", "name": "a"}]});
    assert_eq!(error_of(twice), "steps[1].name: another step has the name \"a\", too");
    let large = json!({"steps": [{"kind": "evaluate", "expression": "x".repeat(300_000)}]});
    assert_eq!(error_of(large), "steps[0].expression: it has more than 262144 bytes");
}

#[test]
fn javascript_of_the_caller_is_seen() {
    for (step, expected) in [
        (json!({"kind": "evaluate", "expression": "1"}), true),
        (json!({"kind": "eval", "script": "1"}), true),
        (json!({"kind": "wait", "function": "1"}), true),
        (json!({"kind": "wait", "selector": "#a"}), false),
        (json!({"kind": "navigate", "url": "http://a/"}), false),
    ] {
        let script = Script::parse(&json!({"steps": [step]})).unwrap();
        assert_eq!(script.runs_javascript(), expected, "{script:?}");
    }
}
