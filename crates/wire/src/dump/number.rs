//! Numbers as C++ streams and Ceph's JSON formatter write them.

use serde_json::{Number, Value};

/// A JSON number: whole values without a fraction, as Ceph writes them.
pub fn number(v: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if v.fract() == 0.0 && v.abs() < EXACT {
        return Value::from(v as i64);
    }
    // Neither infinity nor NaN has a form in JSON.
    Number::from_f64(v).map_or(Value::Null, Value::Number)
}

/// C's `%g`: six significant digits, no trailing zeros.
pub fn general(v: f64) -> String {
    const DIGITS: i32 = 6;
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 { "0".to_owned() } else { format!("{v}").to_lowercase() };
    }
    // Rounding may carry into another digit, so the exponent comes from the rounded form.
    let scientific = format!("{:.*e}", (DIGITS - 1) as usize, v);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent).max(0) as usize;
        return trim_zeros(&format!("{v:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_is_what_printf_prints() {
        for (v, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (f64::from(0.95_f32), "0.95"),
            (f64::from(8_327_682_f32 / 16_777_216.0), "0.496369"),
            (1234.5, "1234.5"),
            (999_999.5, "1e+06"),
            (123_456_789.0, "1.23457e+08"),
            (0.000_012_345, "1.2345e-05"),
            (-0.75, "-0.75"),
        ] {
            assert_eq!(general(v), text);
        }
    }
}
