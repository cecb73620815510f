//! Edits against a real cluster's: a Ceph 16.2.15 cluster of three OSDs went
//! through these commands, and its CRUSH map was fetched after each
//! (`ceph osd getcrushmap`). The same edits here give the same bytes.

use crush::*;

fn captured(step: usize) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/16.2.15/edits/{step:02}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).expect("a committed fixture")
}

fn at(text: &str) -> Location {
    parse_location(&text.split(' ').collect::<Vec<_>>()).expect("a location")
}

fn weight(weight: f64) -> u32 {
    weight_from(weight).expect("a weight")
}

/// Applies what `ceph osd crush <command>` does; commands are as they were typed.
fn apply(map: &mut CrushMap, command: &str) -> EditResult<()> {
    let words: Vec<&str> = command.split(' ').collect();
    let number = |word: &str| weight(word.parse().expect("a number"));
    let device = |name: &str| name.trim_start_matches("osd.").parse::<i32>().expect("a device");
    match words[0] {
        "add-bucket" => map.add_bucket(words[1], words[2]).map(drop),
        "move" => map.move_item(words[1], &at(&words[2..].join(" "))).map(drop),
        "add" => {
            let place = at(&words[3..].join(" "));
            map.insert_item(device(words[1]), number(words[2]), words[1], &place)
        }
        "set" => {
            let place = at(&words[3..].join(" "));
            map.update_item(device(words[1]), number(words[2]), words[1], &place).map(drop)
        }
        "create-or-move" => {
            let place = at(&words[3..].join(" "));
            map.create_or_move_item(device(words[1]), number(words[2]), words[1], &place).map(drop)
        }
        "reweight" => map.reweight_device(words[1], number(words[2])).map(drop),
        "reweight-subtree" => map.reweight_subtree(words[1], number(words[2])).map(drop),
        "reweight-all" => map.reweight_all(),
        "rename-bucket" => map.rename_bucket(words[1], words[2]),
        "link" => map.link_bucket(words[1], &at(words[2])),
        "unlink" => {
            let (item, ancestor) = (map.require_item(words[1])?, map.require_item(words[2])?);
            map.unlink_under(item, ancestor).map(drop)
        }
        "rm-device-class" => map.remove_device_class(device(words[1])).map(drop),
        "set-device-class" => map.set_device_class(device(words[2]), words[1]).map(drop),
        "rename-class" => map.rename_class(words[1], words[2]),
        "create-rule" => {
            let erasure = words[2] == "erasure";
            let rule = map.add_simple_rule(SimpleRule {
                name: words[1],
                root: "default",
                failure_domain: words[3],
                device_class: words.get(4).copied(),
                mode: if erasure { RuleMode::Indep } else { RuleMode::Firstn },
                rule_type: if erasure { RULE_ERASURE } else { RULE_REPLICATED },
            })?;
            // The default erasure code is 2+2.
            if erasure { map.set_rule_max_size(rule, 4) } else { Ok(()) }
        }
        "rm-rule" => map.remove_rule(words[1]).map(drop),
        "rename-rule" => map.rename_rule(words[1], words[2]),
        "swap-bucket" => {
            let (a, b) = (map.require_item(words[1])?, map.require_item(words[2])?);
            map.swap_buckets(a, b)
        }
        "rm" => {
            let item = map.require_item(words[1])?;
            map.remove_item(item)
        }
        _ => panic!("{command}"),
    }
}

/// In the order of the captures, which count from 1; `None` for one that the
/// library has no function for.
const COMMANDS: [Option<&str>; 35] = [
    Some("add-bucket foo host"),
    Some("move foo root=default"),
    Some("move foo host=vm"),
    Some("set osd.0 2.5 host=foo root=default"),
    Some("add osd.1 1.5 host=vm2 root=default"),
    Some("create-or-move osd.1 1.0 host=vm root=default"),
    Some("create-or-move osd.1 1.0 host=vm3 rack=r1 root=default"),
    Some("reweight osd.1 3"),
    Some("reweight-subtree vm 2"),
    Some("reweight-all"),
    Some("rename-bucket foo foo2"),
    Some("add-bucket other root"),
    Some("link foo2 root=other"),
    Some("unlink foo2 other"),
    Some("rm-device-class osd.1"),
    Some("set-device-class ssd osd.1"),
    Some("create-rule fast replicated host ssd"),
    Some("rename-class ssd sssd"),
    Some("rm-rule fast"),
    Some("rm-device-class osd.1"),
    Some("set-device-class nvme osd.1"),
    Some("create-rule s replicated host"),
    Some("create-rule fast replicated host nvme"),
    Some("create-rule e erasure host"),
    Some("add-bucket h9 host"),
    Some("move h9 rack=r2 root=default"),
    Some("move osd.2 host=h9"),
    Some("swap-bucket h9 vm2"),
    Some("rm osd.2"),
    Some("rm r2"),
    None,
    Some("reweight osd.0 0.7"),
    Some("create-or-move osd.0 1 host=h10 rack=r1 root=default"),
    Some("move r1 root=other"),
    Some("rename-rule s t"),
];

#[test]
fn edits_give_the_bytes_of_a_real_cluster() {
    for (index, command) in COMMANDS.iter().enumerate() {
        let Some(command) = command else { continue };
        let before = captured(index);
        let mut map = CrushMap::decode(&before).expect("a real map");
        assert_eq!(map.encode(), before, "the map before step {}", index + 1);
        let result = apply(&mut map, command);
        let mut wanted = CrushMap::decode(&captured(index + 1)).expect("a real map");
        if command.starts_with("rename-bucket") || command.starts_with("unlink") {
            // Ceph leaves the shadow trees as they were until the next edit.
            wanted.rebuild_shadow_trees().expect("a sound map");
        }
        assert_eq!(map, wanted, "step {}: {command}: {result:?}", index + 1);
        assert_eq!(map.encode(), wanted.encode(), "step {}: {command}", index + 1);
        map.check().expect("a sound map");
    }
}

#[test]
fn a_new_cluster_with_three_osds_has_the_map_of_a_real_one() {
    let mut map = CrushMap::new_cluster(FailureDomain::Osd);
    for device in 0..3 {
        // 20 GiB in TiB, and what 16.2's OSD made of it.
        assert_eq!(map.boot_device(device, 1277, Some("hdd"), "vm"), Ok(true));
        assert_eq!(map.boot_device(device, 1277, Some("hdd"), "vm"), Ok(false));
    }
    assert_eq!(map.encode(), captured(0));
}

#[test]
fn a_rule_over_hosts_needs_as_many_hosts_as_replicas() {
    let mut map = CrushMap::new_cluster(FailureDomain::Host);
    for device in 0..4 {
        let host = format!("host{}", device % 2);
        map.boot_device(device, WEIGHT_ONE, Some("ssd"), &host).expect("room for an OSD");
    }
    for x in 0..100 {
        let osds = do_rule(&map, 0, x, 3, &[WEIGHT_ONE; 4], None);
        assert_eq!(osds.len(), 2);
        assert_ne!(osds[0] % 2, osds[1] % 2);
    }
}

#[test]
fn edits_that_fail_leave_the_map_as_it_was() {
    let map = CrushMap::decode(&captured(8)).expect("a real map");
    let fails = |edit: &dyn Fn(&mut CrushMap) -> EditResult<()>, errno: base::Errno, text: &str| {
        let mut edited = map.clone();
        let error = edit(&mut edited).expect_err(text);
        assert_eq!((error.errno, error.text.as_str()), (errno, text));
        assert_eq!(edited, map);
    };
    use base::Errno;
    let class = |name| SimpleRule {
        name: "fast",
        root: "default",
        failure_domain: "host",
        device_class: name,
        mode: RuleMode::Firstn,
        rule_type: RULE_REPLICATED,
    };
    // The texts are those that `ceph` printed.
    fails(&|map| map.add_bucket("bar", "nosuch").map(drop), Errno::EINVAL, "type 'nosuch' does not exist");
    fails(
        &|map| map.move_item("nosuch", &at("root=default")).map(drop),
        Errno::ENOENT,
        "item nosuch does not exist",
    );
    fails(
        &|map| map.move_item("default", &at("host=foo")).map(drop),
        Errno::ELOOP,
        "(40) Too many levels of symbolic links",
    );
    fails(&|map| map.move_item("foo", &at("nosuch=vm")).map(drop), Errno::EINVAL, "(22) Invalid argument");
    fails(
        &|map| map.reweight_device("nosuch", 1).map(drop),
        Errno::ENOENT,
        "device 'nosuch' does not appear in the crush map",
    );
    fails(
        &|map| map.reweight_device("foo", 1).map(drop),
        Errno::EINVAL,
        "device 'foo' is not a leaf in the crush map",
    );
    fails(&|map| map.remove_item(-3), Errno::ENOTEMPTY, "(39) Directory not empty");
    fails(&|map| map.rename_bucket("foo", "vm"), Errno::EEXIST, "dstname = 'vm' already exists");
    fails(
        &|map| map.rename_bucket("nosuch", "vm"),
        Errno::EALREADY,
        "srcname = 'nosuch' does not exist and dstname = 'vm' already exists",
    );
    fails(
        &|map| map.set_device_class(1, "ssd").map(drop),
        Errno::EBUSY,
        "osd.1 has already bound to class 'hdd', can not reset class to 'ssd'; use 'ceph osd crush \
         rm-device-class <id>' to remove old class first",
    );
    fails(
        &|map| map.add_simple_rule(class(Some("nosuch"))).map(drop),
        Errno::EINVAL,
        "device class nosuch does not exist",
    );
    fails(
        &|map| map.add_simple_rule(SimpleRule { root: "nosuch", ..class(None) }).map(drop),
        Errno::ENOENT,
        "root item nosuch does not exist",
    );
    fails(
        &|map| map.add_simple_rule(SimpleRule { failure_domain: "nosuch", ..class(None) }).map(drop),
        Errno::EINVAL,
        "unknown type nosuch",
    );
    fails(&|map| map.swap_buckets(-3, -1), Errno::EINVAL, "(22) Invalid argument");
}
