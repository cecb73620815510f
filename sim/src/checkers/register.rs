//! Writes, deletes and reads of one object are linearizable.
//!
//! Wing and Gong's search: an order of the operations that respects real time
//! and explains every answer. Pending and failed writes may or may not have
//! happened. Three observations keep the search short even when dozens of
//! operations were under way at once, as after a partition:
//!
//! - a read that the present state answers can be placed at once, it hinders nothing;
//! - writes whose values nobody ever read are alike but for when they must have
//!   happened, so only the most urgent one need be tried;
//! - so are deletes that found something, and deletes of which that is not known.
//!
//! Once an operation has happened of somebody who knew that a client was fenced, nothing of
//! that client's happens any more (see [`super::fence`]).

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
    /// Those that cannot come after it, bit by bit.
    bars: u128,
    /// Its client, if it cannot come after some others.
    fenced: Option<usize>,
}

pub fn check(object: &str, operations: &[&Operation]) -> Option<String> {
    let placed: Vec<(&Operation, Step)> =
        operations.iter().filter_map(|op| Some((*op, Step::of(op)?))).collect();
    assert!(placed.len() <= OPERATIONS_MAX, "the workload keeps objects' histories short");
    let mut candidates: Vec<Candidate> = placed
        .iter()
        .map(|(op, step)| {
            let certain = matches!(op.returned, Some((_, ref o)) if !matches!(o, Outcome::Failed(_)));
            // A failed write may take effect later: its request may still be on the way.
            let returned = op.returned.as_ref().filter(|_| certain).map_or(u64::MAX, |(at, _)| *at);
            let barred =
                placed.iter().enumerate().filter(|(_, (other, _))| op.fenced.contains(&other.client));
            let bars = barred.fold(0, |bars, (i, _)| bars | 1 << i);
            let fenced =
                placed.iter().any(|(other, _)| other.fenced.contains(&op.client)).then_some(op.client);
            Candidate { step: *step, invoked: op.invoked, returned, certain, bars, fenced }
        })
        .collect();
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
    let explained = search(&candidates, 0, None, &mut HashSet::new());
    (!explained).then(|| {
        let story: Vec<String> = operations.iter().map(|op| format!("{op:?}")).collect();
        format!("{object}: not linearizable:\n  {}", story.join("\n  "))
    })
}

/// Stands for every value that nobody ever read; tokens start at 1.
const UNREAD: Option<u64> = Some(0);

fn search(
    candidates: &[Candidate],
    mut done: u128,
    state: Option<u64>,
    seen: &mut HashSet<(u128, Option<u64>)>,
) -> bool {
    let bits = |set: u128| (0..candidates.len()).filter(move |i| set & (1 << i) != 0);
    let barred = bits(done).fold(0, |barred, i| barred | candidates[i].bars);
    let open = |done: u128| bits(!(done | barred));
    // Next can only be what was invoked before every open operation returned.
    let limit = |done: u128| open(done).map(|i| candidates[i].returned).min().unwrap_or(u64::MAX);
    loop {
        let before = done;
        let until = limit(done);
        for i in open(done) {
            let candidate = &candidates[i];
            if candidate.step == Step::See(state) && candidate.invoked < until && candidate.bars & !done == 0
            {
                done |= 1 << i;
            }
        }
        if done == before {
            break;
        }
    }
    if bits(barred & !done).any(|i| candidates[i].certain) {
        return false;
    }
    if open(done).all(|i| !candidates[i].certain) {
        return true;
    }
    if !seen.insert((done, state)) {
        return false;
    }
    let until = limit(done);
    let mut next: Vec<usize> = open(done).filter(|i| candidates[*i].invoked < until).collect();
    next.sort_by_key(|i| candidates[*i].returned);
    let mut tried: Vec<(Step, Option<usize>, u128)> = Vec::new();
    for i in next {
        // What bars others, or is barred, is like none of them.
        let Candidate { step, fenced, bars, .. } = candidates[i];
        let kind = (step, fenced, bars & !done);
        if tried.contains(&kind) {
            continue;
        }
        tried.push(kind);
        if let Some(after) = step.apply(state)
            && search(candidates, done | (1 << i), after, seen)
        {
            return true;
        }
    }
    false
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
