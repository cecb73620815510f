use super::bits::named_bits;

named_bits! {
    /// Cluster-wide flags (`CEPH_OSDMAP_*`), by the names of `ceph osd set`.
    ///
    /// `ceph osd set pause` means both `pauserd` and `pausewr`.
    /// Source: Ceph 16.2.15, src/include/rados.h; order of OSDMap::get_flag_string.
    OsdMapFlags(u32) {
        NEARFULL = 0, "nearfull";
        FULL = 1, "full";
        PAUSERD = 2, "pauserd";
        PAUSEWR = 3, "pausewr";
        PAUSEREC = 4, "pauserec";
        NOUP = 5, "noup";
        NODOWN = 6, "nodown";
        NOOUT = 7, "noout";
        NOIN = 8, "noin";
        NOBACKFILL = 9, "nobackfill";
        NOREBALANCE = 14, "norebalance";
        NORECOVER = 10, "norecover";
        NOSCRUB = 11, "noscrub";
        NODEEP_SCRUB = 12, "nodeep-scrub";
        NOTIERAGENT = 13, "notieragent";
        NOSNAPTRIM = 21, "nosnaptrim";
        SORTBITWISE = 15, "sortbitwise";
        REQUIRE_JEWEL = 16, "require_jewel_osds";
        REQUIRE_KRAKEN = 17, "require_kraken_osds";
        REQUIRE_LUMINOUS = 18, "require_luminous_osds";
        RECOVERY_DELETES = 19, "recovery_deletes";
        PURGED_SNAPDIRS = 20, "purged_snapdirs";
        PGLOG_HARDLIMIT = 22, "pglog_hardlimit";
    }
}

impl OsdMapFlags {
    /// What a new Pacific cluster starts with; clients insist on `sortbitwise`.
    pub const FRESH: OsdMapFlags = OsdMapFlags(
        OsdMapFlags::SORTBITWISE.0
            | OsdMapFlags::RECOVERY_DELETES.0
            | OsdMapFlags::PURGED_SNAPDIRS.0
            | OsdMapFlags::PGLOG_HARDLIMIT.0,
    );

    /// How clusters before Luminous said which release they require.
    pub const LEGACY_REQUIRE: OsdMapFlags = OsdMapFlags(
        OsdMapFlags::REQUIRE_JEWEL.0 | OsdMapFlags::REQUIRE_KRAKEN.0 | OsdMapFlags::REQUIRE_LUMINOUS.0,
    );
}
