//! Middleware chains in frames: the position of a task in its chain, and the response to a call of the next element.

use laneway_core::{Bytes, JobSpec, Name, NextAnswer};
use laneway_wire::frame::{JsonObject, List, MIDDLEWARES_MAX, NextRequest, NextResponse, Text};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The position of a task in its chain.
#[derive(Clone, Debug)]
pub struct ChainPosition {
    run: Text,
    host: Text,
    node: Text,
    chain: Vec<Text>,
    /// The index of the middleware. `None` for the host.
    pub index: Option<u32>,
}

impl ChainPosition {
    /// The position of a job. `None` when it is in no chain.
    pub fn of(spec: &JobSpec) -> Option<ChainPosition> {
        let member = spec.member.as_deref()?;
        let chain = member.chain.as_ref()?;
        Some(ChainPosition {
            run: Text::fixed(&member.run.to_string()),
            host: text(&chain.host),
            node: text(&member.node),
            chain: chain.middlewares.iter().map(text).collect(),
            index: chain.index,
        })
    }

    /// The position that a task claims. A task in no chain gets a response with its own claim.
    pub fn asked(request: &NextRequest) -> ChainPosition {
        ChainPosition {
            run: request.run_id.clone(),
            host: request.node_id.clone(),
            node: request.middleware_id.clone(),
            chain: Vec::new(),
            index: None,
        }
    }

    /// The node that the chain wraps.
    pub fn host(&self) -> Text {
        self.host.clone()
    }

    /// The middlewares, outermost first.
    pub fn chain(&self) -> List<Text, 0, MIDDLEWARES_MAX> {
        List::new(self.chain.clone()).unwrap_or_default()
    }

    /// The response to a call of the next element.
    pub fn response(&self, request: &Name, answer: &NextAnswer) -> NextResponse {
        let (result, error) = match answer {
            NextAnswer::Done(result) => (Some(object(result.as_deref().unwrap_or(b"{}"))), None),
            NextAnswer::Failed(code, message) => {
                (None, JsonObject::of(&json!({"code": code.as_str(), "message": message})).ok())
            }
        };
        NextResponse {
            request_id: text(request),
            run_id: self.run.clone(),
            node_id: self.host.clone(),
            middleware_id: self.node.clone(),
            result,
            error,
            trace: None,
        }
    }
}

/// The field of a called task's parameters that has the contexts of its call.
const CONTEXT: &str = "_context";

/// The payload of a call, with its contexts under a field of their own. `None` when there is none.
pub fn call_payload(request: &NextRequest) -> Option<Bytes> {
    let read = |object: &Option<JsonObject>| -> Map<String, Value> {
        object.as_ref().and_then(|object| object.read().ok()).unwrap_or_default()
    };
    let mut whole = read(&request.payload);
    let contexts = [("hostCtx", &request.host_ctx), ("middlewareCtx", &request.middleware_ctx)];
    let contexts = contexts.map(|(name, context)| (name.to_owned(), read(context)));
    let contexts: Map<String, Value> = contexts
        .into_iter()
        .filter(|(_, context)| !context.is_empty())
        .map(|(name, context)| (name, Value::Object(context)))
        .collect();
    if !contexts.is_empty() {
        whole.insert(CONTEXT.to_owned(), Value::Object(contexts));
    }
    (!whole.is_empty()).then(|| Value::Object(whole).to_string().into_bytes().into())
}

/// A result. A value that is not an object is wrapped in one, as `value`.
fn object(result: &[u8]) -> JsonObject {
    let raw: Option<Box<RawValue>> = serde_json::from_slice(result).ok();
    let whole = raw.clone().and_then(|raw| JsonObject::from_raw(raw).ok());
    whole.or_else(|| JsonObject::of(&json!({"value": raw})).ok()).expect("an object of JSON is JSON")
}

/// The limit of names is below the limit of texts.
fn text(name: &Name) -> Text {
    Text::fixed(name.as_str())
}

#[cfg(test)]
mod tests {
    use laneway_wire::frame::NextRequest;
    use serde_json::{Value, json};

    use super::call_payload;

    #[test]
    fn a_call_has_its_payload_and_its_contexts() {
        let given = |extra: Value| {
            let mut request = json!({"requestId": "q", "runId": "r", "nodeId": "n", "middlewareId": "m"});
            request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let request: NextRequest = serde_json::from_value(request).unwrap();
            call_payload(&request).map(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap())
        };
        assert_eq!(given(json!({})), None);
        assert_eq!(given(json!({"payload": {}, "hostCtx": {}})), None);
        assert_eq!(given(json!({"payload": {"a": 1}})), Some(json!({"a": 1})));
        assert_eq!(
            given(json!({"payload": {"a": 1}, "hostCtx": {"b": 2}, "middlewareCtx": {"c": 3}})),
            Some(json!({"a": 1, "_context": {"hostCtx": {"b": 2}, "middlewareCtx": {"c": 3}}}))
        );
    }
}
