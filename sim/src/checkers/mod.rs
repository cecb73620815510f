//! What must hold of every run, one file per invariant.

pub mod append;
pub mod register;
pub mod replicas;

use crate::history::{Call, History, Outcome};

/// All violations in a finished history. Empty when it is correct.
pub fn check(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    for (object, operations) in history.by_object() {
        for op in &operations {
            if let Some((_, Outcome::Garbage(what))) = &op.returned {
                violations.push(format!("{object}: client {} read garbage: {what}", op.client));
            }
        }
        let appends = operations.iter().any(|op| matches!(op.call, Call::Append(_) | Call::ReadList));
        match appends {
            true => violations.extend(append::check(object, &operations)),
            false => violations.extend(register::check(object, &operations)),
        }
    }
    violations
}
