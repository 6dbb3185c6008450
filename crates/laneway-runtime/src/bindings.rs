//! Bindings: data that goes from one node of a run to another. They are resolved when the payload of a node is read, and the
//! result is never stored.
//!
//! The payload of a node follows from stored data: its own payload, the results and payloads of nodes that ended before it
//! started and, if another node called it, the payload of that call. So every attempt that works for one call
//! gets the same payload.

use std::collections::BTreeMap;

use laneway_core::{Binding, Bytes, Chain, Failure, JobRow, MemberOf, Name, RunRow, Seq};
use laneway_store::{Reader, StoreError};
use serde_json::{Map, Value};

/// Most bytes of a payload with everything that was bound into it.
pub const COMPOSED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The code of a binding that cannot be carried out. Trying again cannot help: what is stored does not change.
pub const BINDING_CLASH: &str = "binding_clash";

/// The payload that a job gets: as it was submitted or, for a node with bindings, with what they bring, and with what the
/// call brings for which it works. The inner error says which binding cannot be carried out.
pub fn compose(
    reader: &dyn Reader,
    row: &JobRow,
    payload: &Bytes,
) -> Result<Result<Bytes, Failure>, StoreError> {
    let bound = match bind(reader, row, payload)? {
        Ok(bound) => bound,
        Err(failure) => return Ok(Err(failure)),
    };
    let Some(member) = row.spec.member.as_deref().filter(|member| is_called(member)) else {
        return Ok(Ok(bound));
    };
    let Some(brought) = reader.call_payload(row.seq)? else { return Ok(Ok(bound)) };
    Ok(lay_over(&bound, &brought).map_err(|what| Clash { node: member.node.clone(), what }.failure()))
}

/// The payload with what its bindings bring.
fn bind(reader: &dyn Reader, row: &JobRow, payload: &Bytes) -> Result<Result<Bytes, Failure>, StoreError> {
    let Some(member) = row.spec.member.as_deref().filter(|member| !member.bindings.is_empty()) else {
        return Ok(Ok(Bytes::clone(payload)));
    };
    let Some(run) = reader.run(member.run)? else {
        return Err(StoreError::Disagree(format!("there is no {}", member.run)));
    };
    let mut composer = Composer { reader, run, payloads: BTreeMap::new() };
    let composed = match composer.payload(member, payload)? {
        Ok(value) => value,
        Err(clash) => return Ok(Err(clash.failure())),
    };
    let bytes = composed.to_string().into_bytes();
    if bytes.len() > COMPOSED_BYTES_MAX {
        let what = format!("the payload has {} bytes, at most {COMPOSED_BYTES_MAX} are allowed", bytes.len());
        return Ok(Err(Clash { node: member.node.clone(), what }.failure()));
    }
    Ok(Ok(Bytes::from(bytes)))
}

/// True when the job's payload must be composed before it is used.
pub fn is_bound(row: &JobRow) -> bool {
    row.spec.member.as_ref().is_some_and(|member| !member.bindings.is_empty() || is_called(member))
}

fn is_called(member: &MemberOf) -> bool {
    member.chain.as_ref().is_some_and(Chain::is_called)
}

/// Merges the payload of a call over that of the node: the fields of the call win. A payload that is not an object is
/// replaced.
fn lay_over(payload: &[u8], brought: &[u8]) -> Result<Bytes, String> {
    let Ok(brought) = serde_json::from_slice::<Map<String, Value>>(brought) else {
        return Err("what its call brings along is no JSON object".into());
    };
    let mut whole = serde_json::from_slice::<Map<String, Value>>(payload).unwrap_or_default();
    whole.extend(brought);
    let bytes = Value::Object(whole).to_string().into_bytes();
    if bytes.len() > COMPOSED_BYTES_MAX {
        let len = bytes.len();
        return Err(format!("the payload has {len} bytes, at most {COMPOSED_BYTES_MAX} are allowed"));
    }
    Ok(Bytes::from(bytes))
}

/// A binding that cannot be carried out.
struct Clash {
    node: Name,
    what: String,
}

impl Clash {
    fn failure(self) -> Failure {
        Failure::permanent(BINDING_CLASH, format!("node {:?}: {}", self.node.as_str(), self.what))
    }
}

struct Composer<'a> {
    reader: &'a dyn Reader,
    run: RunRow,
    /// Payloads of nodes that were composed already: a node may be asked for by many.
    payloads: BTreeMap<Name, Value>,
}

impl Composer<'_> {
    /// A node's payload with its bindings carried out, one after the other.
    fn payload(&mut self, member: &MemberOf, bytes: &[u8]) -> Result<Result<Value, Clash>, StoreError> {
        let clash = |what: String| Ok(Err(Clash { node: member.node.clone(), what }));
        let Ok(mut payload) = serde_json::from_slice::<Value>(bytes) else {
            return clash("its payload is not JSON, so that nothing can be bound into it".into());
        };
        for binding in &member.bindings {
            let found = match self.source(binding)? {
                Ok(found) => found,
                Err(clash) => return Ok(Err(clash)),
            };
            // What is not there is not written: the payload keeps what it says itself.
            let Some(found) = found else { continue };
            let target = binding.target.strip_prefix("/parameters").unwrap_or(&binding.target);
            if let Err(what) = put(&mut payload, target, found) {
                return clash(format!("binding to {:?}: {what}", binding.target));
            }
        }
        Ok(Ok(payload))
    }

    /// The value of a binding; `None`: its source does not exist.
    fn source(&mut self, binding: &Binding) -> Result<Result<Option<Value>, Clash>, StoreError> {
        let Some(seq) = self.run.seq_of(&binding.from) else { return Ok(Ok(None)) };
        if let Some(pointer) = binding.source.strip_prefix("/results") {
            let Some(view) = self.reader.jobs_at(&[seq])?.pop() else { return Ok(Ok(None)) };
            let Some(result) = view.end.and_then(|end| end.result) else { return Ok(Ok(None)) };
            let Ok(result) = serde_json::from_slice::<Value>(&result) else {
                let what = "its result is not JSON, so that nothing can be taken from it".to_owned();
                return Ok(Err(Clash { node: binding.from.clone(), what }));
            };
            return Ok(Ok(result.pointer(pointer).cloned()));
        }
        let pointer = binding.source.strip_prefix("/parameters").unwrap_or(&binding.source);
        if !self.payloads.contains_key(&binding.from) {
            match self.payload_of(seq)? {
                Ok(Some(payload)) => drop(self.payloads.insert(binding.from.clone(), payload)),
                Ok(None) => return Ok(Ok(None)),
                Err(clash) => return Ok(Err(clash)),
            }
        }
        Ok(Ok(self.payloads.get(&binding.from).and_then(|payload| payload.pointer(pointer)).cloned()))
    }

    /// The payload that another node got. It comes earlier in the run, so this ends.
    fn payload_of(&mut self, seq: Seq) -> Result<Result<Option<Value>, Clash>, StoreError> {
        let (Some(view), Some(bytes)) = (self.reader.jobs_at(&[seq])?.pop(), self.reader.payload(seq)?)
        else {
            return Ok(Ok(None));
        };
        let Some(member) = view.row.spec.member else { return Ok(Ok(None)) };
        Ok(self.payload(&member, &bytes)?.map(Some))
    }
}

/// Puts `value` where `pointer` points in `into`; makes the objects on the way that are missing.
fn put(into: &mut Value, pointer: &str, value: Value) -> Result<(), String> {
    let mut at = into;
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/").replace("~0", "~");
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        at = match at {
            Value::Object(map) => map.entry(key).or_insert(Value::Null),
            Value::Array(items) => {
                let index = if key == "-" { Some(items.len()) } else { key.parse().ok() };
                match index.filter(|index| *index <= items.len()) {
                    Some(index) if index < items.len() => &mut items[index],
                    Some(index) => {
                        items.push(Value::Null);
                        &mut items[index]
                    }
                    None => return Err(format!("{key:?} is no index of a list of {}", items.len())),
                }
            }
            _ => {
                return Err(format!("{key:?} would lie inside of something that is neither object nor list"));
            }
        };
    }
    *at = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{lay_over, put};

    #[test]
    fn what_a_call_brings_goes_over_what_the_node_has() {
        let laid = |payload: &str, brought: &str| {
            let bytes = lay_over(payload.as_bytes(), brought.as_bytes())?;
            Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
        };
        assert_eq!(laid(r#"{"a":1,"b":{"c":2}}"#, r#"{"b":3,"d":4}"#).unwrap(), r#"{"a":1,"b":3,"d":4}"#);
        assert_eq!(laid("7", r#"{"b":3}"#).unwrap(), r#"{"b":3}"#);
        assert_eq!(laid("", "{}").unwrap(), "{}");
        assert!(laid("{}", "[1]").unwrap_err().contains("no JSON object"));
    }

    #[test]
    fn values_go_where_pointers_point() {
        let mut value = json!({"a": {"b": 1}, "list": [1], "text": "x"});
        for (pointer, what) in
            [("/a/b", json!(2)), ("/new/deep/er", json!([])), ("/list/0", json!(5)), ("/list/-", json!(6))]
        {
            put(&mut value, pointer, what).expect("the pointer has a target");
        }
        put(&mut value, "/with~1slash~0tilde", json!(true)).expect("the pointer has a target");
        assert_eq!(
            value,
            json!({"a": {"b": 2}, "new": {"deep": {"er": []}}, "list": [5, 6], "text": "x", "with/slash~tilde": true})
        );
        put(&mut value, "", json!(7)).expect("the whole");
        assert_eq!(value, json!(7));
    }

    #[test]
    fn a_value_does_not_go_inside_of_a_text() {
        let mut value = json!({"text": "x", "list": [1]});
        assert!(put(&mut value, "/text/deeper", json!(1)).is_err());
        assert!(put(&mut value, "/list/9", json!(1)).is_err());
        assert!(put(&mut value, "/list/x", json!(1)).is_err());
        assert_eq!(value, json!({"text": "x", "list": [1]}));
    }
}
