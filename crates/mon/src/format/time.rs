//! Times as Ceph prints them. Always in UTC: the core knows no time zone.

pub use wire::dump::wall_time as stamp;

/// An age as in `ceph -s` and `pg ls`: the two largest units that are large enough.
///
/// Source: Ceph `src/common/ceph_time.cc` (`timespan_str`).
pub fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let (weeks, months, years) = (days / 7, days / 30, days / 365);
    match () {
        () if years >= 2 => format!("{years}y"),
        () if months >= 2 => format!("{months}M"),
        () if weeks >= 2 => format!("{weeks}w"),
        () if days >= 2 => format!("{days}d"),
        () if hours >= 2 => format!("{hours}h"),
        () if minutes >= 2 => format!("{minutes}m"),
        () => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_use_the_largest_unit_of_at_least_two() {
        assert_eq!([119, 120, 7199, 7200, 172_800].map(age), ["119s", "2m", "119m", "2h", "2d"]);
    }
}
