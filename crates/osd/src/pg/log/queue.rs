//! Records one after another in few pieces of memory, taken off at both ends.

use std::collections::VecDeque;

/// Records that share a piece of memory: enough that its own cost per record does not
/// count, few enough that what is gone from the first piece does not either.
const CHUNK_RECORDS: usize = 64;

#[derive(Clone, Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Where each record ends.
    ends: Vec<u32>,
}

impl Chunk {
    fn record(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[at] as usize]
    }
}

/// Shape: all chunks but the last hold [`CHUNK_RECORDS`] records, none is empty.
#[derive(Clone, Debug, Default)]
pub struct RecordQueue {
    chunks: VecDeque<Chunk>,
    /// Records of the first chunk that were taken off.
    gone: usize,
    len: usize,
}

impl RecordQueue {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, at: usize) -> Option<&[u8]> {
        if at >= self.len {
            return None;
        }
        let at = self.gone + at;
        Some(self.chunks[at / CHUNK_RECORDS].record(at % CHUNK_RECORDS))
    }

    /// `write` appends the record to what it is given.
    pub fn push_back(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if (self.gone + self.len).is_multiple_of(CHUNK_RECORDS) {
            self.chunks.push_back(Chunk::default());
        }
        let chunk = self.chunks.back_mut().expect("the chunk that has room");
        write(&mut chunk.bytes);
        chunk.ends.push(u32::try_from(chunk.bytes.len()).expect("records of one chunk below 4 GiB"));
        if chunk.ends.len() == CHUNK_RECORDS {
            chunk.bytes.shrink_to_fit();
        }
        self.len += 1;
    }

    pub fn drop_front(&mut self, count: usize) {
        assert!(count <= self.len, "more than there are");
        self.len -= count;
        self.gone += count;
        self.chunks.drain(..(self.gone / CHUNK_RECORDS).min(self.chunks.len()));
        self.gone %= CHUNK_RECORDS;
        self.reset_if_empty();
    }

    pub fn drop_back(&mut self, count: usize) {
        assert!(count <= self.len, "more than there are");
        self.len -= count;
        let left = self.gone + self.len;
        self.chunks.truncate(left.div_ceil(CHUNK_RECORDS));
        if let (true, Some(last)) = (!left.is_multiple_of(CHUNK_RECORDS), self.chunks.back_mut()) {
            last.ends.truncate(left % CHUNK_RECORDS);
            last.bytes.truncate(last.ends[left % CHUNK_RECORDS - 1] as usize);
        }
        self.reset_if_empty();
    }

    fn reset_if_empty(&mut self) {
        if self.len == 0 {
            *self = RecordQueue::default();
        }
    }

    /// Bytes allocated.
    pub fn memory(&self) -> usize {
        let of = |chunk: &Chunk| chunk.bytes.capacity() + chunk.ends.capacity() * size_of::<u32>();
        self.chunks.capacity() * size_of::<Chunk>() + self.chunks.iter().map(of).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    /// Whatever comes and goes, it holds what a queue of vectors holds.
    #[test]
    fn it_is_a_queue() {
        let mut random = Random::from_seed(7);
        let mut queue = RecordQueue::default();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for step in 0..3000u32 {
            let some = |random: &mut Random, len: usize| random.below(1 + (len as u64).min(200)) as usize;
            match random.below(20) {
                0 => {
                    let count = some(&mut random, model.len());
                    queue.drop_front(count);
                    model.drain(..count);
                }
                1 => {
                    let count = some(&mut random, model.len());
                    queue.drop_back(count);
                    model.truncate(model.len() - count);
                }
                2 if step % 7 == 0 => {
                    queue.drop_back(model.len());
                    model.clear();
                }
                _ => {
                    for _ in 0..random.below(24) {
                        let record = vec![step as u8; random.below(40) as usize];
                        queue.push_back(|out| out.extend_from_slice(&record));
                        model.push_back(record);
                    }
                }
            }
            assert_eq!(queue.len(), model.len());
            assert_eq!(queue.get(model.len()), None);
            for (at, record) in model.iter().enumerate() {
                assert_eq!(queue.get(at), Some(record.as_slice()), "step {step}");
            }
        }
    }
}
