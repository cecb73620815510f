//! Whoever watches an object hears of its notifications, and nobody else does.
//!
//! - A notification that has come to its end names every watch that was established before it
//!   and lived on after it: as one that answered, or, if its time was up, as one that did not.
//! - Who answered was told, and has that notification from somebody who sent it.
//! - After an unwatch was acknowledged no notification that is sent then comes to the watch or
//!   waits for it; none comes to a fenced client from whoever knows of the fence.
//! - A watch ends by silence for its timeout, and not before; who is silent for ever is not
//!   waited for: once every fault is over, notifications are complete, and some time later only
//!   watches that live are recorded, and all of these.
//!
//! Source: docs/protocol/watch.md.

use crate::history::History;
use crate::watch_history::{Completed, Listed, Notified, Watched};
use base::Errno;
use std::collections::BTreeSet;

const ENOTCONN: i32 = -Errno::ENOTCONN.0;
const ESHUTDOWN: i32 = -Errno::ESHUTDOWN.0;
const ETIMEDOUT: i32 = -Errno::ETIMEDOUT.0;

/// All violations.
pub fn check(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    for watch in &history.watches {
        violations.extend(check_loss(history, watch));
        violations.extend(check_heard(history, watch));
    }
    for (token, notify) in history.notifies.iter().enumerate() {
        if let Some(done) = &notify.completed {
            violations.extend(check_completion(history, token, notify, done));
        }
    }
    violations.extend(history.listed.iter().filter_map(|listed| check_listed(history, listed)));
    violations.truncate(10);
    violations
}

/// From when on the client may be dead, or fenced.
fn doomed(history: &History, client: usize) -> u64 {
    history.doomed.get(&client).copied().unwrap_or(u64::MAX)
}

fn check_loss(history: &History, watch: &Watched) -> Option<String> {
    let loss = watch.lost?;
    let fenced = doomed(history, watch.client) < loss.at;
    // Clocks differ in their rates, by less than a thousandth.
    let patience = watch.timeout - watch.timeout / 100;
    let why = match loss.errno {
        _ if fenced => return None,
        ENOTCONN if loss.silence >= patience => return None,
        ENOTCONN => "before its time",
        // It is recorded, but not connected: a ping overtook the news of an interval, where
        // whoever was connected is forgotten. Ceph's OSD says the same.
        ETIMEDOUT => return None,
        ESHUTDOWN => "as if it were fenced",
        _ => "for no reason",
    };
    Some(format!("a watch was lost {why}: {watch:?}"))
}

fn check_heard(history: &History, watch: &Watched) -> Option<String> {
    watch.heard.iter().find_map(|(_, token)| {
        let Some(notify) = history.notifies.get(*token) else {
            return Some(format!("notification {token}, which nobody sent, came to {watch:?}"));
        };
        let wrong = match () {
            () if notify.object != watch.object => "of another object",
            () if notify.fenced.contains(&watch.client) => "after the client was fenced",
            () if watch.left.is_some_and(|left| left < notify.invoked) => "after the end of the watch",
            () => return None,
        };
        Some(format!("a notification {wrong} came to {watch:?}: {notify:?}"))
    })
}

fn check_completion(history: &History, token: usize, notify: &Notified, done: &Completed) -> Vec<String> {
    let mut wrong = Vec::new();
    let named = |name: (u64, u64)| history.watches.iter().enumerate().find(|(_, watch)| watch.name == name);
    match done.result {
        0 if !done.missed.is_empty() => wrong.push("is complete without all having answered".to_string()),
        0 => {}
        ETIMEDOUT if done.missed.is_empty() => wrong.push("timed out, but nobody is late".into()),
        ETIMEDOUT if !notify.last => {}
        ESHUTDOWN if doomed(history, notify.client) < done.at => {}
        result => wrong.push(format!("failed with {result}")),
    }
    for (name, says) in &done.replies {
        match named(*name) {
            Some((index, _)) if index != *says => {
                wrong.push(format!("has the answer of watch {says} as that of {name:?}"));
            }
            Some((_, watch)) if !watch.heard.iter().any(|(at, heard)| *at < done.at && *heard == token) => {
                wrong.push(format!("was answered by one that did not hear of it: {watch:?}"));
            }
            Some((_, watch)) if notify.fenced.contains(&watch.client) => {
                wrong.push(format!("was answered by a fenced client: {watch:?}"));
            }
            Some(_) => {}
            None => wrong.push(format!("was answered by {name:?}, which is no watch")),
        }
    }
    for name in done.replies.iter().map(|(name, _)| name).chain(&done.missed) {
        match named(*name) {
            Some((_, watch)) if watch.left.is_some_and(|left| left < notify.invoked) => {
                wrong.push(format!("waited for a watch that had ended: {watch:?}"));
            }
            Some((_, watch)) if watch.object != notify.object => {
                wrong.push(format!("waited for a watch of another object: {watch:?}"));
            }
            _ => {}
        }
    }
    if done.result == 0 || done.result == ETIMEDOUT {
        let all = history.watches.iter().filter(|watch| watch.object == notify.object);
        for watch in all.filter(|watch| must_be_told(history, watch, notify, done)) {
            let answered = done.replies.iter().any(|(name, _)| *name == watch.name);
            if !answered && !done.missed.contains(&watch.name) {
                wrong.push(format!("did not reach {watch:?}"));
            }
        }
    }
    wrong.into_iter().map(|wrong| format!("a notification {wrong}: {notify:?}")).collect()
}

fn check_listed(history: &History, listed: &Listed) -> Option<String> {
    let lives = |watch: &&Watched| {
        let over =
            watch.leaving.is_some() || watch.lost.is_some() || history.doomed.contains_key(&watch.client);
        watch.object == listed.object && watch.established.is_some() && !over
    };
    let alive: BTreeSet<(u64, u64)> = history.watches.iter().filter(lives).map(|watch| watch.name).collect();
    let names = match &listed.names {
        Ok(names) if *names == alive => return None,
        names => names,
    };
    Some(format!("object {} has the watches {names:?} recorded, while {alive:?} live", listed.object))
}

/// It was there before the notification, and was there still when that had ended.
fn must_be_told(history: &History, watch: &Watched, notify: &Notified, done: &Completed) -> bool {
    let heard_later = watch
        .heard
        .iter()
        .any(|(_, token)| history.notifies.get(*token).is_some_and(|later| later.invoked > done.at));
    watch.established.is_some_and(|at| at < notify.invoked)
        && watch.leaving.is_none_or(|at| at > done.at)
        && doomed(history, watch.client) > done.at
        && (watch.alive > done.at || heard_later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch_history::Loss;
    use base::Duration;

    const NAME: (u64, u64) = (100, 7);

    /// A watch that lives on, and a notification that it answers.
    fn answered() -> History {
        let mut h = History::default();
        h.watches.push(Watched {
            client: 0,
            name: NAME,
            object: 0,
            timeout: Duration::from_secs(4),
            established: Some(1),
            alive: 10,
            leaving: None,
            left: None,
            lost: None,
            heard: vec![(3, 0)],
        });
        let completed = Completed { at: 4, result: 0, replies: vec![(NAME, 0)], missed: vec![] };
        h.notifies.push(Notified {
            client: 1,
            object: 0,
            fenced: vec![],
            invoked: 2,
            last: false,
            completed: Some(completed),
        });
        h
    }

    fn after(change: impl FnOnce(&mut Watched, &mut Notified, &mut Completed)) -> Vec<String> {
        let mut h = answered();
        let (mut watch, mut notify) = (h.watches.remove(0), h.notifies.remove(0));
        let mut done = notify.completed.take().unwrap();
        change(&mut watch, &mut notify, &mut done);
        notify.completed = Some(done);
        h.watches.push(watch);
        h.notifies.push(notify);
        check(&h)
    }

    fn seen(what: &str, change: impl FnOnce(&mut Watched, &mut Notified, &mut Completed)) {
        let violations = after(change);
        assert!(violations.iter().any(|v| v.contains(what)), "{what}: {violations:?}");
    }

    fn unanswered(watch: &mut Watched, done: &mut Completed) {
        watch.heard.clear();
        done.replies.clear();
    }

    #[test]
    fn what_is_right_passes() {
        assert_eq!(after(|_, _, _| {}), Vec::<String>::new());
        // Late, and named so.
        let late = after(|watch, _, done| {
            unanswered(watch, done);
            (done.result, done.missed) = (ETIMEDOUT, vec![NAME]);
        });
        assert_eq!(late, Vec::<String>::new());
    }

    #[test]
    fn a_watch_that_was_not_told_is_seen_unless_it_may_have_ended() {
        seen("did not reach", |watch, _, done| unanswered(watch, done));
        seen("did not reach", |watch, _, done| {
            unanswered(watch, done);
            watch.leaving = Some(5);
        });
        for why in 0..3 {
            let fine = after(|watch, _, done| {
                unanswered(watch, done);
                match why {
                    0 => watch.leaving = Some(3),
                    1 => watch.established = Some(3),
                    _ => watch.alive = 3,
                }
            });
            assert_eq!(fine, Vec::<String>::new());
        }
    }

    #[test]
    fn a_completion_that_does_not_fit_is_seen() {
        seen("without all", |_, _, done| done.missed.push(NAME));
        seen("nobody is late", |_, _, done| done.result = ETIMEDOUT);
        seen("failed with", |_, _, done| done.result = -5);
        seen("did not hear", |watch, _, _| watch.heard.clear());
        seen("no watch", |_, _, done| done.replies[0].0 = (1, 1));
        seen("failed with", |_, notify, done| {
            notify.last = true;
            (done.result, done.missed) = (ETIMEDOUT, vec![(100, 9)]);
        });
    }

    #[test]
    fn word_to_a_watch_that_has_ended_or_is_fenced_is_seen() {
        seen("after the end", |watch, _, _| (watch.leaving, watch.left) = (Some(0), Some(1)));
        seen("waited for a watch that had ended", |watch, _, _| watch.left = Some(1));
        seen("after the client was fenced", |_, notify, _| notify.fenced.push(0));
        seen("answered by a fenced client", |_, notify, _| notify.fenced.push(0));
        seen("of another object", |watch, _, _| watch.object = 1);
    }

    #[test]
    fn a_watch_that_is_lost_too_early_is_seen() {
        let lost = |errno, seconds| {
            after(|watch, _, _| {
                watch.lost = Some(Loss { at: 8, errno, silence: Duration::from_secs(seconds) });
            })
        };
        assert_eq!((lost(ENOTCONN, 4).len(), lost(ENOTCONN, 3).len(), lost(-2, 9).len()), (0, 1, 1));
    }

    #[test]
    fn a_record_that_is_not_of_the_living_is_seen() {
        let recorded = |names: &[(u64, u64)], dead: bool| {
            let mut h = answered();
            h.listed.push(Listed { object: 0, names: Ok(names.iter().copied().collect()) });
            if dead {
                h.doomed.insert(0, 20);
            }
            check(&h).len()
        };
        assert_eq!((recorded(&[NAME], false), recorded(&[], true)), (0, 0));
        assert_eq!((recorded(&[], false), recorded(&[NAME], true)), (1, 1));
    }
}
