//! What goes wrong, when, and for how long. Drawn from the seed.

use base::{Duration, Random};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process dies; what it wrote to the device stays.
    KillOsd {
        osd: usize,
        back_after: Duration,
    },
    /// The machine loses power: unflushed writes are lost or torn.
    CutPower {
        osd: usize,
        back_after: Duration,
    },
    CutPowerEverywhere {
        back_after: Duration,
    },
    KillMon {
        power_cut: bool,
        back_after: Duration,
    },
    /// One OSD is cut off from everyone, in one direction or both.
    Isolate {
        osd: usize,
        inbound: bool,
        outbound: bool,
        heal_after: Duration,
    },
    /// Two OSDs cannot talk to each other, but to everyone else. Meanwhile the
    /// first may lose its primacy, so that what is on its way is of the past
    /// when it arrives.
    CutPair {
        a: usize,
        b: usize,
        both_ways: bool,
        demote: bool,
        heal_after: Duration,
    },
    /// Machines on two sides that do not hear of each other; who is on which
    /// side follows from `side`, bit by bit. Or one OSD and some clients alone
    /// on theirs: it may believe to be primary while the others go on.
    Split {
        side: u64,
        lonely: Option<usize>,
        heal_after: Duration,
    },
    /// As SIGSTOP and SIGCONT.
    Pause {
        osd: usize,
        time: Duration,
    },
    BreakConnections {
        count: u64,
    },
    /// An operator moves data: weight 0 is out.
    Reweight {
        osd: usize,
        percent: u64,
    },
    PrimaryAffinity {
        osd: usize,
        percent: u64,
    },
    /// The monitor is told that an OSD is down, which it is not.
    MarkDown {
        osd: usize,
    },
}

const KINDS: usize = 12;

/// How much of everything a run sees.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    pub osds: usize,
    /// Relative frequency of each kind; 0 turns it off.
    pub weights: [u64; KINDS],
    /// Mean time between faults.
    pub interval: Duration,
}

impl FaultPlan {
    /// Each seed stresses some kinds more than others, and may do without some.
    pub fn draw(random: &mut Random, osds: usize) -> FaultPlan {
        let mut weights = [0; KINDS];
        for weight in &mut weights {
            *weight = [0, 1, 1, 4][random.below(4) as usize];
        }
        let interval = Duration::from_millis([150, 500, 1500][random.below(3) as usize]);
        FaultPlan { osds, weights, interval }
    }

    pub fn none(osds: usize) -> FaultPlan {
        FaultPlan { osds, weights: [0; KINDS], interval: Duration::from_secs(1) }
    }

    pub fn next(&self, random: &mut Random) -> Option<Fault> {
        let total: u64 = self.weights.iter().sum();
        if total == 0 {
            return None;
        }
        let mut at = random.below(total);
        let kind = self.weights.iter().position(|w| match at.checked_sub(*w) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        })?;
        let osd = random.below(self.osds as u64) as usize;
        let scale_ms = [50, 500, 4000][random.below(3) as usize];
        let soon = Duration::from_millis(1 + random.below(scale_ms));
        Some(match kind {
            0 => Fault::KillOsd { osd, back_after: soon },
            1 => Fault::CutPower { osd, back_after: soon },
            2 => Fault::CutPowerEverywhere { back_after: soon },
            3 => Fault::KillMon { power_cut: random.chance(1, 3), back_after: soon },
            4 => {
                let (inbound, outbound) =
                    [(true, true), (true, false), (false, true)][random.below(3) as usize];
                Fault::Isolate { osd, inbound, outbound, heal_after: soon }
            }
            5 => {
                let other = (osd + 1 + random.below(self.osds as u64 - 1) as usize) % self.osds;
                let (both_ways, demote) = (random.chance(1, 2), random.chance(1, 2));
                Fault::CutPair { a: osd, b: other, both_ways, demote, heal_after: soon }
            }
            6 => Fault::Pause { osd, time: soon },
            7 => Fault::BreakConnections { count: 1 + random.below(5) },
            8 => Fault::Reweight { osd, percent: [0, 50, 100][random.below(3) as usize] },
            9 => {
                // Long enough for the larger side to go on without the other.
                let long = Duration::from_millis(random.below(8000));
                Fault::Split {
                    side: random.next_u64(),
                    lonely: random.chance(1, 2).then_some(osd),
                    heal_after: long,
                }
            }
            10 => Fault::MarkDown { osd },
            _ => Fault::PrimaryAffinity { osd, percent: [0, 50, 100][random.below(3) as usize] },
        })
    }
}
