//! What a PG log says that it holds is what was allocated for it: every allocation
//! of the test's thread is counted.
#![allow(unsafe_code)]

use base::WallTime;
use osd::pg::info::PgSums;
use osd::pg::log::{EntryKind, LogEntry, PgLog};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use wire::types::{EVersion, EntityName, Epoch, HObject, PoolId, ReqId, SnapId};

thread_local! {
    /// Bytes allocated and not freed yet; what frees them elsewhere makes it wrap.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn entry(number: u64) -> LogEntry {
    LogEntry {
        kind: EntryKind::Modify,
        version: EVersion::new(Epoch(41), number),
        prior_version: EVersion::new(Epoch(39), number / 2 + 1),
        user_version: number,
        last_user_version: number,
        reqid: ReqId { name: EntityName::client(4123), tid: 7 * number, inc: 0 },
        object: HObject {
            pool: PoolId(3),
            hash: number as u32,
            name: format!("rbd_data.10226b8b4567.{number:016x}").into(),
            snap: SnapId::HEAD,
            ..HObject::default()
        },
        clones: Vec::new(),
        mtime: WallTime { sec: 1_790_000_000, nsec: 123_456_789 },
        result: 0,
        returns: Vec::new(),
        sums: PgSums { objects: 1023, bytes: 4_290_772_992, ..PgSums::default() },
    }
}

#[test]
fn a_log_holds_what_it_says() {
    let before = LIVE.get();
    let mut log = PgLog::default();
    for number in 1..=10_000 {
        log.push(&entry(number));
        log.trim(2000, 1000, 100);
        if number % 97 == 0 {
            assert_eq!(LIVE.get().wrapping_sub(before), log.memory(), "{} entries", log.len());
        }
    }
    assert!(log.memory() <= 105 * log.len());
    drop(log);
    assert_eq!(LIVE.get(), before);
}
