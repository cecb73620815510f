//! A fenced client's write never lands: once an operation has been carried out for somebody
//! whose map has the client on its blocklist, nothing of that client's changes the object
//! any more, and a client that knows of its own fence gets nothing done.
//!
//! A life of a client is fenced for good: who comes back has another address.
//! Registers are looked at in [`super::register`], as part of the search for an order.
//!
//! Source: the argument in `osd/src/blocklist.rs`.

use crate::history::{Call, History, Operation, Outcome};
use base::Errno;
use std::collections::BTreeMap;

fn is_refusal(outcome: &Outcome) -> bool {
    *outcome == Outcome::Failed(Errno::ESHUTDOWN.negative())
}

/// How many requests were refused.
pub fn refused(history: &History) -> u64 {
    let outcomes = history.operations.iter().filter_map(|op| op.returned.as_ref());
    outcomes.filter(|(_, outcome)| is_refusal(outcome)).count() as u64
}

/// What fenced clients are told.
pub fn check_answers(object: &str, operations: &[&Operation]) -> Vec<String> {
    let own = operations.iter().filter(|op| op.fenced.contains(&op.client));
    let served = own.filter(|op| op.returned.as_ref().is_some_and(|(_, outcome)| !is_refusal(outcome)));
    let text = |op: &&Operation| {
        format!("{object}: client {} is fenced and got {:?} for {:?}", op.client, op.returned, op.call)
    };
    served.map(text).collect()
}

/// What they left in append objects.
pub fn check_appends(object: &str, operations: &[&Operation]) -> Vec<String> {
    let lists = operations.iter().filter_map(|op| match &op.returned {
        Some((_, Outcome::List { data, .. })) => Some(data),
        _ => None,
    });
    let Some(order) = lists.max_by_key(|data| data.len()) else { return Vec::new() };
    let position: BTreeMap<u64, usize> = order.iter().enumerate().map(|(i, token)| (*token, i)).collect();
    // Of each fenced client: the first place after what somebody who knew did.
    let mut over: BTreeMap<usize, usize> = BTreeMap::new();
    for op in operations {
        let at = match (&op.call, &op.returned) {
            (Call::Append(token), _) => position.get(token).copied(),
            (_, Some((_, Outcome::List { data, .. }))) => Some(data.len()),
            _ => None,
        };
        for client in at.iter().flat_map(|_| &op.fenced) {
            let first = over.entry(*client).or_insert(usize::MAX);
            *first = at.map_or(*first, |at| at.min(*first));
        }
    }
    let mut violations = Vec::new();
    for op in operations {
        let Call::Append(token) = op.call else { continue };
        let (Some(at), Some(over)) = (position.get(&token), over.get(&op.client)) else { continue };
        if at >= over {
            violations.push(format!(
                "{object}: token {token} of client {}, which was fenced, landed at {at}, after the fence at {over}: {order:?}",
                op.client
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    fn list(data: &[u64]) -> Outcome {
        Outcome::List { data: data.to_vec(), omap: data.to_vec() }
    }

    fn appends(h: &History) -> Vec<String> {
        check_appends("o", &h.operations.iter().collect::<Vec<_>>())
    }

    /// Client 0 appends 1 and is fenced; client 1, who knows, does `call`.
    fn history(call: Call, outcome: Outcome) -> History {
        let mut h = History::default();
        h.invoke(0, "o", Call::Append(1));
        let aware = h.invoke(1, "o", call);
        h.operations[aware].fenced = vec![0];
        h.complete(aware, outcome);
        h
    }

    fn at_last(mut h: History, data: &[u64]) -> Vec<String> {
        let r = h.invoke(2, "o", Call::ReadList);
        h.complete(r, list(data));
        appends(&h)
    }

    #[test]
    fn what_lands_after_the_fence_is_seen() {
        let append = || history(Call::Append(2), Outcome::Done);
        assert_eq!(at_last(append(), &[2]), Vec::<String>::new());
        assert_eq!(at_last(append(), &[1, 2]), Vec::<String>::new());
        assert_eq!(at_last(append(), &[2, 1]).len(), 1);
        assert_eq!(at_last(history(Call::ReadList, list(&[1])), &[1]), Vec::<String>::new());
        assert_eq!(at_last(history(Call::ReadList, list(&[])), &[1]).len(), 1);
    }

    #[test]
    fn a_fenced_client_that_is_served_is_seen() {
        let verdict = |errno| {
            let mut h = History::default();
            let w = h.invoke(0, "o", Call::WriteFull(1));
            h.operations[w].fenced = vec![0];
            h.complete(w, if errno == 0 { Outcome::Done } else { Outcome::Failed(errno) });
            check_answers("o", &h.operations.iter().collect::<Vec<_>>()).len()
        };
        assert_eq!((verdict(-108), verdict(-5), verdict(0)), (0, 1, 1));
    }
}
