use super::harness::Cluster;
use wire::types::*;

fn add(addr: &str, more: &str) -> String {
    format!(r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{addr}"{more}}}"#)
}

#[test]
fn an_answer_comes_once_the_map_has_the_entry() {
    let (mut c, _) = Cluster::with_osds(1);
    let client = c.client();
    let before = c.mon.osd_map().epoch;
    let answer = c.command(client, &add("10.1.2.3:0/77", r#","expire":60"#));
    assert_eq!(answer.result, 0);
    assert!(answer.status.starts_with("blocklisting 10.1.2.3:0/77 until "), "{}", answer.status);
    assert!(answer.status.ends_with(" (60 sec)"), "{}", answer.status);
    let map = c.mon.osd_map();
    assert!(map.epoch > before);
    let kinds: Vec<AddrType> = map.blocklist.keys().map(|addr| addr.kind).collect();
    assert_eq!(kinds, [AddrType::Any]);
}

#[test]
fn entries_expire_and_are_removed() {
    let (mut c, _) = Cluster::with_osds(1);
    let client = c.client();
    c.command(client, &add("10.1.2.3:0/77", r#","expire":5"#));
    c.command(client, &add("10.1.2.4", ""));
    c.command(client, &add("10.9.0.0/16", r#","range":"range","expire":5"#));
    assert_eq!((c.mon.osd_map().blocklist.len(), c.mon.osd_map().range_blocklist.len()), (2, 1));
    c.run(20);
    assert_eq!((c.mon.osd_map().blocklist.len(), c.mon.osd_map().range_blocklist.len()), (1, 0));
    let rm = r#"{"prefix":"osd blocklist","blocklistop":"rm","addr":"10.1.2.4:0/0"}"#;
    assert_eq!(c.command(client, rm).status, "un-blocklisting 10.1.2.4:0/0");
    assert_eq!(c.command(client, rm).status, "10.1.2.4:0/0 isn't blocklisted");
}

#[test]
fn networks_are_listed_beside_addresses() {
    let (mut c, _) = Cluster::with_osds(1);
    let client = c.client();
    let range = r#","range":"range""#;
    assert!(
        c.command(client, &add("fd00::/48", range)).status.starts_with("blocklisting cidr:[fd00::]:0/48 ")
    );
    for wrong in ["10.9.0.0", "10.9.0.0/33", "nonsense/8"] {
        assert_eq!(c.command(client, &add(wrong, range)).result, -22, "{wrong}");
    }
    c.command(client, &add("10.1.2.4", ""));
    let listed = c.command(client, r#"{"prefix":"osd blocklist ls"}"#);
    assert_eq!(listed.status, "listed 2 entries");
    c.ok(client, r#"{"prefix":"osd blocklist clear"}"#);
    assert_eq!(c.command(client, r#"{"prefix":"osd blocklist ls"}"#).status, "listed 0 entries");
}
