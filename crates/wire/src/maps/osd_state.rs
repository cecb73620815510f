use super::bits::named_bits;

named_bits! {
    /// One OSD's state bits (`CEPH_OSD_*`).
    ///
    /// An incremental carries masks that are XORed in, with one exception: a
    /// mask of 0 means [`OsdState::UP`] (see `OsdMap::apply`).
    /// Source: Ceph 16.2.15, src/include/rados.h.
    OsdState(u32) {
        EXISTS = 0, "exists";
        UP = 1, "up";
        /// Marked out by the monitor, not by a person: comes back in by itself.
        AUTOOUT = 2, "autoout";
        /// Never yet in.
        NEW = 3, "new";
        FULL = 4, "full";
        NEARFULL = 5, "nearfull";
        BACKFILLFULL = 6, "backfillfull";
        DESTROYED = 7, "destroyed";
        NOUP = 8, "noup";
        NODOWN = 9, "nodown";
        NOIN = 10, "noin";
        NOOUT = 11, "noout";
        STOP = 12, "stop";
    }
}
