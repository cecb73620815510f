//! Results as a table that reads well on a terminal and in a file.

use crate::result::{LatencySummary, PhaseResult};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};

/// Rows in the order given; the CPU column only if any row knows it.
pub fn render(results: &[PhaseResult]) -> String {
    let with_cpu = results.iter().any(|r| r.osd_cpu_seconds.is_some());
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let mut header =
        vec!["phase", "ops", "ops/s", "MiB/s", "mean ms", "p50 ms", "p99 ms", "p99.9 ms", "max ms"];
    if with_cpu {
        header.push("OSD CPU µs/op");
    }
    table.set_header(header.iter().enumerate().map(|(i, text)| cell(i, (*text).to_string())));
    for result in results {
        let mut texts = row(result);
        if with_cpu {
            texts.push(result.osd_cpu_us_per_op().map_or("-".into(), number));
        }
        table.add_row(texts.into_iter().enumerate().map(|(i, text)| cell(i, text)));
    }
    table.lines().map(|line| line.trim_end().to_string() + "\n").collect()
}

fn row(result: &PhaseResult) -> Vec<String> {
    let latency = |pick: fn(&LatencySummary) -> f64| {
        result.latency_us.as_ref().map_or("-".into(), |l| milliseconds(pick(l)))
    };
    vec![
        result.name.clone(),
        result.ops.to_string(),
        number(result.ops_per_second()),
        number(result.mib_per_second()),
        latency(|l| l.mean),
        latency(|l| l.p50),
        latency(|l| l.p99),
        latency(|l| l.p999),
        latency(|l| l.max),
    ]
}

/// Text to the left, numbers to the right.
fn cell(column: usize, text: String) -> Cell {
    let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
    Cell::new(text).set_alignment(alignment)
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn milliseconds(us: f64) -> String {
    let ms = us / 1e3;
    if ms < 0.9995 { format!("{ms:.3}") } else { number(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use base::Duration;

    #[test]
    fn table_is_aligned_and_has_a_cpu_column_only_when_known() {
        let mut writes = Latency::default();
        for us in [100, 200, 900] {
            writes.record(Duration::from_micros(us));
        }
        let mut result =
            PhaseResult::new("write".into(), &Latency::default(), &writes, 3 << 20, Duration::from_secs(2));
        let plain = render(std::slice::from_ref(&result));
        assert!(!plain.contains("CPU"));
        result.osd_cpu_seconds = Some(0.000_150);
        let with_cpu = render(&[result]);
        let last = with_cpu.lines().rfind(|l| l.contains("write")).unwrap();
        let cells: Vec<&str> = last.split(['│', '┆']).map(str::trim).filter(|c| !c.is_empty()).collect();
        assert_eq!(
            cells,
            ["write", "3", "1.50", "1.50", "0.400", "0.200", "0.900", "0.900", "0.900", "50.0"]
        );
    }
}
