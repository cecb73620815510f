//! Random maps, and running Ceph's own tools on them.
#![allow(dead_code)]

use base::Random;
use crush::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const TYPES: [&str; 5] = ["osd", "host", "rack", "room", "root"];

/// A folder that goes away with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("crush-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch folder");
        Scratch(path)
    }

    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a scratch file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether Ceph's tool is installed; says so where it is not.
pub fn have(tool: &str) -> bool {
    let found = Command::new(tool).arg("--help").output().is_ok();
    if !found {
        println!("SKIPPED: {tool} is not installed (Debian package ceph-base)");
    }
    found
}

/// What a run of a tool may take; a few milliseconds is usual.
const TOOL_TIMEOUT: Duration = Duration::from_secs(20);

/// The tool's standard output; its complaints only matter when it fails.
pub fn run(tool: &str, file: &Path, args: &[String]) -> String {
    let mut command = Command::new(tool);
    if tool == "crushtool" {
        command.arg("-i");
    }
    let (out, err) = (file.with_extension("out"), file.with_extension("err"));
    let create = |path| std::fs::File::create(path).expect("a scratch file");
    command.arg(file).args(args).env("CEPH_CONF", "/dev/null").stdin(Stdio::null());
    let mut child = command.stdout(create(&out)).stderr(create(&err)).spawn().expect("the tool starts");
    // Ceph's tools may hang in their own crash handler, so they get a deadline.
    let started = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child to wait for") {
            Some(status) => break status,
            None if started.elapsed() > TOOL_TIMEOUT => {
                child.kill().expect("a child to kill");
                break child.wait().expect("a child to wait for");
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let complaints = std::fs::read_to_string(&err).unwrap_or_default();
    assert!(status.success(), "{tool} {args:?}: {status}\n{complaints}");
    std::fs::read_to_string(&out).expect("text")
}

/// A random map: up to four levels, all bucket algorithms, zero and odd
/// weights, empty buckets, a few rules of each kind, sometimes weight sets.
pub fn random_map(random: &mut Random) -> CrushMap {
    let mut map = CrushMap::empty();
    for (id, name) in (0..).zip(TYPES) {
        map.types.insert(id, name.to_string());
    }
    map.tunables = random_tunables(random);
    let devices = 1 + random.below(40) as i32;
    map.max_devices = devices + random.below(3) as i32;
    // Mostly straw2, as in real clusters; sometimes a zoo.
    let zoo = random.chance(1, 4);
    let mut level: Vec<(i32, u32)> = Vec::new();
    for device in 0..devices {
        map.names.insert(device, format!("osd.{device}"));
        level.push((device, random_weight(random)));
    }
    for type_id in 1..TYPES.len() as u16 {
        let last = usize::from(type_id) == TYPES.len() - 1;
        if !last && random.chance(1, 3) {
            continue;
        }
        let groups = if last { 1 } else { 1 + random.below(level.len().max(1) as u64 / 2 + 1) };
        let mut members = vec![Vec::new(); groups as usize];
        for item in level.drain(..) {
            members[random.below(groups) as usize].push(item);
        }
        for items in members {
            level.push(add_bucket(&mut map, type_id, items, zoo, random));
        }
    }
    for number in 0..2 + random.below(4) as i32 {
        add_rule(&mut map, number, random);
    }
    if random.chance(1, 4) {
        let key = if random.chance(1, 2) { 0 } else { DEFAULT_CHOOSE_ARGS };
        let args = random_choose_args(&map, random);
        map.choose_args.insert(key, args);
    }
    map
}

fn random_weight(random: &mut Random) -> u32 {
    match random.below(10) {
        0 => 0,
        1 => 1 + random.below(1000) as u32,
        2..=5 => WEIGHT_ONE,
        _ => 1 + random.below(16 * u64::from(WEIGHT_ONE)) as u32,
    }
}

fn random_tunables(random: &mut Random) -> Tunables {
    match random.below(6) {
        0 => Tunables::LEGACY,
        1 => Tunables {
            choose_local_tries: random.below(4) as u32,
            choose_local_fallback_tries: random.below(6) as u32,
            choose_total_tries: random.below(60) as u32,
            chooseleaf_descend_once: random.below(2) as u32,
            chooseleaf_vary_r: random.below(5) as u8,
            straw_calc_version: random.below(2) as u8,
            chooseleaf_stable: random.below(2) as u8,
            ..Tunables::JEWEL
        },
        _ => Tunables::JEWEL,
    }
}

fn add_bucket(
    map: &mut CrushMap,
    type_id: u16,
    members: Vec<(i32, u32)>,
    zoo: bool,
    random: &mut Random,
) -> (i32, u32) {
    if random.chance(1, 10) {
        map.buckets.push(None);
    }
    let id = -1 - map.buckets.len() as i32;
    let items: Vec<i32> = members.iter().map(|member| member.0).collect();
    let mut item_weights: Vec<u32> = members.iter().map(|member| member.1).collect();
    let weights = match if zoo { random.below(5) } else { 4 } {
        0 => {
            let item_weight = random_weight(random);
            item_weights.fill(item_weight);
            BucketWeights::Uniform { item_weight }
        }
        1 => {
            let sums = item_weights.iter().scan(0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            });
            BucketWeights::List { sum_weights: sums.collect(), item_weights: item_weights.clone() }
        }
        2 if items.len() < 64 => BucketWeights::Tree { node_weights: tree_weights(&item_weights) },
        3 => {
            let straws = item_weights.iter().map(|_| random.below(1 << 20) as u32).collect();
            BucketWeights::Straw { item_weights: item_weights.clone(), straws }
        }
        _ => BucketWeights::Straw2 { item_weights: item_weights.clone() },
    };
    let weight = item_weights.iter().sum();
    map.names.insert(id, format!("{}{}", TYPES[usize::from(type_id)], -id));
    map.buckets.push(Some(Bucket { id, type_id, hash: 0, weight, items, weights }));
    (id, weight)
}

/// Leaf i is node 2i + 1; an inner node's weight is the sum of its children.
fn tree_weights(item_weights: &[u32]) -> Vec<u32> {
    if item_weights.is_empty() {
        return Vec::new();
    }
    let nodes = 2 * item_weights.len().next_power_of_two();
    let mut tree = vec![0; nodes];
    for (index, weight) in item_weights.iter().enumerate() {
        tree[2 * index + 1] = *weight;
    }
    let mut height = 1;
    while 1 << height < nodes {
        let half = 1 << (height - 1);
        for node in (1 << height..nodes).step_by(2 << height) {
            tree[node] = tree[node - half] + tree.get(node + half).copied().unwrap_or(0);
        }
        height += 1;
    }
    tree
}

fn add_rule(map: &mut CrushMap, number: i32, random: &mut Random) {
    let step = |op, arg1, arg2| RuleStep { op, arg1, arg2 };
    let firstn = random.chance(1, 2);
    let (choose, chooseleaf) = match firstn {
        true => (op::CHOOSE_FIRSTN, op::CHOOSELEAF_FIRSTN),
        false => (op::CHOOSE_INDEP, op::CHOOSELEAF_INDEP),
    };
    let mut steps = Vec::new();
    for setting in op::SET_CHOOSE_TRIES..=op::SET_CHOOSELEAF_STABLE {
        if random.chance(1, 8) {
            steps.push(step(setting, random.below(6) as i32, 0));
        }
    }
    let middle_type = 1 + random.below(3) as i32;
    let leaf_type = random.below(4) as i32;
    for _ in 0..1 + random.below(2) * random.below(2) {
        let root = match random.below(8) {
            0 => -1 - random.below(map.buckets.len() as u64) as i32,
            1 => random.below(map.max_devices as u64) as i32,
            _ => -(map.buckets.len() as i32),
        };
        steps.push(step(op::TAKE, root, 0));
        if random.chance(1, 4) {
            steps.push(step(choose, random.below(4) as i32, middle_type));
        }
        let count = if random.chance(3, 4) { 0 } else { random.below(5) as i32 - 2 };
        if random.chance(1, 3) {
            steps.push(step(choose, count, 0));
        } else {
            steps.push(step(chooseleaf, count, leaf_type));
        }
        steps.push(step(op::EMIT, 0, 0));
    }
    map.rule_names.insert(number, format!("rule{number}"));
    map.rules.push(Some(Rule {
        ruleset: number as u8,
        rule_type: if firstn { RULE_REPLICATED } else { RULE_ERASURE },
        min_size: 1,
        max_size: 6,
        steps,
    }));
}

fn random_choose_args(map: &CrushMap, random: &mut Random) -> ChooseArgs {
    let positions = 1 + random.below(3);
    let mut args = BTreeMap::new();
    for bucket in map.iter_buckets().filter(|bucket| bucket.weights.alg() == 5) {
        if bucket.items.is_empty() || random.chance(1, 3) {
            continue;
        }
        let set = |random: &mut Random| bucket.items.iter().map(|_| random_weight(random)).collect();
        let weight_sets = (0..positions).map(|_| set(random)).collect();
        let ids = match random.chance(1, 4) {
            true => bucket.items.iter().map(|_| random.below(1000) as i32 - 500).collect(),
            false => Vec::new(),
        };
        args.insert((-1 - bucket.id) as u32, ChooseArg { weight_sets, ids });
    }
    args
}

/// Reweights by device: mostly in, some out, some in between.
pub fn random_reweights(map: &CrushMap, random: &mut Random) -> Vec<u32> {
    let mood = random.below(3);
    (0..map.max_devices)
        .map(|_| match random.below(8) {
            0 if mood > 0 => 0,
            1 | 2 if mood > 0 => random.below(u64::from(WEIGHT_ONE)) as u32,
            3..=6 if mood > 1 => random.below(u64::from(WEIGHT_ONE)) as u32,
            _ => WEIGHT_ONE,
        })
        .collect()
}
