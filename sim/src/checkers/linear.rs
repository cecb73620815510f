//! Linearizability of one object: an order of the operations that respects real time and
//! explains every answer.
//!
//! Wing and Gong's search, whatever the object is. Pending and failed changes may or may not
//! have happened. Two observations keep the search short even when dozens of operations were
//! under way at once, as after a partition:
//!
//! - what only looks, and is answered by the present state, can be placed at once, it hinders nothing;
//! - of steps that are alike only the one that must have happened first need be tried.
//!
//! Once an operation has happened of somebody who knew that a client was fenced, nothing of
//! that client's happens any more (see [`super::fence`]).

use crate::history::{Operation, Outcome};
use std::collections::HashSet;
use std::hash::Hash;

/// Operations on one object that the search takes on.
pub const OPERATIONS_MAX: usize = 128;

/// What one operation demands of, and does to, the object.
pub trait Step: Clone + PartialEq {
    type State: Clone + Eq + Hash;

    /// The state after it; `None` if it cannot have gone so in this one. Of a change whose
    /// outcome is not known: as if it had succeeded.
    fn apply(&self, state: &Self::State) -> Option<Self::State>;

    /// It changes nothing, in any state.
    fn only_looks(&self) -> bool;
}

pub struct Candidate<S> {
    pub step: S,
    invoked: u64,
    /// `u64::MAX` while pending.
    returned: u64,
    certain: bool,
    /// Those that cannot come after it, bit by bit.
    bars: u128,
    /// Its client, if it cannot come after some others.
    fenced: Option<usize>,
}

/// Of the operations that say anything.
pub fn candidates<S: Step>(
    operations: &[&Operation],
    step_of: impl Fn(&Operation) -> Option<S>,
) -> Vec<Candidate<S>> {
    let placed: Vec<(&Operation, S)> = operations.iter().filter_map(|op| Some((*op, step_of(op)?))).collect();
    assert!(placed.len() <= OPERATIONS_MAX, "the workload keeps objects' histories short");
    let candidate = |(op, step): &(&Operation, S)| {
        let certain = matches!(op.returned, Some((_, ref o)) if !matches!(o, Outcome::Failed(_)));
        // A failed write may take effect later: its request may still be on the way.
        let returned = op.returned.as_ref().filter(|_| certain).map_or(u64::MAX, |(at, _)| *at);
        let barred = placed.iter().enumerate().filter(|(_, (other, _))| op.fenced.contains(&other.client));
        let bars = barred.fold(0, |bars, (i, _)| bars | 1 << i);
        let fenced = placed.iter().any(|(other, _)| other.fenced.contains(&op.client)).then_some(op.client);
        Candidate { step: step.clone(), invoked: op.invoked, returned, certain, bars, fenced }
    };
    placed.iter().map(candidate).collect()
}

/// Whether there is such an order, from the object's first state on.
pub fn is_explained<S: Step>(candidates: &[Candidate<S>], first: S::State) -> bool {
    search(candidates, 0, first, &mut HashSet::new())
}

/// For a violation.
pub fn story(object: &str, operations: &[&Operation]) -> String {
    let lines: Vec<String> = operations.iter().map(|op| format!("{op:?}")).collect();
    format!("{object}: not linearizable:\n  {}", lines.join("\n  "))
}

fn search<S: Step>(
    candidates: &[Candidate<S>],
    mut done: u128,
    state: S::State,
    seen: &mut HashSet<(u128, S::State)>,
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
            if candidate.step.only_looks()
                && candidate.invoked < until
                && candidate.bars & !done == 0
                && candidate.step.apply(&state).is_some()
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
    if !seen.insert((done, state.clone())) {
        return false;
    }
    let until = limit(done);
    let mut next: Vec<usize> = open(done).filter(|i| candidates[*i].invoked < until).collect();
    next.sort_by_key(|i| candidates[*i].returned);
    let mut tried: Vec<(&S, Option<usize>, u128)> = Vec::new();
    for i in next {
        // What bars others, or is barred, is like none of them.
        let Candidate { step, fenced, bars, .. } = &candidates[i];
        let kind = (step, *fenced, bars & !done);
        if tried.contains(&kind) {
            continue;
        }
        tried.push(kind);
        if let Some(after) = step.apply(&state)
            && search(candidates, done | (1 << i), after, seen)
        {
            return true;
        }
    }
    false
}
