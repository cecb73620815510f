//! Seeded randomness. Cores draw from the [`Random`] they are handed, so that
//! a simulated cluster replays from one seed; only the real environment seeds
//! it from the operating system.

/// SplitMix64: small, fast, and good enough for jitter, ids and fault plans.
/// Never for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; the bias is below 2^-32 for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `of` on average, `n` times of `of`.
    pub fn chance(&mut self, n: u64, of: u64) -> bool {
        self.below(of) < n
    }

    /// An independent generator, so that one consumer's draws do not shift another's.
    pub fn fork(&mut self) -> Random {
        Random(self.next_u64())
    }
}
