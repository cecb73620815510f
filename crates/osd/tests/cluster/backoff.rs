//! Clients of a PG that cannot serve them hold their requests themselves.

use crate::harness::*;
use base::Duration;

#[test]
fn requests_for_a_pg_below_min_size_are_held_by_the_client_and_sent_again_in_order() {
    let few = |config: &mut osd::OsdConfig| config.client_ops_max = 10;
    for percent in [0, 30] {
        let mut w = World::tweaked(51, 3, 3, 2, 1, few);
        w.settle();
        w.write("a", b"");
        w.make_metadata_absent(percent);
        let acting = w.acting("a");
        w.kill(acting[1]);
        w.kill(acting[2]);
        // Some are on their way before anybody knows, some come later.
        let mut writes = Vec::new();
        for i in 0..40_u8 {
            writes.push(w.submit(0, "a", vec![append(&[i])]));
            w.run_for(Duration::from_millis(u64::from(i)));
        }
        assert!(!w.clients[0].backoffs.is_empty(), "the client was asked to hold back");
        assert_eq!(w.nodes[acting[0]].as_ref().unwrap().osd.held_requests(), 0);
        w.start(acting[1]);
        for tid in writes {
            assert_eq!(w.wait(tid).result, 0);
        }
        assert_eq!(w.read("a").unwrap(), (0..40).collect::<Vec<u8>>());
        assert!(w.clients[0].backoffs.iter().all(|(osd, life, _)| w.life(*osd) != Some(*life)));
        w.start(acting[2]);
        w.make_metadata_absent(0);
        w.assert_copies_equal();
    }
}

#[test]
fn requests_for_a_pg_that_is_down_wait_for_those_who_may_know() {
    let mut w = World::new(52, 3, 2, 1, 1);
    w.settle();
    w.write("a", b"one");
    let acting = w.acting("a");
    w.kill(acting[1]);
    w.write("a", b"two");
    // The only one who has it goes, and the other comes back.
    w.kill(acting[0]);
    w.run_for(Duration::from_secs(1));
    w.start(acting[1]);
    let read = w.submit(0, "a", vec![read_all()]);
    w.run_for(Duration::from_secs(2));
    assert!(!w.clients[0].backoffs.is_empty(), "{}", w.describe());
    w.start(acting[0]);
    assert_eq!(w.wait(read).ops[0].outdata, "two");
    w.assert_copies_equal();
}
