//! How much memory a part of a daemon holds.

/// Pieces of memory, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    pub items: u64,
    pub bytes: u64,
}

impl MemoryUse {
    pub fn new(items: usize, bytes: usize) -> MemoryUse {
        MemoryUse { items: items as u64, bytes: bytes as u64 }
    }

    pub fn add(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes as u64;
    }

    pub fn remove(&mut self, bytes: usize) {
        self.items -= 1;
        self.bytes -= bytes as u64;
    }
}

impl std::ops::Add for MemoryUse {
    type Output = MemoryUse;
    fn add(self, other: MemoryUse) -> MemoryUse {
        MemoryUse { items: self.items + other.items, bytes: self.bytes + other.bytes }
    }
}

impl std::iter::Sum for MemoryUse {
    fn sum<I: Iterator<Item = MemoryUse>>(parts: I) -> MemoryUse {
        parts.fold(MemoryUse::default(), |sum, part| sum + part)
    }
}
