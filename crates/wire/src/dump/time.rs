//! `utime_t` as text.

use base::WallTime;

/// Below ten years Ceph takes it for a length of time.
const FIRST_DATE_SEC: u32 = 60 * 60 * 24 * 365 * 10;

/// As in most dumps: local time with its offset. Ours is always UTC.
pub fn wall_time(t: WallTime) -> String {
    date(t, "+0000")
}

/// As in the MonMap's JSON form.
pub fn wall_time_utc(t: WallTime) -> String {
    date(t, "Z")
}

fn date(t: WallTime, zone: &str) -> String {
    let micros = t.nsec / 1000;
    if t.sec < FIRST_DATE_SEC {
        return format!("{}.{micros:06}", t.sec);
    }
    let (days, second) = (t.sec / 86_400, t.sec % 86_400);
    let (year, month, day) = civil_from_days(days);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{micros:06}{zone}")
}

/// Days since 1970-01-01 to year, month and day, counting years from March so
/// that the leap day comes last (Howard Hinnant's public-domain algorithm).
fn civil_from_days(days: u32) -> (u32, u32, u32) {
    const DAYS_PER_ERA: u32 = 146_097;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / DAYS_PER_ERA, shifted % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + u32::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        let at = |sec| wall_time(WallTime { sec, nsec: 5_000 });
        assert_eq!(at(0), "0.000005");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.000005+0000");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000005+0000");
        assert_eq!(at(1_795_291_650), "2026-11-21T20:07:30.000005+0000");
        assert_eq!(at(u32::MAX), "2106-02-07T06:28:15.000005+0000");
    }
}
