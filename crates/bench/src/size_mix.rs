//! How long objects are.

use base::Random;

/// Object lengths with their weights.
///
/// Shape:   never empty; weights above zero.
/// Units:   bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeMix(Vec<(u64, usize)>);

impl SizeMix {
    pub fn fixed(len: usize) -> SizeMix {
        SizeMix(vec![(1, len)])
    }

    /// (weight, length) each.
    pub fn weighted(mix: Vec<(u64, usize)>) -> SizeMix {
        assert!(!mix.is_empty() && mix.iter().all(|(weight, _)| *weight > 0), "lengths with weights");
        SizeMix(mix)
    }

    pub fn draw(&self, random: &mut Random) -> usize {
        let total = self.0.iter().map(|(weight, _)| weight).sum();
        let mut at = random.below(total);
        for (weight, len) in &self.0 {
            if at < *weight {
                return *len;
            }
            at -= weight;
        }
        unreachable!("below the sum of the weights");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_by_weight() {
        let mix = SizeMix::weighted(vec![(9, 4096), (1, 1 << 20)]);
        let mut random = Random::from_seed(1);
        let large = (0..10_000).filter(|_| mix.draw(&mut random) > 4096).count();
        assert!((800..1200).contains(&large), "{large}");
        assert_eq!(SizeMix::fixed(7).draw(&mut random), 7);
    }
}
