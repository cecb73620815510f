//! Views of an operation's 28 argument bytes (`ceph_osd_op`'s union).
//!
//! Source: Ceph `src/include/rados.h` (`struct ceph_osd_op`, packed).

/// Declares a view: fields in wire order, packed, the rest of the 28 bytes zero.
macro_rules! args {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }

        const _: () = assert!(0 $(+ size_of::<$t>())* <= 28);

        impl $name {
            pub fn of(args: &[u8; 28]) -> $name {
                let mut at = 0;
                $(
                    let mut raw = [0; size_of::<$t>()];
                    raw.copy_from_slice(&args[at..at + size_of::<$t>()]);
                    at += size_of::<$t>();
                    let $field = <$t>::from_le_bytes(raw);
                )*
                let _ = at;
                $name { $($field,)* }
            }

            pub fn into_args(self) -> [u8; 28] {
                let mut out = [0; 28];
                let mut at = 0;
                $(
                    out[at..at + size_of::<$t>()].copy_from_slice(&self.$field.to_le_bytes());
                    at += size_of::<$t>();
                )*
                let _ = at;
                out
            }
        }
    };
}

args! {
    /// READ, SPARSE_READ, WRITE, WRITEFULL, APPEND, ZERO, TRUNCATE, TRIMTRUNC, CMPEXT.
    ExtentArgs {
        offset: u64,
        len: u64,
        truncate_size: u64,
        truncate_seq: u32,
    }
}

impl ExtentArgs {
    pub fn new(offset: u64, len: u64) -> ExtentArgs {
        ExtentArgs { offset, len, ..ExtentArgs::default() }
    }
}

args! {
    /// GETXATTR, SETXATTR, CMPXATTR, RMXATTR: the input is the name, then the value.
    XattrArgs {
        name_len: u32,
        value_len: u32,
        /// 1 eq, 2 ne, 3 gt, 4 gte, 5 lt, 6 lte.
        cmp_op: u8,
        /// 1 string, 2 u64.
        cmp_mode: u8,
    }
}

args! {
    /// CALL: the input is class name, method name, argument bytes.
    CallArgs {
        class_len: u8,
        method_len: u8,
        argc: u8,
        indata_len: u32,
    }
}

args! {
    /// PGLS, PGNLS and their filtered forms.
    PgListArgs {
        count_max: u64,
        start_epoch: u32,
    }
}

args! {
    /// ROLLBACK.
    SnapArgs { snap: u64, }
}

args! {
    WatchArgs {
        cookie: u64,
        version: u64,
        /// 0 unwatch, 1 legacy watch, 3 watch, 5 reconnect, 7 ping.
        op: u8,
        generation: u32,
        timeout_s: u32,
    }
}

args! {
    /// NOTIFY.
    NotifyArgs { cookie: u64, }
}

args! {
    AssertVersionArgs {
        unused: u64,
        version: u64,
    }
}

args! {
    /// COPY_FROM, COPY_FROM2.
    CopyFromArgs {
        snap: u64,
        src_version: u64,
        flags: u8,
        src_fadvise_flags: u32,
    }
}

args! {
    AllocHintArgs {
        expected_object_size: u64,
        expected_write_size: u64,
        flags: u32,
    }
}

args! {
    WriteSameArgs {
        offset: u64,
        len: u64,
        data_len: u64,
    }
}

args! {
    ChecksumArgs {
        offset: u64,
        len: u64,
        chunk_size: u32,
        /// 0 xxhash32, 1 xxhash64, 2 crc32c.
        kind: u8,
    }
}
