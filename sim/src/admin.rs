//! An operator at a keyboard: sends commands to the monitor, one at a time.

use base::{Duration, Time};
use bytes::Bytes;
use client::{Completion, RequestId};
use daemon::{ClientHost, Workload};
use std::collections::VecDeque;

/// How long one command may go unanswered before the next is tried: the
/// monitor may be dead, and a command is repeated anyway.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Answer {
    pub result: i32,
    pub status: String,
    pub output: Bytes,
}

#[derive(Default)]
pub struct Operator {
    queue: VecDeque<String>,
    asked: Option<(RequestId, Time)>,
    /// Of the newest answered command.
    pub answer: Option<Answer>,
    pub answered: u64,
}

impl Operator {
    pub fn ask(&mut self, json: String) {
        self.queue.push_back(json);
    }

    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.asked.is_none()
    }
}

impl Workload for Operator {
    fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        let now = host.env.now();
        if let Some((id, since)) = self.asked
            && now.since(since) > PATIENCE
        {
            host.client.cancel(id);
            self.asked = None;
        }
        if self.asked.is_none()
            && let Some(json) = self.queue.pop_front()
        {
            self.asked = Some((host.client.command(json, Bytes::new()), now));
        }
    }

    fn on_completion(&mut self, _: &mut ClientHost<'_>, id: RequestId, completion: Completion) {
        if self.asked.is_none_or(|(asked, _)| asked != id) {
            return;
        }
        self.asked = None;
        if let Completion::Command { result, status, output } = completion {
            self.answer = Some(Answer { result, status, output });
            self.answered += 1;
        }
    }

    fn next_wake(&self) -> Time {
        match self.asked {
            Some((_, since)) => since + PATIENCE + Duration::from_millis(1),
            None if self.queue.is_empty() => Time::MAX,
            None => Time::ZERO,
        }
    }
}
