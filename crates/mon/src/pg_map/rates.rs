//! Client and recovery rates from the differences between reports.

use base::{Duration, Time};
use std::collections::VecDeque;
use wire::messages::PgReport;

/// Reports older than this no longer count: what `ceph -s` shows is recent.
const WINDOW: Duration = Duration::from_secs(6);

/// Differences of counters, or the same per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rates {
    pub read_ops: u64,
    pub read_bytes: u64,
    pub write_ops: u64,
    pub write_bytes: u64,
    pub recovered_objects: u64,
    pub recovered_bytes: u64,
    pub recovered_keys: u64,
}

impl Rates {
    /// What happened to a PG between two reports of one primary.
    pub fn between(before: &PgReport, after: &PgReport) -> Rates {
        Rates {
            read_ops: after.reads.saturating_sub(before.reads),
            read_bytes: after.read_kib.saturating_sub(before.read_kib).saturating_mul(1024),
            write_ops: after.writes.saturating_sub(before.writes),
            write_bytes: after.write_kib.saturating_sub(before.write_kib).saturating_mul(1024),
            recovered_objects: after.objects_recovered.saturating_sub(before.objects_recovered),
            recovered_bytes: after.bytes_recovered.saturating_sub(before.bytes_recovered),
            recovered_keys: after.keys_recovered.saturating_sub(before.keys_recovered),
        }
    }

    fn fields(&mut self) -> [&mut u64; 7] {
        [
            &mut self.read_ops,
            &mut self.read_bytes,
            &mut self.write_ops,
            &mut self.write_bytes,
            &mut self.recovered_objects,
            &mut self.recovered_bytes,
            &mut self.recovered_keys,
        ]
    }

    pub fn add(&mut self, other: &Rates) {
        let mut other = *other;
        for (mine, theirs) in self.fields().into_iter().zip(other.fields()) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    pub fn has_client_io(&self) -> bool {
        self.read_ops + self.read_bytes + self.write_ops + self.write_bytes > 0
    }

    pub fn has_recovery(&self) -> bool {
        self.recovered_objects + self.recovered_bytes + self.recovered_keys > 0
    }
}

#[derive(Default)]
pub struct Window {
    /// One per moment at which reports came, ascending.
    parts: VecDeque<(Time, Rates)>,
}

impl Window {
    pub fn add(&mut self, now: Time, rates: &Rates) {
        match self.parts.back_mut() {
            // A second's reports of many PGs are one part.
            Some((at, part)) if now.since(*at) < Duration::from_millis(500) => part.add(rates),
            _ => self.parts.push_back((now, *rates)),
        }
    }

    pub fn forget_old(&mut self, now: Time) {
        while self.parts.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.parts.pop_front();
        }
    }

    pub fn per_second(&self, now: Time) -> Rates {
        let mut total = Rates::default();
        let recent = self.parts.iter().filter(|(at, _)| now.since(*at) <= WINDOW);
        let mut first = None;
        for (at, part) in recent {
            first.get_or_insert(*at);
            total.add(part);
        }
        // Each part is about the time before it came: about a second.
        let span = first.map_or(Duration::ZERO, |at| now.since(at)) + Duration::from_secs(1);
        let seconds = span.min(WINDOW).as_secs_f64();
        for field in total.fields() {
            *field = (*field as f64 / seconds).round() as u64;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_load_shows_its_rate_and_an_ended_one_fades() {
        let mut window = Window::default();
        let second = Rates { write_ops: 100, ..Rates::default() };
        let at = |s: u64| Time(s * 1_000_000_000);
        for s in 1..=10 {
            window.add(at(s), &second);
            window.forget_old(at(s));
        }
        let rate = window.per_second(at(10)).write_ops;
        assert!((95..=120).contains(&rate), "{rate}");
        assert_eq!(window.per_second(at(20)), Rates::default());
    }
}
