//! The device.

use crate::support::{Step, config, drive};
use base::parts::Lender;
use base::{AlignedBuf, Random};
use bytes::Bytes;
use env::{DiskError, DiskOp, DiskRequest, DiskResult, Env, Event};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uring::{Backend, Disk, DiskOptions};

contract!(
    writes_flushes_and_reads_back,
    durable_write_of_many_pieces,
    many_requests_complete_once_each,
    long_and_many_requests_leave_while_the_batch_goes_on,
    vectored_write_of_many_pieces,
    reads_into_parts_of_one_buffer,
    requests_outside_or_unaligned_are_refused,
    file_that_shrank_gives_an_error,
    discard_succeeds,
    no_disk_says_so,
    exit_waits_for_the_last_write,
);

const LEN: u64 = 64 << 20;

fn open(folder: &TempDir) -> Disk {
    // /tmp may be memory; direct I/O is tested where the build folder is.
    let options = DiskOptions { create_len: Some(LEN), ..DiskOptions::default() };
    Disk::open(&folder.path().join("disk"), options).expect("a new file")
}

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

fn block(fill: u8, len: usize) -> Bytes {
    AlignedBuf::copy_of(&vec![fill; len]).freeze()
}

fn write(offset: u64, data: Vec<Bytes>) -> DiskOp {
    DiskOp::Write { offset, data, durable: false }
}

/// Runs one list of requests after the other, each list at once; the results
/// by token, which is the request's number.
fn perform(backend: Backend, disk: Option<Disk>, steps: Vec<Vec<DiskOp>>) -> Vec<DiskResult> {
    let mut config = config(backend);
    config.disk = disk;
    let mut steps = steps.into_iter();
    let (mut next_token, mut waiting) = (0, 0);
    let mut results = BTreeMap::new();
    let mut advance = move |env: &mut dyn Env| -> u64 {
        let Some(step) = steps.next() else {
            env.exit(0);
            return 0;
        };
        let count = step.len() as u64;
        for op in step {
            env.submit(DiskRequest { token: next_token, op });
            next_token += 1;
        }
        count
    };
    drive(config, |env, step| match step {
        Step::Start => waiting = advance(env),
        Step::Event(Event::DiskDone { token, result }) => {
            assert!(results.insert(token, result).is_none(), "{token} was answered before");
            waiting -= 1;
            if waiting == 0 {
                waiting = advance(env);
            }
        }
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {}
    });
    results.into_values().collect()
}

fn writes_flushes_and_reads_back(backend: Backend) {
    let folder = folder();
    let results = perform(
        backend,
        Some(open(&folder)),
        vec![
            vec![write(8192, vec![block(1, 4096), block(2, 8192)])],
            vec![DiskOp::Flush],
            vec![DiskOp::read(4096, 20480)],
        ],
    );
    assert_eq!(results[0], Ok(Bytes::new()));
    assert_eq!(results[1], Ok(Bytes::new()));
    let read = results[2].clone().expect("inside the device");
    let expected = [vec![0; 4096], vec![1; 4096], vec![2; 8192], vec![0; 4096]].concat();
    assert!(read == expected);
    assert_eq!(read.as_ptr() as usize % base::aligned::ALIGNMENT, 0);
    let file = std::fs::read(folder.path().join("disk")).expect("the file");
    assert!(file[8192..12288] == [1; 4096]);
}

/// That they are durable shows in the system calls: `clients/ack_after_flush.py`.
fn durable_write_of_many_pieces(backend: Backend) {
    let folder = folder();
    let pieces: Vec<Bytes> = (0..2000).map(|piece| block(piece as u8, 4096)).collect();
    let expected = pieces.concat();
    let durable = DiskOp::Write { offset: 4096, data: pieces, durable: true };
    let results = perform(backend, Some(open(&folder)), vec![vec![durable]]);
    assert_eq!(results[0], Ok(Bytes::new()));
    let file = std::fs::read(folder.path().join("disk")).expect("the file");
    assert!(file[4096..4096 + expected.len()] == expected[..]);
}

fn many_requests_complete_once_each(backend: Backend) {
    let folder = folder();
    let mut random = Random::from_seed(11);
    let blocks: Vec<u64> = (0..2000).map(|_| random.below(LEN / 4096)).collect();
    let fill = |number: u64| (number % 251) as u8;
    // A block written twice at once would be a race, of the node's making.
    let mut distinct = blocks.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let writes: Vec<_> =
        distinct.iter().map(|number| write(number * 4096, vec![block(fill(*number), 4096)])).collect();
    let reads: Vec<_> = blocks.iter().map(|number| DiskOp::read(number * 4096, 4096)).collect();
    let written = writes.len();
    let results = perform(backend, Some(open(&folder)), vec![writes, vec![DiskOp::Flush], reads]);
    for (result, number) in results[written + 1..].iter().zip(&blocks) {
        let data = result.as_ref().expect("inside the device");
        assert!(data[..] == [fill(*number); 4096], "block {number}");
    }
}

fn long_and_many_requests_leave_while_the_batch_goes_on(backend: Backend) {
    let one_long = vec![write(0, vec![block(9, 1 << 20)])];
    let many = (0..64).map(|number| write(number * 4096, vec![block(9, 4096)])).collect();
    for ops in [one_long, many] {
        let folder = folder();
        let mut config = config(backend);
        config.disk = Some(open(&folder));
        let path = folder.path().join("disk");
        let mut waiting = ops.len();
        let mut ops = Some(ops);
        drive(config, |env, step| match step {
            Step::Start => {
                for (token, op) in ops.take().into_iter().flatten().enumerate() {
                    env.submit(DiskRequest { token: token as u64, op });
                    env.submitted();
                }
                // Nothing has ended the batch yet.
                let deadline = Instant::now() + Duration::from_secs(20);
                while std::fs::read(&path).expect("the file")[0] != 9 {
                    assert!(Instant::now() < deadline, "the device was not asked");
                }
            }
            Step::Event(Event::DiskDone { result, .. }) => {
                assert_eq!(result, Ok(Bytes::new()));
                waiting -= 1;
                if waiting == 0 {
                    env.exit(0);
                }
            }
            Step::Event(other) => panic!("unexpected {other:?}"),
            Step::BatchEnd => {}
        });
        assert_eq!(waiting, 0);
    }
}

fn vectored_write_of_many_pieces(backend: Backend) {
    let folder = folder();
    // More pieces than one system call takes.
    let pieces: Vec<_> = (0..1500u32).map(|number| block(number as u8, 4096)).collect();
    let whole = pieces.concat();
    let results = perform(
        backend,
        Some(open(&folder)),
        vec![vec![write(4096, pieces)], vec![DiskOp::read(4096, whole.len() as u32)]],
    );
    assert_eq!(results[0], Ok(Bytes::new()));
    assert!(results[1].as_ref().expect("inside the device")[..] == whole[..]);
}

fn reads_into_parts_of_one_buffer(backend: Backend) {
    let folder = folder();
    let blocks: Vec<_> = (1..=4).map(|fill| block(fill, 4096)).collect();
    let mut lender = Lender::new(AlignedBuf::zeroed(4 * 4096));
    // The blocks' order turned about.
    let places = [(8192, 0..8192), (4096, 8192..12288), (0, 12288..16384)];
    let reads = places.iter().map(|(offset, range)| {
        let part = lender.lend(range.clone());
        DiskOp::Read { offset: *offset, len: range.len() as u32, into: Some(part) }
    });
    let reads = reads.collect();
    let results = perform(backend, Some(open(&folder)), vec![vec![write(0, blocks)], reads]);
    for (result, (_, range)) in results[1..].iter().zip(&places) {
        assert!(lender.is_at(result.as_ref().expect("inside the device"), range.clone()));
    }
    drop(results);
    let whole = lender.take_back().expect("the driver keeps nothing");
    for (page, fill) in whole.chunks(4096).zip([3, 4, 2, 1]) {
        assert!(*page == [fill; 4096], "{fill}");
    }
}

fn requests_outside_or_unaligned_are_refused(backend: Backend) {
    let folder = folder();
    let odd = block(0, 8192);
    let mut lender = Lender::new(AlignedBuf::zeroed(16384));
    let mut part = |range| DiskOp::Read { offset: 0, len: 4096, into: Some(lender.lend(range)) };
    let bad = vec![
        DiskOp::read(LEN, 4096),
        DiskOp::read(LEN - 4096, 8192),
        DiskOp::read(u64::MAX - 4095, 4096),
        DiskOp::read(100, 4096),
        DiskOp::read(0, 100),
        write(LEN, vec![block(0, 4096)]),
        write(1, vec![block(0, 4096)]),
        write(0, vec![odd.slice(512..4608)]),
        DiskOp::Discard { offset: LEN, len: 4096 },
        part(0..8192),
        part(9000..13096),
    ];
    let count = bad.len();
    let good = vec![DiskOp::read(LEN - 4096, 4096), write(0, Vec::new())];
    let results = perform(backend, Some(open(&folder)), vec![bad, good]);
    assert!(results[..count].iter().all(|result| *result == Err(DiskError::BadRange)));
    assert!(results[count..].iter().all(Result::is_ok));
}

fn file_that_shrank_gives_an_error(backend: Backend) {
    let folder = folder();
    let disk = open(&folder);
    shrink(&folder.path().join("disk"));
    let reads = vec![DiskOp::read(1 << 20, 4096), DiskOp::read(4096, 8192)];
    let results = perform(backend, Some(disk), vec![reads]);
    assert!(results.iter().all(|result| *result == Err(DiskError::Io { errno: libc::EIO })));
}

fn shrink(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    file.set_len(8192).expect("shrinks");
}

fn discard_succeeds(backend: Backend) {
    let folder = folder();
    let results = perform(
        backend,
        Some(open(&folder)),
        vec![
            vec![write(0, vec![block(9, 65536)])],
            vec![DiskOp::Discard { offset: 4096, len: 8192 }],
            vec![DiskOp::read(0, 65536)],
        ],
    );
    assert_eq!(results[1], Ok(Bytes::new()));
    let read = results[2].as_ref().expect("inside the device");
    assert!(read[..4096] == [9; 4096] && read[12288..] == vec![9; 65536 - 12288]);
}

fn no_disk_says_so(backend: Backend) {
    let results = perform(backend, None, vec![vec![DiskOp::Flush]]);
    assert_eq!(results, [Err(DiskError::Io { errno: libc::ENODEV })]);
}

fn exit_waits_for_the_last_write(backend: Backend) {
    let folder = folder();
    let mut config = config(backend);
    config.disk = Some(open(&folder));
    drive(config, |env, step| {
        if let Step::Start = step {
            assert_eq!(env.disk_info().map(|info| info.len_bytes), Some(LEN));
            let op = write(0, vec![block(3, 1 << 20)]);
            env.submit(DiskRequest { token: 0, op });
            env.exit(0);
        }
    });
    let file = std::fs::read(folder.path().join("disk")).expect("the file");
    assert!(file[..1 << 20] == vec![3; 1 << 20]);
    // The lock is gone with the reactor.
    Disk::open(&folder.path().join("disk"), DiskOptions::default()).expect("free again");
}
