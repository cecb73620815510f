//! Writes, deletes and reads of one object are linearizable.
//!
//! To what keeps the search short ([`super::linear`]) comes here:
//!
//! - writes whose values nobody ever read are alike but for when they must have
//!   happened, so only the most urgent one need be tried;
//! - so are deletes that found something, and deletes of which that is not known.

use super::linear::{self, Candidate};
use crate::history::{Call, Operation, Outcome};
use std::collections::HashSet;

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
}

impl linear::Step for Step {
    type State = Option<u64>;

    fn apply(&self, state: &Option<u64>) -> Option<Option<u64>> {
        match *self {
            Step::See(value) => (value == *state).then_some(*state),
            Step::Set(value) => Some(value),
            Step::Remove => state.is_some().then_some(None),
            Step::RemoveAny => Some(None),
        }
    }

    fn only_looks(&self) -> bool {
        matches!(self, Step::See(_))
    }
}

/// Stands for every value that nobody ever read; tokens start at 1.
const UNREAD: Option<u64> = Some(0);

pub fn check(object: &str, operations: &[&Operation]) -> Option<String> {
    let mut candidates: Vec<Candidate<Step>> = linear::candidates(operations, Step::of);
    let read: HashSet<Option<u64>> = candidates
        .iter()
        .filter_map(|c| match c.step {
            Step::See(value) => Some(value),
            _ => None,
        })
        .collect();
    for candidate in &mut candidates {
        if let Step::Set(value) = &mut candidate.step
            && !read.contains(value)
        {
            *value = UNREAD;
        }
    }
    (!linear::is_explained(&candidates, None)).then(|| linear::story(object, operations))
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

    #[test]
    fn many_operations_at_once_are_checked_quickly() {
        let mut h = History::default();
        let writes: Vec<usize> = (1..=40).map(|t| h.invoke(0, "o", Call::WriteFull(t))).collect();
        let deletes: Vec<usize> = (0..20).map(|_| h.invoke(1, "o", Call::Delete)).collect();
        let reads: Vec<usize> = (0..20).map(|_| h.invoke(2, "o", Call::Read)).collect();
        writes.into_iter().for_each(|w| h.complete(w, Outcome::Done));
        deletes.into_iter().for_each(|d| h.complete(d, Outcome::Done));
        for (i, read) in reads.into_iter().enumerate() {
            h.complete(read, Outcome::Value((i % 3 > 0).then_some(1 + i as u64 / 2)));
        }
        assert_eq!(verdict(&h), None);
    }

    /// A write of 1, a write of the fence's owner, and what is read at last.
    fn fenced(late: bool, last: u64) -> Option<String> {
        let mut h = History::default();
        let w = h.invoke(0, "o", Call::WriteFull(1));
        if !late {
            h.complete(w, Outcome::Failed(-108));
        }
        let mine = h.invoke(1, "o", Call::WriteFull(2));
        h.operations[mine].fenced = vec![0];
        h.complete(mine, Outcome::Done);
        let r = h.invoke(1, "o", Call::Read);
        h.complete(r, Outcome::Value(Some(last)));
        verdict(&h)
    }

    #[test]
    fn a_fenced_clients_late_write_is_seen() {
        for late in [false, true] {
            assert_eq!(fenced(late, 2), None);
            assert!(fenced(late, 1).is_some());
        }
    }

    #[test]
    fn a_fenced_clients_write_may_come_before_the_fences_first_reader() {
        let mut h = History::default();
        h.invoke(0, "o", Call::WriteFull(1));
        let unaware = h.invoke(2, "o", Call::Read);
        let aware = h.invoke(1, "o", Call::Read);
        h.operations[aware].fenced = vec![0];
        h.complete(unaware, Outcome::Value(None));
        h.complete(aware, Outcome::Value(Some(1)));
        assert_eq!(verdict(&h), None);
        // Then it is nowhere, or there for good.
        let r = h.invoke(2, "o", Call::Read);
        h.complete(r, Outcome::Value(None));
        assert!(verdict(&h).is_some());
    }

    #[test]
    fn a_delete_that_found_something_needs_a_write_of_its_own() {
        let mut h = History::default();
        let w = h.invoke(0, "o", Call::WriteFull(1));
        h.complete(w, Outcome::Done);
        for _ in 0..2 {
            let d = h.invoke(0, "o", Call::Delete);
            h.complete(d, Outcome::Done);
        }
        assert!(verdict(&h).is_some());
    }
}
