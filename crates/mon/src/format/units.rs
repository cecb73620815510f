//! Quantities as Ceph prints them: at most three digits and a unit.
//!
//! Source: Ceph `src/include/types.h` (`byte_u_t`, `si_u_t`).

const BYTE_UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SI_UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

fn scaled(value: u64, base: u64) -> (String, usize) {
    let (mut whole, mut unit) = (value, 0);
    while whole >= base && unit < 6 {
        whole /= base;
        unit += 1;
    }
    let scale = (base as f64).powi(unit as i32);
    let exact = value as f64 / scale;
    let text = if unit == 0 || value.is_multiple_of(scale as u64) {
        whole.to_string()
    } else if whole >= 100 {
        format!("{exact:.0}")
    } else if whole >= 10 {
        // Two digits before the point leave room for none after it in three columns.
        format!("{exact:.0}")
    } else {
        format!("{exact:.1}")
    };
    (text, unit)
}

/// `59 GiB`, `8.5 MiB`, `0 B`.
pub fn bytes(value: u64) -> String {
    let (text, unit) = scaled(value, 1024);
    format!("{text} {}", BYTE_UNITS[unit])
}

/// `1.23k` style counts, in thousands.
pub fn count(value: u64) -> String {
    if value < 1000 {
        return value.to_string();
    }
    let (mut whole, mut unit) = (value, 0);
    while whole >= 1000 && unit < 6 {
        whole /= 1000;
        unit += 1;
    }
    let scale = 1000f64.powi(unit as i32);
    let exact = value as f64 / scale;
    let text = match whole {
        _ if value.is_multiple_of(scale as u64) => whole.to_string(),
        100.. => format!("{exact:.0}"),
        10.. => format!("{exact:.1}"),
        _ => format!("{exact:.2}"),
    };
    format!("{text}{}", SI_UNITS[unit])
}

/// Reads `10`, `10K`, `10Ki`, `10GB`: powers of 1024 with and without the `i`,
/// as options take them.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let value: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim().trim_end_matches('B').trim_end_matches('i');
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        "P" | "p" => 50,
        "E" | "e" => 60,
        _ => return None,
    };
    value.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_print_as_ceph_prints_them() {
        // From `df`, `osd df` and `status` of a real cluster.
        for (value, text) in [
            (0, "0 B"),
            (4_194_304, "4 MiB"),
            (921_559_040, "879 MiB"),
            (63_502_950_400, "59 GiB"),
            (64_424_509_440, "60 GiB"),
            (8696 * 1024, "8.5 MiB"),
            (4264 * 1024, "4.2 MiB"),
            (168 * 1024, "168 KiB"),
            (1023, "1023 B"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("10"), Some(10));
        assert_eq!(parse_size("4K"), Some(4096));
        assert_eq!(parse_size("1GiB"), Some(1 << 30));
        assert_eq!(parse_size("99999999999E"), None);
        assert_eq!(parse_size("x"), None);
    }
}
