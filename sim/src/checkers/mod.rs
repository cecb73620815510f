//! What must hold of every run, one file per invariant.

pub mod append;
pub mod fence;
pub mod register;
pub mod replicas;

use crate::history::{Call, History, Outcome};

/// Once there is peace, no read fails: those from operation `from` on.
pub fn failed_reads(history: &History, from: usize) -> Vec<String> {
    let failed = history.operations[from..].iter().filter_map(|op| match &op.returned {
        // As it should: see `fence`.
        Some((_, Outcome::Failed(_))) if op.fenced.contains(&op.client) => None,
        Some((_, Outcome::Failed(errno))) => {
            Some(format!("{}: a read without any fault going on failed with {errno}", op.object))
        }
        _ => None,
    });
    failed.collect()
}

/// All violations in a finished history. Empty when it is correct.
pub fn check(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    for (object, operations) in history.by_object() {
        for op in &operations {
            if let Some((_, Outcome::Garbage(what))) = &op.returned {
                violations.push(format!("{object}: client {} read garbage: {what}", op.client));
            }
        }
        violations.extend(fence::check_answers(object, &operations));
        let appends = operations.iter().any(|op| matches!(op.call, Call::Append(_) | Call::ReadList));
        match appends {
            true => {
                violations.extend(append::check(object, &operations));
                violations.extend(fence::check_appends(object, &operations));
            }
            false => violations.extend(register::check(object, &operations)),
        }
    }
    violations
}
