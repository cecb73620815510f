use base::Random;

/// How unfriendly the network and the disks are.
#[derive(Clone, Debug)]
pub struct Weather {
    pub latency_min_us: u64,
    pub latency_max_us: u64,
    /// One chunk in this many takes `slow_ms` longer; 0 for never.
    pub slow_one_in: u64,
    pub slow_ms: u64,
    pub disk_min_us: u64,
    pub disk_max_us: u64,
}

impl Weather {
    pub fn draw(random: &mut Random) -> Weather {
        let latency_min_us = 5 + random.below(100);
        let disk_min_us = 10 + random.below(200);
        Weather {
            latency_min_us,
            latency_max_us: latency_min_us + 1 + random.below(2000),
            slow_one_in: [0, 1000, 100][random.below(3) as usize],
            slow_ms: 1 + random.below(150),
            disk_min_us,
            disk_max_us: disk_min_us + 1 + random.below(3000),
        }
    }
}
