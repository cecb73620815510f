//! Finds a log entry by its request id, at a few bytes an entry: a hash table whose
//! chains run through the entries from newer to older ones. The ids themselves stay in
//! the records.

use std::collections::VecDeque;
use wire::types::ReqId;

/// Shape: entries have numbers that count up, wrapping; `first` is the oldest's. A chain
///        ends where the next entry is no older one: dropped, or never there. What a
///        dropped entry leaves behind may in time look like an entry again; its
///        id will not be the one that is sought.
#[derive(Clone, Debug, Default)]
pub struct RequestIndex {
    /// Per bucket its newest entry. A power of two, at least as many as entries.
    heads: Vec<u32>,
    /// Per entry the next older one of its bucket.
    older: VecDeque<u32>,
    first: u32,
}

/// Clients count their requests: all that is asked of a hash is to keep two clients' apart.
fn hash(reqid: &ReqId) -> u64 {
    let mixed = |h: u64, part: u64| (h ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    let kind = u64::from(reqid.name.kind.as_u8()) << 32 | u64::from(reqid.inc as u32);
    [reqid.name.num as u64, kind, reqid.tid].into_iter().fold(0, mixed)
}

impl RequestIndex {
    fn bucket(&self, reqid: &ReqId) -> usize {
        hash(reqid) as usize & (self.heads.len() - 1)
    }

    /// The newest entry with this id, by its place in the log. `reqid_at` reads the id there.
    pub fn find(&self, reqid: &ReqId, reqid_at: impl Fn(usize) -> ReqId) -> Option<usize> {
        if self.heads.is_empty() || *reqid == ReqId::NONE {
            return None;
        }
        let mut limit = self.older.len();
        let mut next = self.heads[self.bucket(reqid)];
        loop {
            let at = next.wrapping_sub(self.first) as usize;
            if at >= limit {
                return None;
            }
            if reqid_at(at) == *reqid {
                return Some(at);
            }
            limit = at;
            next = self.older[at];
        }
    }

    /// One entry more; `reqid_at` can read its id, too.
    pub fn push_back(&mut self, reqid: &ReqId, reqid_at: impl Fn(usize) -> ReqId) {
        let at = self.older.len();
        if at < self.heads.len() {
            return self.link(reqid);
        }
        // All anew, with twice the buckets.
        self.older = VecDeque::with_capacity(2 * at);
        let nobody = self.first.wrapping_sub(1);
        self.heads = vec![nobody; (2 * at).max(4)];
        (0..=at).for_each(|at| self.link(&reqid_at(at)));
    }

    fn link(&mut self, reqid: &ReqId) {
        let number = self.first.wrapping_add(self.older.len() as u32);
        if *reqid == ReqId::NONE {
            // Never found, so in no chain.
            return self.older.push_back(number);
        }
        let bucket = self.bucket(reqid);
        self.older.push_back(std::mem::replace(&mut self.heads[bucket], number));
    }

    pub fn drop_front(&mut self, count: usize) {
        self.older.drain(..count);
        self.first = self.first.wrapping_add(count as u32);
    }

    /// The newest, which is the head of its chain.
    pub fn pop_back(&mut self, reqid: &ReqId) {
        let older = self.older.pop_back().expect("an entry to drop");
        if *reqid != ReqId::NONE {
            let bucket = self.bucket(reqid);
            self.heads[bucket] = older;
        }
    }

    /// Bytes allocated.
    pub fn memory(&self) -> usize {
        (self.heads.capacity() + self.older.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use wire::types::EntityName;

    fn id(n: u64) -> ReqId {
        match n {
            0 => ReqId::NONE,
            _ => ReqId { name: EntityName::client((n % 3) as i64), tid: n, inc: 0 },
        }
    }

    /// Among them ids that come twice, entries without one, and numbers that wrap.
    #[test]
    fn it_finds_the_newest_entry_with_an_id() {
        let mut random = Random::from_seed(11);
        let mut index = RequestIndex { first: u32::MAX - 5000, ..RequestIndex::default() };
        let mut model: VecDeque<ReqId> = VecDeque::new();
        for step in 0..20_000 {
            match random.below(40) {
                0 => {
                    let count = random.below(1 + model.len() as u64 / 2) as usize;
                    index.drop_front(count);
                    model.drain(..count);
                }
                1..6 => {
                    if let Some(reqid) = model.pop_back() {
                        index.pop_back(&reqid);
                    }
                }
                _ => {
                    let reqid = id(random.below(300));
                    model.push_back(reqid);
                    index.push_back(&reqid, |at| model[at]);
                }
            }
            let sought = id(random.below(300));
            let expected = model.iter().rposition(|reqid| *reqid == sought && sought != ReqId::NONE);
            assert_eq!(index.find(&sought, |at| model[at]), expected, "step {step}");
        }
        assert!(index.first < u32::MAX / 2, "numbers have wrapped");
    }
}
