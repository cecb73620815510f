//! Several OSD cores together: what clients and administrators may rely on.

mod harness;

use base::Duration;
use harness::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn fresh_pool_becomes_clean_within_a_moment() {
    let mut w = World::new(1, 3, 3, 2, 16);
    w.run_until("clean", Duration::from_millis(400), World::all_clean);
}

#[test]
fn what_was_written_is_read() {
    let mut w = World::new(2, 3, 2, 1, 8);
    for i in 0..20 {
        w.write(&format!("o{i}"), format!("data {i}").as_bytes());
    }
    for i in 0..20 {
        assert_eq!(w.read(&format!("o{i}")).unwrap(), format!("data {i}"));
    }
    assert_eq!(w.read("missing"), None);
    w.assert_copies_equal();
}

#[test]
fn failover_keeps_what_was_acknowledged_and_takes_new_writes() {
    let mut w = World::new(3, 3, 3, 2, 4);
    w.write("a", b"one");
    let primary = w.acting("a")[0];
    w.kill(primary);
    assert_eq!(w.read("a").unwrap(), "one");
    w.write("a", b"two");
    assert_eq!(w.read("a").unwrap(), "two");
    w.start(primary);
    w.settle();
    assert_eq!(w.read("a").unwrap(), "two");
    w.assert_copies_equal();
}
