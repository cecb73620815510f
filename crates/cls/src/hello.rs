//! `hello`: the example class. It shows, and clients' tests check, what methods may
//! answer and what becomes of methods that do more than their flags say.
//!
//! Source: Ceph `src/cls/hello/cls_hello.cc`, `src/test/cls_hello/test_cls_hello.cc`.

use crate::{Access, Fault, Method, Object, Output};
use base::Errno;
use bytes::Bytes;

pub(crate) const METHODS: &[Method] = &[
    Method { name: "say_hello", access: Access::Read, run: say_hello },
    Method { name: "record_hello", access: Access::Write, run: record_hello },
    Method { name: "replay", access: Access::Read, run: replay },
    Method { name: "turn_it_to_11", access: Access::ReadWrite, run: turn_it_to_11 },
    Method { name: "write_return_data", access: Access::Write, run: write_return_data },
    // The name it had while no write could answer.
    Method { name: "writes_dont_return_data", access: Access::Write, run: write_return_data },
    Method { name: "write_too_much_return_data", access: Access::Write, run: write_too_much_return_data },
    Method { name: "bad_reader", access: Access::Write, run: bad_reader },
    Method { name: "bad_writer", access: Access::Read, run: bad_writer },
];

/// Longer names are refused.
const NAME_LEN_MAX: usize = 100;
/// What is read of the object.
const READ_LEN_MAX: u64 = 1100;

fn say_hello(_: &mut dyn Object, name: Bytes) -> Output {
    greeting(&name)
}

fn greeting(name: &[u8]) -> Output {
    if name.len() > NAME_LEN_MAX {
        return Err(Errno::EINVAL.into());
    }
    let name = if name.is_empty() { b"world" } else { name };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

fn record_hello(object: &mut dyn Object, name: Bytes) -> Output {
    let greeting = greeting(&name)?;
    if object.exists() {
        return Err(Errno::EEXIST.into());
    }
    object.write_full(greeting)?;
    sign(object, b"said_by")
}

/// Notes who called.
fn sign(object: &mut dyn Object, attr: &[u8]) -> Output {
    let origin = object.origin().to_string();
    object.set_xattr(attr, origin.into())?;
    Ok(Bytes::new())
}

fn replay(object: &mut dyn Object, _: Bytes) -> Output {
    object.read(0, READ_LEN_MAX)
}

fn turn_it_to_11(object: &mut dyn Object, input: Bytes) -> Output {
    if !input.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let said = object.read(0, READ_LEN_MAX)?;
    object.write_full(said.to_ascii_uppercase().into())?;
    sign(object, b"amplified_by")
}

/// Output, and codes other than 0, reach a client that asks for them; those of a
/// failure always do.
fn write_return_data(object: &mut dyn Object, input: Bytes) -> Output {
    object.set_xattr(b"foo", Bytes::from_static(b"bar"))?;
    if !input.is_empty() {
        let complaint = Bytes::from_static(b"too much input data!");
        return Err(Fault::Code(Errno::EINVAL.negative(), complaint));
    }
    Err(Fault::Code(42, Bytes::from_static(b"you might see this")))
}

/// More than `osd_max_write_op_reply_len`.
fn write_too_much_return_data(object: &mut dyn Object, _: Bytes) -> Output {
    object.set_xattr(b"foo", Bytes::from_static(b"bar"))?;
    Err(Fault::Code(42, b"you should not see this because it is too long. ".repeat(10).into()))
}

/// Reads, and has no flag for it.
fn bad_reader(object: &mut dyn Object, _: Bytes) -> Output {
    object.read(0, 100)
}

/// Writes, and has no flag for it.
fn bad_writer(object: &mut dyn Object, input: Bytes) -> Output {
    object.write_full(input)?;
    Ok(Bytes::new())
}

#[cfg(test)]
mod tests {
    use crate::testing::MemObject;

    fn call(object: &mut MemObject, method: &str, input: &[u8]) -> (i32, String) {
        let (code, output) = object.call("hello", method, input);
        (code, String::from_utf8(output.to_vec()).unwrap())
    }

    #[test]
    fn a_greeting_is_recorded_once_and_can_be_amplified() {
        let mut object = MemObject::new();
        assert_eq!(call(&mut object, "say_hello", b"").0, -2, "reading methods need the object");
        assert_eq!(call(&mut object, "record_hello", &[b'x'; 101]).0, -22);
        assert_eq!(call(&mut object, "record_hello", b"you").0, 0);
        assert_eq!(call(&mut object, "record_hello", b"").0, -17);
        assert_eq!(call(&mut object, "turn_it_to_11", b"x").0, -22);
        assert_eq!(call(&mut object, "turn_it_to_11", b"").0, 0);
        assert_eq!(call(&mut object, "replay", b""), (0, "HELLO, YOU!".into()));
        assert_eq!(call(&mut object, "say_hello", b""), (0, "Hello, world!".into()));
        let xattrs = object.content.unwrap().xattrs;
        assert_eq!(xattrs[&b"said_by"[..]], "client.4100 127.0.0.1:0/77");
        assert_eq!(xattrs[&b"amplified_by"[..]], xattrs[&b"said_by"[..]]);
    }

    #[test]
    fn what_a_write_answers() {
        let mut object = MemObject::new();
        let refused = call(&mut object, "writes_dont_return_data", b"!");
        assert_eq!((refused, object.content.is_some()), ((-22, "too much input data!".into()), false));
        assert_eq!(call(&mut object, "write_return_data", b""), (42, "you might see this".into()));
    }

    #[test]
    fn methods_that_do_more_than_their_flags_say_fail() {
        let mut object = MemObject::new();
        assert_eq!(call(&mut object, "bad_reader", b"").0, -5);
        call(&mut object, "record_hello", b"");
        assert_eq!(call(&mut object, "bad_writer", b"x").0, -5);
        assert_eq!(call(&mut object, "replay", b"").1, "Hello, world!");
    }
}
