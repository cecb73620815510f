//! A ring's entries for requests to the device: the same for a registered file and for a descriptor.

use crate::transfer::Call;
use io_uring::{opcode, squeue, types};

pub(crate) trait Target {
    fn entry(self, call: Call) -> squeue::Entry;
}

macro_rules! target {
    ($kind:ty) => {
        impl Target for $kind {
            fn entry(self, call: Call) -> squeue::Entry {
                match call {
                    Call::Write { offset, iovecs, count, durable } => {
                        let flags = if durable { libc::RWF_DSYNC } else { 0 };
                        opcode::Writev::new(self, iovecs, count as u32).offset(offset).rw_flags(flags).build()
                    }
                    Call::Read { offset, address, len } => {
                        opcode::Read::new(self, address, len as u32).offset(offset).build()
                    }
                    Call::Flush => opcode::Fsync::new(self).flags(types::FsyncFlags::DATASYNC).build(),
                    Call::Discard { offset, len } => {
                        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                        opcode::Fallocate::new(self, len).offset(offset).mode(mode).build()
                    }
                }
            }
        }
    };
}

target!(types::Fixed);
target!(types::Fd);
