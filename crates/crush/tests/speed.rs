//! A whole pool's placement is cheap enough to redo on every new map.

use crush::*;
use std::time::Instant;

#[test]
fn placement_of_65536_pgs_takes_well_under_a_second() {
    let mut map = CrushMap::new_cluster(FailureDomain::Host);
    for host in 0..40 {
        let at: Location = [("root", "default".to_string()), ("host", format!("host{host}"))]
            .map(|(kind, name)| (kind.to_string(), name))
            .into();
        for device in host * 10..(host + 1) * 10 {
            map.insert_item(device, WEIGHT_ONE, &format!("osd.{device}"), &at).expect("room for an OSD");
        }
    }
    let reweights = vec![WEIGHT_ONE; 400];
    let started = Instant::now();
    let mut placed = 0;
    for x in 0..65_536u32 {
        placed += do_rule(&map, 0, x.wrapping_mul(2_654_435_761), 3, &reweights, None).len();
    }
    println!("{placed} replicas on 400 OSDs in {:?}", started.elapsed());
    assert_eq!(placed, 3 * 65_536);
}
