//! A lock is a linearizable object: nobody takes one that another holds and that does not
//! admit him, whoever is refused is so for a reason, and what was released or broken is gone.
//!
//! A locker whose time is limited may be gone at any moment after, and to a read even be
//! there again: the clocks of two primaries may be seconds apart. It must not be there any
//! more only once a change has counted on that.
//!
//! Source: the rules of Ceph `src/cls/lock/cls_lock.cc`, as `cls/src/lock` states them.

use super::linear;
use crate::history::{Call, EXCLUSIVE, LockCall, Locker, Operation, Outcome, Renew, SHARED};
use base::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Who holds it; whether only for a time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    kind: u8,
    lockers: BTreeMap<Locker, bool>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Take {
        me: Locker,
        kind: u8,
        renew: Renew,
        expires: bool,
    },
    /// By its locker or somebody else.
    Drop(Locker),
    Rename {
        kind: u8,
        from: Locker,
        to: Locker,
    },
    SeeHeld {
        kind: u8,
        me: Locker,
    },
    SeeLockers {
        kind: u8,
        lockers: BTreeSet<Locker>,
    },
    Refused(Box<Step>, Errno),
}

impl State {
    const FREE: State = State { kind: EXCLUSIVE, lockers: BTreeMap::new() };

    fn holds(&self, locker: Locker) -> bool {
        self.lockers.contains_key(&locker)
    }

    fn holds_for_good(&self, locker: Locker) -> bool {
        self.lockers.get(&locker) == Some(&false)
    }

    fn others(&self, me: Locker) -> impl Iterator<Item = (&Locker, &bool)> {
        self.lockers.iter().filter(move |(locker, _)| **locker != me)
    }

    fn admits(&self, kind: u8) -> bool {
        kind == SHARED && self.kind == SHARED
    }

    /// States with the same future are equal.
    fn normal(mut self) -> State {
        if self.lockers.is_empty() {
            self.kind = EXCLUSIVE;
        }
        self
    }
}

impl Step {
    fn of(op: &Operation) -> Option<Step> {
        let Call::Lock(call) = &op.call else { return None };
        let locker = |cookie: u8| (op.client, cookie);
        let wish = match *call {
            LockCall::Take { kind, cookie, renew, expires } => {
                Step::Take { me: locker(cookie), kind, renew, expires }
            }
            LockCall::Release { cookie } => Step::Drop(locker(cookie)),
            LockCall::Break(whose) => Step::Drop(whose),
            LockCall::Rename { kind, cookie, to } => {
                Step::Rename { kind, from: locker(cookie), to: locker(to) }
            }
            LockCall::Assert { kind, cookie } => Step::SeeHeld { kind, me: locker(cookie) },
            LockCall::Info => match &op.returned {
                Some((_, Outcome::Lockers { kind, lockers })) => {
                    return Some(Step::SeeLockers { kind: *kind, lockers: lockers.clone() });
                }
                _ => return None,
            },
        };
        match (&op.returned, &wish) {
            (Some((_, Outcome::Refused(errno))), _) => Some(Step::Refused(Box::new(wish), *errno)),
            (Some((_, Outcome::Done)), _) => Some(wish),
            // A look without an answer says nothing.
            (_, Step::SeeHeld { .. }) => None,
            _ => Some(wish),
        }
    }

    fn may_be_refused(&self, state: &State, errno: Errno) -> bool {
        match (self, errno) {
            (Step::Take { me, renew, .. }, Errno::EEXIST) => *renew == Renew::Not && state.holds(*me),
            (Step::Take { me, renew, .. }, Errno::ENOENT) => {
                *renew == Renew::Must && !state.holds_for_good(*me)
            }
            (Step::Take { me, kind, renew, .. }, Errno::EBUSY) => {
                let reached = match renew {
                    Renew::Not => !state.holds_for_good(*me),
                    Renew::May => true,
                    Renew::Must => state.holds(*me),
                };
                reached && state.others(*me).next().is_some() && !state.admits(*kind)
            }
            (Step::Drop(locker), Errno::ENOENT) => !state.holds_for_good(*locker),
            (Step::Rename { kind, from, to }, Errno::EBUSY) => {
                !state.holds_for_good(*from) || state.kind != *kind || state.holds(*to)
            }
            (Step::SeeHeld { kind, me }, Errno::EBUSY) => !state.holds_for_good(*me) || state.kind != *kind,
            // As all methods but taking it, and reading who holds it, say without the object.
            (Step::Rename { .. } | Step::SeeHeld { .. }, Errno::ENOENT) => {
                state.lockers.values().all(|expires| *expires)
            }
            _ => false,
        }
    }
}

impl linear::Step for Step {
    type State = State;

    fn apply(&self, state: &State) -> Option<State> {
        let mut after = state.clone();
        match self {
            Step::Take { me, kind, renew, expires } => {
                match renew {
                    Renew::Not if state.holds_for_good(*me) => return None,
                    Renew::Must if !state.holds(*me) => return None,
                    _ => {}
                }
                if !state.admits(*kind) {
                    // Others, if any, must have come to their time.
                    if state.others(*me).any(|(_, expires)| !expires) {
                        return None;
                    }
                    after.lockers.clear();
                }
                after.lockers.insert(*me, *expires);
                after.kind = *kind;
            }
            Step::Drop(locker) => _ = after.lockers.remove(locker)?,
            Step::Rename { kind, from, to } => {
                if state.kind != *kind || state.holds_for_good(*to) {
                    return None;
                }
                let expires = after.lockers.remove(from)?;
                after.lockers.insert(*to, expires);
            }
            Step::SeeHeld { kind, me } => {
                if !state.holds(*me) || state.kind != *kind {
                    return None;
                }
            }
            Step::SeeLockers { kind, lockers } => {
                let all_there = lockers.iter().all(|locker| state.holds(*locker));
                let expired = |locker: &Locker| lockers.contains(locker) || !state.holds_for_good(*locker);
                let same_kind = lockers.is_empty() || *kind == state.kind;
                if !all_there || !same_kind || !state.lockers.keys().all(expired) {
                    return None;
                }
            }
            Step::Refused(wish, errno) => {
                if !wish.may_be_refused(state, *errno) {
                    return None;
                }
            }
        }
        Some(after.normal())
    }

    fn only_looks(&self) -> bool {
        matches!(self, Step::SeeHeld { .. } | Step::SeeLockers { .. } | Step::Refused(..))
    }
}

pub fn check(object: &str, operations: &[&Operation]) -> Option<String> {
    let candidates = linear::candidates(operations, Step::of);
    (!linear::is_explained(&candidates, State::FREE)).then(|| linear::story(object, operations))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    fn take(kind: u8) -> LockCall {
        LockCall::Take { kind, cookie: 0, renew: Renew::Not, expires: false }
    }

    /// One after the other: who, what, and the answer.
    fn verdict(story: &[(usize, LockCall, Option<Outcome>)]) -> bool {
        let mut h = History::default();
        for (client, call, outcome) in story {
            let op = h.invoke(*client, "o", Call::Lock(call.clone()));
            if let Some(outcome) = outcome {
                h.complete(op, outcome.clone());
            }
        }
        check("o", &h.operations.iter().collect::<Vec<_>>()).is_none()
    }

    fn done() -> Option<Outcome> {
        Some(Outcome::Done)
    }

    fn refused(errno: Errno) -> Option<Outcome> {
        Some(Outcome::Refused(errno))
    }

    const RELEASE: LockCall = LockCall::Release { cookie: 0 };

    #[test]
    fn two_holders_of_an_exclusive_lock_are_seen() {
        assert!(!verdict(&[(0, take(EXCLUSIVE), done()), (1, take(EXCLUSIVE), done())]));
        assert!(!verdict(&[(0, take(EXCLUSIVE), done()), (1, take(SHARED), done())]));
        assert!(!verdict(&[(0, take(SHARED), done()), (1, take(EXCLUSIVE), done())]));
        assert!(verdict(&[(0, take(SHARED), done()), (1, take(SHARED), done())]));
        assert!(verdict(&[(0, take(EXCLUSIVE), done()), (0, RELEASE, done()), (1, take(EXCLUSIVE), done())]));
        let broken = LockCall::Break((0, 0));
        assert!(verdict(&[(0, take(EXCLUSIVE), done()), (1, broken, done()), (1, take(EXCLUSIVE), done())]));
    }

    #[test]
    fn a_refusal_needs_a_holder() {
        assert!(!verdict(&[(1, take(EXCLUSIVE), refused(Errno::EBUSY))]));
        assert!(verdict(&[(0, take(EXCLUSIVE), None), (1, take(EXCLUSIVE), refused(Errno::EBUSY))]));
        assert!(!verdict(&[
            (0, take(EXCLUSIVE), done()),
            (0, RELEASE, done()),
            (1, take(EXCLUSIVE), refused(Errno::EBUSY))
        ]));
        assert!(!verdict(&[(0, take(EXCLUSIVE), done()), (0, RELEASE, refused(Errno::ENOENT))]));
        assert!(!verdict(&[(0, take(EXCLUSIVE), refused(Errno::EEXIST))]));
        assert!(!verdict(&[(0, take(SHARED), done()), (1, take(SHARED), refused(Errno::EBUSY))]));
    }

    #[test]
    fn a_lock_that_was_released_is_gone() {
        let info = |lockers: &[Locker]| {
            Some(Outcome::Lockers { kind: EXCLUSIVE, lockers: lockers.iter().copied().collect() })
        };
        let story = |seen| {
            verdict(&[(0, take(EXCLUSIVE), done()), (0, RELEASE, done()), (1, LockCall::Info, info(seen))])
        };
        assert!(story(&[]));
        assert!(!story(&[(0, 0)]));
        // Whose answer is not known may have happened or not.
        for seen in [&[][..], &[(0, 0)]] {
            assert!(verdict(&[
                (0, take(EXCLUSIVE), done()),
                (0, RELEASE, None),
                (1, LockCall::Info, info(seen))
            ]));
        }
    }

    #[test]
    fn a_lock_for_a_time_may_go_by_itself_and_not_come_back_after_a_change() {
        let lease = LockCall::Take { kind: EXCLUSIVE, cookie: 0, renew: Renew::Not, expires: true };
        assert!(verdict(&[(0, lease.clone(), done()), (1, take(EXCLUSIVE), done())]));
        assert!(verdict(&[(0, lease.clone(), done()), (1, take(EXCLUSIVE), refused(Errno::EBUSY))]));
        assert!(!verdict(&[(0, lease, done()), (1, take(EXCLUSIVE), done()), (0, RELEASE, done())]));
    }

    #[test]
    fn renewing_needs_a_lock_to_renew() {
        let renew = LockCall::Take { kind: EXCLUSIVE, cookie: 0, renew: Renew::Must, expires: false };
        assert!(!verdict(&[(0, renew.clone(), done())]));
        assert!(verdict(&[(0, renew.clone(), refused(Errno::ENOENT))]));
        assert!(verdict(&[(0, take(SHARED), done()), (0, renew, done())]));
    }

    #[test]
    fn a_cookie_that_was_changed_is_the_new_one() {
        let rename = LockCall::Rename { kind: EXCLUSIVE, cookie: 0, to: 1 };
        assert!(!verdict(&[(0, take(EXCLUSIVE), done()), (0, rename.clone(), done()), (0, RELEASE, done())]));
        let release = LockCall::Release { cookie: 1 };
        assert!(verdict(&[(0, take(EXCLUSIVE), done()), (0, rename, done()), (0, release, done())]));
    }
}
