//! One connection's state, and the table that numbers connections.

use crate::input::Input;
use crate::output::Output;
use crate::ring::Requests;
use env::{ConnId, Event};
use std::net::{SocketAddr, TcpStream};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Dialing,
    Open,
    /// The node closed it and all output is sent: our half is shut. What still
    /// arrives is thrown away until the peer closes too, because closing over
    /// unread bytes would reset the connection and could destroy what the peer
    /// has not read yet.
    Draining,
    /// No new request may start. The slot is freed when the node knows the end
    /// and nothing is in flight.
    Dead,
}

pub(crate) struct Connection {
    generation: u32,
    pub(crate) phase: Phase,
    /// The node may still get events of it.
    pub(crate) visible: bool,
    /// The node called `close`.
    pub(crate) closing: bool,
    pub(crate) paused: bool,
    /// Listed for the backend's attention.
    pub(crate) touched: bool,
    /// `None` only when the socket could not be made.
    pub(crate) stream: Option<TcpStream>,
    /// Where a dial goes; `None` for an accepted connection.
    pub(crate) dial_to: Option<SocketAddr>,
    pub(crate) output: Output,
    pub(crate) input: Input,
    /// `Received` events that have not reached the node.
    pub(crate) undelivered: u32,
    /// Events that arrived while paused, in order.
    pub(crate) held: Vec<Event>,
    /// Requests that the kernel works on and that use this slot's memory.
    pub(crate) in_flight: u32,
    /// The readiness the epoll backend is registered for.
    pub(crate) interest: u32,
    /// What the io_uring backend has in flight.
    pub(crate) requests: Requests,
}

/// Slots are reused, ids are not: an id is a slot's index and its generation.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    next_generation: u32,
    connection: Option<Connection>,
}

pub(crate) fn index_of(id: ConnId) -> u32 {
    id.0 as u32 // the lower half, by construction
}

fn generation_of(id: ConnId) -> u32 {
    (id.0 >> 32) as u32
}

impl Table {
    pub(crate) fn insert(&mut self, stream: Option<TcpStream>, dial_to: Option<SocketAddr>) -> (u32, ConnId) {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.slots.len()).expect("fewer sockets than 2^32");
            // Generation 0 is left out, so that no id is 0.
            self.slots.push(Slot { next_generation: 1, connection: None });
            index
        });
        let slot = &mut self.slots[index as usize];
        let generation = slot.next_generation;
        slot.connection = Some(Connection {
            generation,
            phase: if dial_to.is_some() { Phase::Dialing } else { Phase::Open },
            visible: true,
            closing: false,
            paused: false,
            touched: false,
            stream,
            dial_to,
            output: Output::default(),
            input: Input::default(),
            undelivered: 0,
            held: Vec::new(),
            in_flight: 0,
            interest: 0,
            requests: Requests::default(),
        });
        (index, ConnId(u64::from(generation) << 32 | u64::from(index)))
    }

    /// Forgets the connection and closes its socket.
    pub(crate) fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let connection = slot.connection.take().expect("only a used slot is freed");
        assert_eq!(connection.in_flight, 0, "the kernel still uses the slot's memory");
        // A slot that has used up its generations is retired: ids never repeat.
        if let Some(next) = slot.next_generation.checked_add(1) {
            slot.next_generation = next;
            self.free.push(index);
        }
    }

    pub(crate) fn id(&self, index: u32) -> Option<ConnId> {
        let generation = self.get(index)?.generation;
        Some(ConnId(u64::from(generation) << 32 | u64::from(index)))
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Connection> {
        self.slots.get(index as usize)?.connection.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.slots.get_mut(index as usize)?.connection.as_mut()
    }

    /// The connection an id names, if it still exists.
    pub(crate) fn find(&self, id: ConnId) -> Option<&Connection> {
        self.get(index_of(id)).filter(|found| found.generation == generation_of(id))
    }

    pub(crate) fn find_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.get_mut(index_of(id)).filter(|found| found.generation == generation_of(id))
    }

    pub(crate) fn indexes(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.slots.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_one_connection_for_ever() {
        let mut table = Table::default();
        let (index, first) = table.insert(None, None);
        table.remove(index);
        let (again, second) = table.insert(None, None);
        assert_eq!(index, again);
        assert_ne!(first, second);
        assert!(table.find(first).is_none() && table.find(second).is_some());
        assert_eq!(table.id(again), Some(second));
    }

    #[test]
    fn a_slot_out_of_generations_is_retired() {
        let mut table = Table::default();
        let (index, _) = table.insert(None, None);
        table.slots[index as usize].next_generation = u32::MAX;
        table.remove(index);
        assert_ne!(table.insert(None, None).0, index);
    }
}
