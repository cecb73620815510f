//! `numops`: arithmetic on numbers that are kept as text in omap.
//!
//! Source: Ceph `src/cls/numops/cls_numops.cc`.

use crate::{Access, Fault, Method, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Decoder;

pub(crate) const METHODS: &[Method] = &[
    Method { name: "add", access: Access::ReadWrite, run: add },
    Method { name: "mul", access: Access::ReadWrite, run: mul },
];

/// Significant digits of what is stored.
const PRECISION: i32 = 10;

fn add(object: &mut dyn Object, input: Bytes) -> Output {
    change(object, input, |value, by| value + by)
}

fn mul(object: &mut dyn Object, input: Bytes) -> Output {
    change(object, input, |value, by| value * by)
}

/// A key that is not there counts as 0. EINVAL: no number in the input; EBADMSG: none stored.
fn change(object: &mut dyn Object, input: Bytes, operation: fn(f64, f64) -> f64) -> Output {
    let mut d = Decoder::plain(input);
    let (key, by): (Bytes, Bytes) = d.get()?;
    let by = parse(&by).ok_or(Errno::EINVAL)?;
    let value = match object.omap_get(&key) {
        Ok(stored) => parse(&stored).ok_or(Errno::EBADMSG)?,
        Err(Fault::Errno(_)) => 0.0,
        Err(fault) => return Err(fault),
    };
    let text = format(operation(value, by));
    object.omap_set(BTreeMap::from([(key, text.into())]))?;
    Ok(Bytes::new())
}

/// As C's `strtod` of a whole string, which ends at a NUL: empty is 0. Hexadecimal
/// numbers are not taken.
fn parse(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next()?;
    if text.is_empty() {
        return Some(0.0);
    }
    std::str::from_utf8(text).ok()?.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']).parse().ok()
}

/// As C's `%.10g`.
fn format(value: f64) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.into();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.into();
    }
    // Rounding may carry into the exponent: it is read off what was rounded.
    let scientific = format!("{value:.*e}", PRECISION as usize - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..PRECISION).contains(&exponent) {
        return short(&format!("{value:.*}", (PRECISION - 1 - exponent) as usize)).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(digits), exponent.abs())
}

/// Without zeros at the end of the fraction.
fn short(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;
    use wire::codec::Encoder;

    fn call(object: &mut MemObject, method: &str, by: &str) -> (i32, String) {
        let mut e = Encoder::plain();
        e.string("k");
        e.string(by);
        let code = object.code("numops", method, &e.finish());
        let stored = object.content.as_ref().and_then(|content| content.omap.get(&b"k"[..]));
        (code, stored.map(|text| String::from_utf8(text.to_vec()).unwrap()).unwrap_or_default())
    }

    #[test]
    fn numbers_are_kept_as_text() {
        let mut object = MemObject::new();
        assert_eq!(call(&mut object, "mul", "7"), (0, "0".into()));
        assert_eq!(call(&mut object, "add", " 2.5e1"), (0, "25".into()));
        assert_eq!(call(&mut object, "mul", "-0.1"), (0, "-2.5".into()));
        assert_eq!(call(&mut object, "add", ""), (0, "-2.5".into()));
        for no_number in ["x", "1x", " ", "1e"] {
            assert_eq!(call(&mut object, "add", no_number), (-22, "-2.5".into()));
        }
        assert_eq!(call(&mut object, "mul", "-inf"), (0, "inf".into()));
        let content = object.content.as_mut().unwrap();
        content.omap.insert("k".into(), "some".into());
        assert_eq!(call(&mut object, "add", "1"), (-74, "some".into()));
    }

    #[test]
    fn ten_digits_in_the_shorter_of_two_forms() {
        for (value, text) in [
            (0.1 + 0.2, "0.3"),
            (-0.0, "-0"),
            (1234567890.0, "1234567890"),
            (12345678901.0, "1.23456789e+10"),
            (9999999999.9, "1e+10"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e300 * 10.0, "1e+301"),
            (2.0 / 3.0, "0.6666666667"),
        ] {
            assert_eq!(format(value), text);
        }
    }
}
