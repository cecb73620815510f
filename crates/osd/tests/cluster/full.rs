//! Devices that fill up: writes are refused while everybody could still take
//! them, deletes always pass, and then writes do again.

use crate::harness::*;
use base::Duration;

const MIB: usize = 1 << 20;
const ENOSPC: i32 = -28;

/// Writes with several requests under way until one is refused; the objects that are there.
fn fill(w: &mut World, len: usize) -> Vec<String> {
    let data = vec![5; len];
    let mut names = Vec::new();
    for round in 0..200 {
        let batch: Vec<(String, u64)> = (0..6)
            .map(|i| {
                let name = format!("{len}-{round}-{i}");
                let tid = w.submit(i % 3, &name, vec![write_full(&data)]);
                (name, tid)
            })
            .collect();
        let mut refused = false;
        for (name, tid) in batch {
            match w.wait(tid).result {
                0 => names.push(name),
                result => {
                    assert_eq!(result, ENOSPC);
                    refused = true;
                }
            }
        }
        if refused {
            return names;
        }
    }
    panic!("never full");
}

fn small_devices(sizes: [usize; 3]) -> World {
    let mut w = World::new(41, 3, 3, 2, 4);
    w.clients = (0..3).map(|_| Client::default()).collect();
    w.settle();
    for (osd, size) in sizes.into_iter().enumerate() {
        let node = w.nodes[osd].as_mut().unwrap();
        node.osd.store_mut().inner_mut().set_capacity(size as u64);
    }
    // Heartbeats tell of it.
    w.run_for(Duration::from_secs(1));
    w
}

#[test]
fn a_full_cluster_refuses_writes_and_takes_them_again_after_deletes() {
    let mut w = small_devices([32 * MIB; 3]);
    for _ in 0..3 {
        let mut names = fill(&mut w, MIB / 4);
        assert!(names.len() > 40, "only {} objects fit", names.len());
        names.extend(fill(&mut w, 10_000));
        assert!(w.all_clean(), "{}", w.describe());
        for name in &names {
            let tid = w.submit(0, name, vec![delete()]);
            assert_eq!(w.wait(tid).result, 0, "deletes pass");
        }
        w.run_for(Duration::from_secs(1));
        w.write("again", b"something");
    }
    w.assert_copies_equal();
}

#[test]
fn a_replica_with_less_room_than_the_others_stalls_nobody() {
    for small in 0..3 {
        let mut sizes = [400 * MIB; 3];
        sizes[small] = 32 * MIB;
        let mut w = small_devices(sizes);
        let names = fill(&mut w, MIB / 4);
        assert!(names.len() > 40 && names.len() < 130, "{} objects", names.len());
        assert!(w.all_clean(), "{}", w.describe());
        // Small changes that need room are refused as well, those that give some are not.
        let tid = w.submit(0, &names[0], vec![delete()]);
        assert_eq!(w.wait(tid).result, 0);
        assert_eq!(w.read(&names[1]).unwrap().len(), MIB / 4);
        w.assert_copies_equal();
    }
}
