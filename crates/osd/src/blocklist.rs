//! The blocklist: clients whose requests are refused, so that what they held
//! (a lock, an image, a file system's rank) can be given to others.
//!
//! What makes it safe, end to end:
//! 1. `osd blocklist add` is answered once the epoch E that has the entry is
//!    committed. Whoever fences waits until its own map is E or newer, and
//!    sends every later request with at least that epoch.
//! 2. An OSD that gets a request of an epoch that it does not have takes in
//!    the maps first (`Osd::hold_future`).
//! 3. A request runs only if its client is not on the list of the map that the
//!    OSD has *then*: one that was queued, waited for a lease, for data or for
//!    another epoch is looked at again when its turn comes (`Pg::start`,
//!    `Pg::resume`). So no request of a fenced client runs in a PG after one of
//!    epoch E has.
//! 4. What ran before has its place in the PG's log before everything of epoch
//!    E; a read waits until the writes before it are durable everywhere.
//! 5. A primary that is cut off and still has an older map completes no write:
//!    every member of the acting set must acknowledge, and no member
//!    acknowledges to the primary of a past interval. Nor does it serve reads
//!    for longer than its leases last, which the next primary waits for.
//!
//! So for each object: either a fenced client's write is there when the first
//! request after the fence runs, or it never will be. Until then (the fence
//! tells nobody but the monitor) it may still land; that is as in Ceph.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`do_op`), `src/osd/OSDMap.cc`
//! (`is_blocklisted`), `src/librados/RadosClient.cc` (`blocklist_add`).

use std::net::IpAddr;
use wire::maps::OsdMap;
use wire::types::{AddrType, EntityAddr};

/// One life of a client, by its full address and nonce; a whole host, by its
/// address with port and nonce 0; or a network.
pub fn is_blocklisted(map: &OsdMap, addr: &EntityAddr) -> bool {
    if map.blocklist.is_empty() && map.range_blocklist.is_empty() {
        return false;
    }
    let Some(socket) = addr.socket else { return false };
    let life = addr.with_kind(AddrType::Any);
    let mut bare = socket;
    bare.set_port(0);
    let host = EntityAddr { kind: AddrType::Any, nonce: 0, socket: Some(bare) };
    map.blocklist.contains_key(&life)
        || map.blocklist.contains_key(&host)
        || map.range_blocklist.keys().any(|range| in_range(range, socket.ip()))
}

/// The entry's nonce is the prefix length.
fn in_range(range: &EntityAddr, ip: IpAddr) -> bool {
    let Some(network) = range.socket.map(|s| s.ip()) else { return false };
    match (network, ip) {
        (IpAddr::V4(n), IpAddr::V4(i)) if range.nonce <= 32 => {
            let shift = 32 - range.nonce;
            n.to_bits().checked_shr(shift).unwrap_or(0) == i.to_bits().checked_shr(shift).unwrap_or(0)
        }
        (IpAddr::V6(n), IpAddr::V6(i)) if range.nonce <= 128 => {
            let shift = 128 - range.nonce;
            n.to_bits().checked_shr(shift).unwrap_or(0) == i.to_bits().checked_shr(shift).unwrap_or(0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::WallTime;

    fn addr(kind: AddrType, socket: &str, nonce: u32) -> EntityAddr {
        EntityAddr { kind, nonce, socket: Some(socket.parse().unwrap()) }
    }

    fn listed(entry: EntityAddr, client: EntityAddr) -> bool {
        let mut map = OsdMap::default();
        map.blocklist.insert(entry, WallTime::ZERO);
        is_blocklisted(&map, &client)
    }

    #[test]
    fn one_life_is_its_address_port_and_nonce_in_any_form() {
        let entry = addr(AddrType::Any, "10.0.0.1:0", 77);
        for kind in [AddrType::None, AddrType::Legacy, AddrType::Msgr2, AddrType::Any] {
            assert!(listed(entry, addr(kind, "10.0.0.1:0", 77)));
        }
        assert!(!listed(entry, addr(AddrType::Any, "10.0.0.1:0", 78)));
        assert!(!listed(entry, addr(AddrType::Any, "10.0.0.1:6800", 77)));
        assert!(!listed(entry, addr(AddrType::Any, "10.0.0.2:0", 77)));
        assert!(!listed(entry, EntityAddr::BLANK));
    }

    #[test]
    fn a_host_is_all_its_lives() {
        let entry = addr(AddrType::Any, "10.0.0.1:0", 0);
        assert!(listed(entry, addr(AddrType::Any, "10.0.0.1:0", 77)));
        assert!(listed(entry, addr(AddrType::Msgr2, "10.0.0.1:6800", 5)));
        assert!(!listed(entry, addr(AddrType::Any, "10.0.0.2:0", 77)));
    }

    #[test]
    fn a_network_is_its_prefix() {
        let mut map = OsdMap::default();
        map.range_blocklist.insert(addr(AddrType::Cidr, "10.1.0.0:0", 16), WallTime::ZERO);
        assert!(is_blocklisted(&map, &addr(AddrType::Any, "10.1.200.3:0", 9)));
        assert!(!is_blocklisted(&map, &addr(AddrType::Any, "10.2.0.1:0", 9)));
        assert!(!is_blocklisted(&map, &addr(AddrType::Any, "[::1]:0", 9)));
    }
}
