//! The cluster's clients: each machine's present life, and how one is fenced and replaced.

use super::{SimCluster, SimNode};
use crate::images::ImageClient;
use crate::locks::LockClient;
use crate::snapshots::SnapshotClient;
use crate::watches::WatchClient;
use crate::workload::{ModelWorkload, WorkloadPlan};
use base::Random;
use daemon::ClientNode;
use std::net::SocketAddr;
use wire::types::{AddrType, EntityAddr};

/// What a client has to do.
struct Steps {
    operations: usize,
    locks: usize,
    watches: usize,
}

impl SimCluster {
    pub fn start_clients(&mut self) {
        for i in 0..self.clients.len() {
            let steps = |plan: Option<(u64, usize)>| plan.map_or(0, |(_, steps)| steps);
            self.start_client(
                i,
                Steps {
                    operations: self.plan.workload.operations,
                    locks: steps(self.plan.locks),
                    watches: steps(self.plan.watches),
                },
            );
        }
    }

    fn start_client(&mut self, i: usize, steps: Steps) {
        let random = self.world.random().fork();
        let mut history = self.history.borrow_mut();
        let life = history.addresses.len();
        let plan = WorkloadPlan { operations: steps.operations, ..self.plan.workload.clone() };
        let mut workload = ModelWorkload::new(life, plan, self.history.clone(), random);
        let duration_us = self.plan.workload.think_us * self.plan.workload.operations as u64;
        let pause_us = |steps: usize| duration_us / steps as u64;
        if let Some((seed, steps)) = self.plan.snapshots.filter(|_| life == 0) {
            workload.snapshots = Some(SnapshotClient::new(Random::from_seed(seed), steps, pause_us(steps)));
        }
        if let Some((seed, steps)) = self.plan.image.filter(|_| life == 0) {
            workload.image = Some(ImageClient::new(Random::from_seed(seed), steps, pause_us(steps)));
        }
        if let Some((seed, of_all)) = self.plan.locks {
            let random = Random::from_seed(seed ^ life as u64).fork();
            let history = self.history.clone();
            workload.locks = Some(LockClient::new(life, history, random, steps.locks, pause_us(of_all)));
        }
        if let Some((seed, of_all)) = self.plan.watches {
            let random = Random::from_seed(seed ^ life as u64).fork();
            let history = self.history.clone();
            workload.watches = Some(WatchClient::new(life, history, random, steps.watches, pause_us(of_all)));
        }
        self.lives[i] = life;
        // The client's node takes the next nonce.
        let socket = Some(SocketAddr::new(self.world.ip(self.clients[i]), 0));
        history.addresses.push(EntityAddr { kind: AddrType::Any, nonce: self.next_nonce + 1, socket });
        drop(history);
        let node = self.client_node(&format!("client-{i}"), &format!("client-{i}"), workload);
        self.world.start(self.clients[i], SimNode::Client(Box::new(node)), &[]);
    }

    /// Asks for the client's present life to be put on the blocklist.
    pub fn fence(&mut self, i: usize) {
        let addr = self.history.borrow().addresses[self.lives[i]];
        self.history.borrow_mut().doom(self.lives[i]);
        self.ask(format!(r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{addr}"}}"#));
    }

    /// The client's process ends, whatever it was waiting for, and another takes its place.
    pub fn replace_client(&mut self, i: usize) {
        let Some(SimNode::Client(node)) = self.world.kill(self.clients[i], false) else { return };
        let workload = node.workload();
        let steps = Steps {
            operations: workload.remaining(),
            locks: workload.locks.as_ref().map_or(0, LockClient::remaining),
            watches: workload.watches.as_ref().map_or(0, WatchClient::remaining),
        };
        self.history.borrow_mut().doom(self.lives[i]);
        self.start_client(i, steps);
    }

    pub fn client(&self, i: usize) -> &ClientNode<ModelWorkload> {
        match self.world.node(self.clients[i]) {
            Some(SimNode::Client(node)) => node,
            _ => unreachable!("clients run until the end"),
        }
    }

    pub fn clients_done(&self) -> bool {
        (0..self.clients.len()).all(|i| self.client(i).workload().is_done())
    }

    pub fn is_sure_of_watches(&self) -> bool {
        let sure = |i| self.client(i).workload().watches.as_ref().is_none_or(WatchClient::is_sure);
        (0..self.clients.len()).all(sure)
    }

    /// Requests without an answer.
    pub fn pending(&self) -> usize {
        (0..self.clients.len()).map(|i| self.client(i).workload().pending()).sum()
    }

    pub fn pending_requests(&self) -> Vec<String> {
        let history = self.history.borrow();
        let pending = history.operations.iter().filter(|op| op.returned.is_none());
        pending.map(|op| format!("client {} {}: {:?}", op.client, op.object, op.call)).take(20).collect()
    }

    pub fn each_workload(&mut self, mut change: impl FnMut(usize, &mut ModelWorkload)) {
        for (i, id) in self.clients.iter().enumerate() {
            self.world.poke(*id, |node| {
                if let SimNode::Client(node) = node {
                    change(i, node.workload_mut());
                }
            });
        }
    }
}
