use base::WallTime;
use crush::FailureDomain;
use std::collections::BTreeMap;
use wire::types::{EntityAddrVec, Uuid};

/// What a new cluster is born with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MkfsOptions {
    pub fsid: Uuid,
    /// The monitor's name: "a" of `mon.a`.
    pub name: String,
    /// Where clients and OSDs reach it.
    pub addrs: EntityAddrVec,
    pub created: WallTime,
    /// Over what the replicas of a default pool are spread.
    pub failure_domain: FailureDomain,
    /// Defaults of new pools; 0 for `min_size` means `size - size / 2`, as Ceph.
    pub pool_size: u8,
    pub pool_min_size: u8,
    pub pool_pg_num: u32,
    /// Further options, stored as by `ceph config set global NAME VALUE`.
    pub config: BTreeMap<String, String>,
}

impl MkfsOptions {
    pub fn new(fsid: Uuid, name: &str, addrs: EntityAddrVec, created: WallTime) -> MkfsOptions {
        MkfsOptions {
            fsid,
            name: name.to_string(),
            addrs,
            created,
            failure_domain: FailureDomain::Host,
            pool_size: 3,
            pool_min_size: 0,
            pool_pg_num: 32,
            config: BTreeMap::new(),
        }
    }
}
