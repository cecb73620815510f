//! Copies of one object to others.

use crate::harness::*;
use wire::messages::osd_op::{CopyFromArgs, OpCode, OsdOp};
use wire::types::SnapId;

fn copy_from(name: &str) -> OsdOp {
    let args = CopyFromArgs { snap: SnapId::HEAD.0, ..CopyFromArgs::default() };
    let mut source = wire::codec::Encoder::plain();
    source.string(name);
    source.put(&wire::types::ObjectLocator::pool(POOL));
    OsdOp::new(OpCode::COPY_FROM, args.into_args(), source.finish())
}

/// Requests that end at once let each other go on: the stack must not grow with their number.
#[test]
fn many_copies_wait_for_one_source() {
    let copy_many = |data: &[u8]| {
        let mut w = World::new(61, 1, 1, 1, 1);
        w.settle();
        let write = w.submit(0, "source", vec![write_full(data)]);
        let copies: Vec<u64> =
            (0..COPIES).map(|i| w.submit(0, &format!("copy{i}"), vec![copy_from("source")])).collect();
        assert_eq!(w.wait(write).result, 0);
        for tid in copies {
            assert_eq!(w.wait(tid).result, 0);
        }
        assert_eq!(w.read(&format!("copy{}", COPIES - 1)).unwrap(), data);
    };
    const COPIES: usize = 1000;
    const STACK_LEN: usize = 1 << 20;
    let test = move || [&b""[..], b"data"].into_iter().for_each(copy_many);
    std::thread::Builder::new().stack_size(STACK_LEN).spawn(test).unwrap().join().unwrap();
}
