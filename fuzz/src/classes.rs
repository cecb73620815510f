//! Methods of object classes, called with hostile bytes on an object that others wrote
//! hostile bytes to before.

use base::Duration;
use bytes::Bytes;
use cls::testing::{MemObject, methods};
use cls::{Method, Object};
use wire::types::EntityName;

/// The largest object; no answer is larger than all of one.
const LEN_MAX: usize = 128 << 20;

/// One object, and a list of what is done to it: a byte that says what, a byte more,
/// two bytes of length, and so many bytes.
pub fn calls(data: &[u8]) {
    let methods: Vec<(&str, &Method)> = methods().collect();
    let mut object = MemObject::new();
    let mut rest = data;
    while let [what, index, low, high, tail @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high]));
        let (body, tail) = tail.split_at(len.min(tail.len()));
        rest = tail;
        match what % STEPS {
            0 => plant(&mut object, *index, body),
            1 => {
                object.origin.name = EntityName::client(i64::from(*index));
                object.now = object.now + Duration::from_secs(len as u64);
            }
            _ => {
                let (class, method) = methods[usize::from(*index) % methods.len()];
                call(&mut object, class, method, body, u32::from(*what / STEPS));
            }
        }
    }
}

const STEPS: u8 = 4;

/// A step that calls the method.
pub fn call_step(class: &[u8], method: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let found = methods().position(|(c, m)| c.as_bytes() == class && m.name.as_bytes() == method)?;
    let len = u16::try_from(body.len()).ok()?.to_le_bytes();
    Some([&[STEPS - 1, u8::try_from(found).ok()?], &len[..], body].concat())
}

/// What any client can store: data, or a name or key that ends at the first `=`, and a value.
fn plant(object: &mut MemObject, index: u8, body: &[u8]) {
    let content = object.content.get_or_insert_default();
    let bytes = Bytes::copy_from_slice(body);
    let at = body.iter().position(|byte| *byte == b'=').unwrap_or(body.len());
    let (name, value) = (bytes.slice(..at), bytes.slice((at + 1).min(body.len())..));
    match index % 5 {
        0 => content.data = bytes,
        1 => content.omap_header = bytes,
        2 => drop(content.xattrs.insert(name, value)),
        3 => drop(content.omap.insert(name, value)),
        _ => object.content = None,
    }
}

fn call(object: &mut MemObject, class: &str, method: &Method, input: &[u8], choice: u32) {
    let mut before = object.clone();
    let (_, output) = object.call(class, method.name, input);
    assert!(output.len() <= LEN_MAX, "{class}.{}: {} bytes of output", method.name, output.len());
    assert!(object.content.as_ref().is_none_or(|content| content.data.len() <= LEN_MAX));
    // What a method lacks it must not go on without.
    let uses = object.operation_index();
    if before.may_be_called(method) && uses > 0 {
        before.lacking = Some(choice % uses);
        let answer = before.attempt(method, input);
        assert_eq!(answer, None, "{class}.{} went on without data", method.name);
    }
}
