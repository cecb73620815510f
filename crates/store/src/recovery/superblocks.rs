//! The superblocks: which copy holds, whether it is the right store, and a new one.

use super::{Mode, Opening, Rebuilt, Step};
use crate::core::Core;
use crate::engine::OpenError;
use crate::limits::BLOCK_LEN;
use crate::superblock::{self, Checkpoint, Identity, LOG_LEN_MIN, Superblock, Unusable};
use env::DiskResult;

impl Opening {
    pub(super) fn on_superblocks(
        &mut self,
        offsets: &[u64],
        answers: &[DiskResult],
    ) -> Result<Option<Box<Core>>, OpenError> {
        let mut found: Vec<(usize, Superblock)> = Vec::new();
        let mut trouble: Option<OpenError> = None;
        for (i, answer) in answers.iter().enumerate() {
            let copy = usize::from(i > 0);
            match answer.as_ref().map(Superblock::decode) {
                Ok(Ok(superblock)) => found.push((copy, superblock)),
                Ok(Err(Unusable::NotAStore)) => (),
                Ok(Err(Unusable::Damaged(what))) => {
                    trouble.get_or_insert(OpenError::Damaged { what });
                }
                Ok(Err(Unusable::Older { version })) => {
                    trouble = Some(OpenError::Older { version, known: superblock::VERSION });
                }
                Ok(Err(Unusable::Newer { version, incompat })) => {
                    let known = superblock::VERSION;
                    trouble = Some(OpenError::Newer { version, incompat, known });
                }
                Err(error) => {
                    trouble.get_or_insert(OpenError::Io { offset: offsets[i], error: *error });
                }
            }
        }
        // A newer program's copy beside an older one: the newer one counts.
        if let Some(newer @ (OpenError::Newer { .. } | OpenError::Older { .. })) = &trouble
            && !(self.options.overwrite && matches!(self.mode, Mode::Format(_)))
        {
            return Err(newer.clone());
        }
        if let Mode::Format(identity) = self.mode {
            return self.begin_format(identity, &found, trouble);
        }
        let newest = found.iter().max_by_key(|(copy, sb)| (sb.generation, 1 - copy)).cloned();
        let Some((copy, superblock)) = newest else {
            return Err(trouble.unwrap_or(OpenError::NotAStore));
        };
        // The device has grown: the second copy is where the old end was.
        let second = Superblock::offsets(superblock.device_len)[1];
        let (len, need) = (self.disk.len_bytes, superblock.device_len);
        if len < need {
            return Err(OpenError::Shrunk { len, need });
        }
        if copy == 0 && !offsets.contains(&second) {
            let mut offsets = offsets.to_vec();
            offsets.truncate(1);
            offsets.push(second);
            self.ask(offsets.iter().map(|offset| (*offset, BLOCK_LEN)));
            self.step = Some(Step::Superblocks { offsets });
            return Ok(None);
        }
        if let Mode::Open(Some((fsid, osd))) = self.mode {
            let identity = superblock.identity;
            if identity.fsid != fsid {
                return Err(OpenError::OtherCluster { found: identity.fsid, expected: fsid });
            }
            if identity.osd != osd {
                return Err(OpenError::OtherOsd { found: identity.osd, expected: osd });
            }
        }
        if let Some(trouble) = trouble {
            tracing::warn!("one superblock is unusable, the other copy is taken: {trouble}");
        }
        self.good_copy = copy;
        self.superblock = Some(superblock);
        self.begin_loading()
    }

    fn begin_format(
        &mut self,
        identity: Identity,
        found: &[(usize, Superblock)],
        trouble: Option<OpenError>,
    ) -> Result<Option<Box<Core>>, OpenError> {
        if !self.options.overwrite {
            if let Some((_, superblock)) = found.first() {
                let fsid = superblock.identity.fsid;
                return Err(OpenError::AlreadyAStore { fsid });
            }
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
        }
        let device_len = self.disk.len_bytes / BLOCK_LEN * BLOCK_LEN;
        let default = (device_len / 32).clamp(LOG_LEN_MIN, 512 << 20) / BLOCK_LEN * BLOCK_LEN;
        let log_len = self.options.log_len.unwrap_or(default);
        if log_len < LOG_LEN_MIN || log_len > device_len / 2 || !log_len.is_multiple_of(BLOCK_LEN) {
            return Err(OpenError::BadOption { what: "log_len" });
        }
        let newest = found.iter().map(|(_, superblock)| superblock.generation).max();
        let superblock = Superblock {
            identity,
            compat: 0,
            incompat: 0,
            device_len,
            log_len,
            generation: newest.unwrap_or(0),
            epoch: 0,
            recovered_sequence: 0,
            head_position: 0,
            head_sequence: 1,
            checkpoint: Checkpoint::default(),
        };
        self.rebuilt = Some(Rebuilt::new(&superblock));
        self.superblock = Some(superblock);
        self.write_superblocks(None, [1, 0], 0)
    }
}
