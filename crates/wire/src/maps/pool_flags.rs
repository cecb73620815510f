use super::bits::named_bits;

named_bits! {
    /// A pool's flags (`pg_pool_t::FLAG_*`).
    ///
    /// Source: Ceph 16.2.15, src/osd/osd_types.h.
    PoolFlags(u64) {
        HASHPSPOOL = 0, "hashpspool";
        FULL = 1, "full";
        EC_OVERWRITES = 2, "ec_overwrites";
        INCOMPLETE_CLONES = 3, "incomplete_clones";
        NODELETE = 4, "nodelete";
        NOPGCHANGE = 5, "nopgchange";
        NOSIZECHANGE = 6, "nosizechange";
        WRITE_FADVISE_DONTNEED = 7, "write_fadvise_dontneed";
        NOSCRUB = 8, "noscrub";
        NODEEP_SCRUB = 9, "nodeep-scrub";
        FULL_QUOTA = 10, "full_quota";
        NEARFULL = 11, "nearfull";
        BACKFILLFULL = 12, "backfillfull";
        SELFMANAGED_SNAPS = 13, "selfmanaged_snaps";
        POOL_SNAPS = 14, "pool_snaps";
        CREATING = 15, "creating";
        EIO = 16, "eio";
        BULK = 17, "bulk";
    }
}
