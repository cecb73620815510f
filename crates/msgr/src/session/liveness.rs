//! Deadlines of a connection: the handshake's, the idle one, and keepalives.
//!
//! Bytes arrive without a time; they count as heard at the next tick. That
//! makes deadlines late by at most one interval and spares a clock reading
//! per chunk.
//!
//! Source: WIRE: msgr2#liveness.

use crate::SessionError;
use base::{Duration, Time};

/// What a tick asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    Nothing,
    Keepalive,
}

enum Watch {
    Handshake {
        deadline: Time,
    },
    /// Accepted: dropped after this long without a byte.
    Idle(Option<Duration>),
    /// Dialled: ask every `interval`, give up after `timeout` of silence.
    Keepalive(Option<(Duration, Duration)>),
}

pub struct Liveness {
    watch: Watch,
    after_handshake: Option<Watch>,
    heard: bool,
    last_heard: Time,
    last_asked: Time,
    last_tick: Time,
}

impl Liveness {
    pub fn acceptor(now: Time, handshake: Duration, idle: Option<Duration>) -> Liveness {
        Liveness::new(now, handshake, Watch::Idle(idle))
    }

    pub fn connector(now: Time, handshake: Duration, keepalive: Option<(Duration, Duration)>) -> Liveness {
        Liveness::new(now, handshake, Watch::Keepalive(keepalive))
    }

    fn new(now: Time, handshake: Duration, after: Watch) -> Liveness {
        Liveness {
            watch: Watch::Handshake { deadline: now + handshake },
            after_handshake: Some(after),
            heard: false,
            last_heard: now,
            last_asked: now,
            last_tick: now,
        }
    }

    pub fn on_heard(&mut self) {
        self.heard = true;
    }

    pub fn on_ready(&mut self) {
        if let Some(watch) = self.after_handshake.take() {
            self.watch = watch;
        }
    }

    pub fn on_tick(&mut self, now: Time) -> Result<Due, SessionError> {
        let since_tick = now.since(std::mem::replace(&mut self.last_tick, now));
        if std::mem::take(&mut self.heard) {
            self.last_heard = now;
        }
        match self.watch {
            Watch::Handshake { deadline } if now >= deadline => Err(SessionError::HandshakeTimeout),
            Watch::Idle(Some(idle)) if now.since(self.last_heard) >= idle => Err(SessionError::Idle),
            Watch::Keepalive(Some((interval, timeout))) => {
                // Ticks come at least once per interval. If they did not, we
                // were the ones asleep, and answers may wait in the socket.
                if since_tick >= timeout {
                    self.last_heard = now;
                }
                if now.since(self.last_heard) >= timeout {
                    return Err(SessionError::PeerDead);
                }
                if now.since(self.last_asked) < interval {
                    return Ok(Due::Nothing);
                }
                self.last_asked = now;
                Ok(Due::Keepalive)
            }
            _ => Ok(Due::Nothing),
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        match self.watch {
            Watch::Handshake { deadline } => Some(deadline),
            Watch::Idle(idle) => Some(self.last_heard + idle?),
            Watch::Keepalive(keepalive) => {
                let (interval, timeout) = keepalive?;
                Some((self.last_asked + interval).min(self.last_heard + timeout))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u64) -> Time {
        Time::ZERO + Duration::from_secs(sec)
    }

    fn ready_connector() -> Liveness {
        let keepalive = (Duration::from_secs(10), Duration::from_secs(30));
        let mut l = Liveness::connector(at(0), Duration::from_secs(20), Some(keepalive));
        l.on_ready();
        l
    }

    #[test]
    fn silent_peer_is_asked_and_then_given_up() {
        let mut l = ready_connector();
        assert_eq!(l.deadline(), Some(at(10)));
        assert_eq!(l.on_tick(at(5)), Ok(Due::Nothing));
        assert_eq!(l.on_tick(at(10)), Ok(Due::Keepalive));
        assert_eq!(l.on_tick(at(20)), Ok(Due::Keepalive));
        assert_eq!(l.deadline(), Some(at(30)));
        assert_eq!(l.on_tick(at(30)), Err(SessionError::PeerDead));
    }

    #[test]
    fn answering_peer_lives_on() {
        let mut l = ready_connector();
        for sec in 1..100 {
            l.on_heard();
            assert!(l.on_tick(at(10 * sec)).is_ok());
        }
    }

    #[test]
    fn our_own_sleep_is_not_held_against_the_peer() {
        let mut l = ready_connector();
        assert_eq!(l.on_tick(at(500)), Ok(Due::Keepalive));
        assert_eq!(l.on_tick(at(510)), Ok(Due::Keepalive));
    }

    #[test]
    fn handshake_and_idleness_have_deadlines() {
        let mut l = Liveness::acceptor(at(0), Duration::from_secs(20), Some(Duration::from_secs(900)));
        l.on_heard();
        assert_eq!(l.on_tick(at(19)), Ok(Due::Nothing));
        assert_eq!(l.on_tick(at(20)), Err(SessionError::HandshakeTimeout));
        l.on_ready();
        assert_eq!(l.on_tick(at(918)), Ok(Due::Nothing));
        assert_eq!(l.on_tick(at(919)), Err(SessionError::Idle));
    }
}
