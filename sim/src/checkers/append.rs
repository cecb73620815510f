//! Appends to one object form one order that every read agrees with: nothing
//! acknowledged is lost, nothing takes effect twice, no read goes back in time,
//! and a request's parts are seen together.
//!
//! Source: the promises in docs/architecture.md; the method is Jepsen's list-append.

use crate::history::{Call, Operation, Outcome};
use std::collections::BTreeMap;

pub fn check(object: &str, operations: &[&Operation]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut bad = |text: String| violations.push(format!("{object}: {text}"));
    let reads: Vec<(&Operation, u64, &Vec<u64>, &Vec<u64>)> = operations
        .iter()
        .filter_map(|op| match &op.returned {
            Some((at, Outcome::List { data, omap })) => Some((*op, *at, data, omap)),
            _ => None,
        })
        .collect();
    // The longest read is the order; all others must be prefixes of it.
    let empty = Vec::new();
    let order = reads.iter().map(|(_, _, data, _)| *data).max_by_key(|data| data.len()).unwrap_or(&empty);
    let mut position = BTreeMap::new();
    for (i, token) in order.iter().enumerate() {
        if position.insert(*token, i).is_some() {
            bad(format!("token {token} was appended twice"));
        }
    }
    for (op, _, data, omap) in &reads {
        if !order.starts_with(data) {
            bad(format!("client {} read {data:?}, no prefix of {order:?}", op.client));
        }
        let mut sorted = (*data).clone();
        sorted.sort_unstable();
        if &sorted != *omap {
            bad(format!("client {} read data {data:?} but omap {omap:?}", op.client));
        }
    }
    for op in operations {
        let Call::Append(token) = op.call else { continue };
        let Some((returned, Outcome::Done)) = op.returned else { continue };
        for (read, _, data, _) in &reads {
            if read.invoked > returned && !data.contains(&token) {
                bad(format!("acknowledged append {token} is missing in a later read {data:?}"));
            }
        }
        // Real time, and each client's own submission order.
        for later in operations {
            let Call::Append(other) = later.call else { continue };
            let follows = later.invoked > returned || later.client == op.client && later.invoked > op.invoked;
            if let (true, Some(a), Some(b)) = (follows, position.get(&token), position.get(&other))
                && a > b
            {
                bad(format!("append {other} came before {token}, which was earlier"));
            }
        }
    }
    for (earlier, returned, a, _) in &reads {
        for (later, _, b, _) in &reads {
            if later.invoked > *returned && b.len() < a.len() {
                let clients = (earlier.client, later.client);
                bad(format!("a read went back in time: {a:?}, then {b:?} (clients {clients:?})"));
            }
        }
    }
    violations.truncate(10);
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    fn list(data: &[u64]) -> Outcome {
        let mut omap = data.to_vec();
        omap.sort_unstable();
        Outcome::List { data: data.to_vec(), omap }
    }

    fn violations(h: &History) -> Vec<String> {
        check("o", &h.operations.iter().collect::<Vec<_>>())
    }

    #[test]
    fn correct_history_passes() {
        let mut h = History::default();
        let a = h.invoke(0, "o", Call::Append(1));
        let b = h.invoke(1, "o", Call::Append(2));
        h.complete(b, Outcome::Done);
        h.complete(a, Outcome::Done);
        let r = h.invoke(0, "o", Call::ReadList);
        h.complete(r, list(&[2, 1]));
        assert_eq!(violations(&h), Vec::<String>::new());
    }

    #[test]
    fn lost_doubled_and_stale_are_seen() {
        let mut h = History::default();
        let a = h.invoke(0, "o", Call::Append(1));
        h.complete(a, Outcome::Done);
        let r = h.invoke(0, "o", Call::ReadList);
        h.complete(r, list(&[]));
        assert!(violations(&h).iter().any(|v| v.contains("missing")));

        let mut h = History::default();
        let r = h.invoke(0, "o", Call::ReadList);
        h.complete(r, list(&[1, 1]));
        assert!(violations(&h).iter().any(|v| v.contains("twice")));

        let mut h = History::default();
        for tokens in [&[1, 2][..], &[1][..]] {
            let r = h.invoke(0, "o", Call::ReadList);
            h.complete(r, list(tokens));
        }
        assert!(violations(&h).iter().any(|v| v.contains("back in time")));
    }
}
