//! What is remembered of searches in vain: where runs of a length need not be looked for again.
//!
//! Bounds, not facts: what is taken does not lower them, the next search in vain does.

use super::GROUP_BLOCKS;

pub(super) struct Longest {
    /// At least the longest free run of the group.
    groups: Vec<u16>,
    /// No free run is longer.
    anywhere: u32,
}

impl Longest {
    /// All free.
    pub(super) fn new(groups: u32) -> Longest {
        Longest { groups: vec![GROUP_BLOCKS as u16; groups as usize], anywhere: GROUP_BLOCKS }
    }

    pub(super) fn anywhere(&self) -> u32 {
        self.anywhere
    }

    pub(super) fn in_group(&self, group: u32) -> u32 {
        u32::from(self.groups[group as usize])
    }

    /// There is a free run of that length now.
    pub(super) fn note_freed(&mut self, group: u32, len: u32) {
        let known = &mut self.groups[group as usize];
        *known = (*known).max(len as u16);
        self.anywhere = self.anywhere.max(len);
    }

    /// All of the group has no such run.
    pub(super) fn note_vain(&mut self, group: u32, want: u32) {
        let known = &mut self.groups[group as usize];
        *known = (*known).min(want as u16 - 1);
    }

    /// No group has one.
    pub(super) fn note_vain_anywhere(&mut self, want: u32) {
        self.anywhere = self.anywhere.min(want - 1);
    }

    /// As if nothing had been searched.
    #[cfg(test)]
    pub(super) fn forget(&mut self) {
        self.groups.fill(GROUP_BLOCKS as u16);
        self.anywhere = GROUP_BLOCKS;
    }
}
