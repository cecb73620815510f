//! `hello`: the example class; `clients/op_semantics.py` and Ceph's own tests call it.
//!
//! Source: Ceph `src/cls/hello/cls_hello.cc`.

use crate::{Access, Method, Object, Output};
use base::Errno;
use bytes::Bytes;

pub(crate) const METHODS: &[Method] = &[Method { name: "say_hello", access: Access::Read, run: say_hello }];

/// Longer names are refused.
const NAME_LEN_MAX: usize = 100;

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
