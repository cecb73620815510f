//! What must hold of every run, one file per invariant.

pub mod append;
pub mod fence;
pub mod linear;
pub mod lock;
pub mod register;
pub mod replicas;
pub mod watch;

use crate::history::{Call, History, Outcome};

/// Once there is peace, no read fails, of locks neither: those from operation `from` on.
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
        match operations[0].call {
            Call::Append(_) | Call::ReadList => {
                violations.extend(append::check(object, &operations));
                violations.extend(fence::check_appends(object, &operations));
            }
            Call::WriteFull(_) | Call::Delete | Call::Read => {
                violations.extend(register::check(object, &operations));
            }
            Call::Lock(_) => violations.extend(lock::check(object, &operations)),
        }
    }
    violations.extend(watch::check(history));
    violations
}
