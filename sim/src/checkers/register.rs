//! Writes, deletes and reads of one object are linearizable.
//!
//! Wing and Gong's search: an order of the operations that respects real time
//! and explains every answer. Pending and failed writes may or may not have
//! happened. Values are unique, which keeps the search short.

use crate::history::{Call, Operation, Outcome};
use std::collections::HashSet;

/// Operations on one object that the search takes on.
pub const OPERATIONS_MAX: usize = 128;

/// What one operation demands of, and does to, the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The object must hold this.
    See(Option<u64>),
    Set(Option<u64>),
    /// A delete that found something.
    Remove,
    /// A delete that may have found something or not.
    RemoveAny,
}

impl Step {
    fn of(op: &Operation) -> Option<Step> {
        let outcome = op.returned.as_ref().map(|(_, outcome)| outcome);
        match (&op.call, outcome) {
            (Call::Read, Some(Outcome::Value(value))) => Some(Step::See(*value)),
            (Call::WriteFull(token), _) => Some(Step::Set(Some(*token))),
            (Call::Delete, Some(Outcome::Done)) => Some(Step::Remove),
            (Call::Delete, Some(Outcome::Missing)) => Some(Step::See(None)),
            (Call::Delete, _) => Some(Step::RemoveAny),
            // A read that failed says nothing.
            _ => None,
        }
    }

    fn apply(self, state: Option<u64>) -> Option<Option<u64>> {
        match self {
            Step::See(value) => (value == state).then_some(state),
            Step::Set(value) => Some(value),
            Step::Remove => state.is_some().then_some(None),
            Step::RemoveAny => Some(None),
        }
    }
}

struct Candidate {
    step: Step,
    invoked: u64,
    /// `u64::MAX` while pending.
    returned: u64,
    certain: bool,
}

pub fn check(object: &str, operations: &[&Operation]) -> Option<String> {
    let candidates: Vec<Candidate> = operations
        .iter()
        .filter_map(|op| {
            let step = Step::of(op)?;
            let certain = matches!(op.returned, Some((_, ref o)) if !matches!(o, Outcome::Failed(_)));
            // A failed write may take effect later: its request may still be on the way.
            let returned = op.returned.as_ref().filter(|_| certain).map_or(u64::MAX, |(at, _)| *at);
            Some(Candidate { step, invoked: op.invoked, returned, certain })
        })
        .collect();
    assert!(candidates.len() <= OPERATIONS_MAX, "the workload keeps objects' histories short");
    let mut seen = HashSet::new();
    let explained = search(&candidates, 0, None, &mut seen);
    (!explained).then(|| {
        let story: Vec<String> = operations.iter().map(|op| format!("{op:?}")).collect();
        format!("{object}: not linearizable:\n  {}", story.join("\n  "))
    })
}

fn search(
    candidates: &[Candidate],
    done: u128,
    state: Option<u64>,
    seen: &mut HashSet<(u128, Option<u64>)>,
) -> bool {
    let open = |i: &usize| done & (1 << i) == 0;
    if (0..candidates.len()).filter(open).all(|i| !candidates[i].certain) {
        return true;
    }
    if !seen.insert((done, state)) {
        return false;
    }
    // Next can only be what was invoked before every open operation returned.
    let limit = (0..candidates.len()).filter(open).map(|i| candidates[i].returned).min().unwrap_or(u64::MAX);
    (0..candidates.len()).filter(open).any(|i| {
        let candidate = &candidates[i];
        candidate.invoked < limit
            && candidate.step.apply(state).is_some_and(|next| search(candidates, done | (1 << i), next, seen))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    fn verdict(h: &History) -> Option<String> {
        check("o", &h.operations.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_pending_write_may_or_may_not_be_seen() {
        for seen in [None, Some(1)] {
            let mut h = History::default();
            h.invoke(0, "o", Call::WriteFull(1));
            let r = h.invoke(1, "o", Call::Read);
            h.complete(r, Outcome::Value(seen));
            assert_eq!(verdict(&h), None);
        }
    }

    #[test]
    fn a_stale_read_is_seen() {
        let mut h = History::default();
        for token in [1, 2] {
            let w = h.invoke(0, "o", Call::WriteFull(token));
            h.complete(w, Outcome::Done);
        }
        let r = h.invoke(1, "o", Call::Read);
        h.complete(r, Outcome::Value(Some(1)));
        assert!(verdict(&h).is_some());
    }

    #[test]
    fn an_undone_delete_is_seen() {
        let mut h = History::default();
        let w = h.invoke(0, "o", Call::WriteFull(1));
        h.complete(w, Outcome::Done);
        let d = h.invoke(0, "o", Call::Delete);
        h.complete(d, Outcome::Done);
        let r = h.invoke(1, "o", Call::Read);
        h.complete(r, Outcome::Value(Some(1)));
        assert!(verdict(&h).is_some());
    }
}
