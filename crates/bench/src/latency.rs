//! Latencies of many requests in bounded memory.

use base::Duration;
use hdrhistogram::Histogram;

/// Longer ones count as this long.
const MAX: Duration = Duration::from_secs(3600);
/// Values are right to a thousandth.
const SIGNIFICANT_DIGITS: u8 = 3;

#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Latency {
        let histogram = Histogram::new_with_bounds(1, nanoseconds(MAX), SIGNIFICANT_DIGITS);
        Latency(histogram.expect("bounds and digits are in range"))
    }
}

impl Latency {
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(nanoseconds(latency));
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn add(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// `quantile` in 0..=1: 0.99 is the time within which 99 % were done.
    pub fn at(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(quantile))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_thousandth() {
        let mut latency = Latency::default();
        for us in 1..=1000 {
            latency.record(Duration::from_micros(us));
        }
        let close = |found: Duration, us: f64| (found.as_secs_f64() * 1e6 / us - 1.0).abs() < 0.002;
        assert!(close(latency.at(0.5), 500.0) && close(latency.at(0.99), 990.0));
        assert!(close(latency.mean(), 500.5) && close(latency.max(), 1000.0));
        latency.record(Duration::MAX);
        assert!(close(latency.max(), MAX.as_secs_f64() * 1e6));
    }
}
