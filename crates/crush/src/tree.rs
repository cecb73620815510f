//! The tree as `ceph osd tree` and `ceph osd crush tree` show it: their order,
//! their filters, their JSON and their tables.
//!
//! Source: Ceph 16.2.15 `src/crush/CrushTreeDumper.h`, `CrushWrapper.cc`
//! (`dump_tree`), `src/osd/OSDMap.cc` (`OSDTreePlainDumper`,
//! `OSDTreeFormattingDumper`).

use crate::edit::weight_to_f64;
use crate::map::*;
use base::Json;
use std::collections::{BTreeMap, BTreeSet};
use wire::maps::{OsdMap, OsdState};
use wire::types::OsdId;

/// States that `osd tree` may be asked for; an OSD passes if it is in any.
/// With none, everything passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateFilter {
    pub up: bool,
    pub down: bool,
    pub in_: bool,
    pub out: bool,
    pub destroyed: bool,
}

impl StateFilter {
    /// Adds a state by the name the command line has for it; false if it has none.
    pub fn add(&mut self, state: &str) -> bool {
        match state {
            "up" => self.up = true,
            "down" => self.down = true,
            "in" => self.in_ = true,
            "out" => self.out = true,
            "destroyed" => self.destroyed = true,
            _ => return false,
        }
        true
    }

    fn is_empty(self) -> bool {
        self == StateFilter::default()
    }

    fn passes(self, map: &OsdMap, osd: OsdId) -> bool {
        self.is_empty()
            || (self.up && map.is_up(osd))
            || (self.down && map.is_down(osd))
            || (self.in_ && map.is_in(osd))
            || (self.out && map.is_out(osd))
            || (self.destroyed && is_destroyed(map, osd))
    }
}

fn is_destroyed(map: &OsdMap, osd: OsdId) -> bool {
    map.state(osd).contains(OsdState::EXISTS | OsdState::DESTROYED)
}

/// `up`, `down` or `destroyed`.
fn status(map: &OsdMap, osd: OsdId) -> &'static str {
    match () {
        () if map.is_up(osd) => "up",
        () if is_destroyed(map, osd) => "destroyed",
        () => "down",
    }
}

/// One line of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeItem {
    pub id: i32,
    /// 0 for roots and strays.
    pub parent: i32,
    pub depth: usize,
    pub weight: u32,
    /// Last line first, as Ceph lists them.
    pub children: Vec<i32>,
}

/// Depth first: roots by ascending id; a bucket's children by class and name,
/// buckets before devices of a class.
pub fn walk(map: &CrushMap, roots: &[i32], passes: &dyn Fn(i32) -> bool) -> Vec<TreeItem> {
    let mut lines = Vec::new();
    for &id in roots {
        if !passes(id) {
            continue;
        }
        let weight = map.bucket(id).map_or(0, |bucket| bucket.weight);
        let mut waiting = vec![TreeItem { id, parent: 0, depth: 0, weight, children: Vec::new() }];
        while let Some(mut item) = waiting.pop() {
            let children = sorted_children(map, &item, passes);
            item.children = children.iter().rev().map(|child| child.id).collect();
            waiting.extend(children.into_iter().rev());
            lines.push(item);
        }
    }
    lines
}

fn sorted_children(map: &CrushMap, parent: &TreeItem, passes: &dyn Fn(i32) -> bool) -> Vec<TreeItem> {
    let Some(bucket) = map.bucket(parent.id) else { return Vec::new() };
    let mut sorted = BTreeMap::new();
    for (position, &id) in bucket.items.iter().enumerate().rev().filter(|(_, id)| passes(**id)) {
        let key = if id >= 0 {
            format!("{}_osd.{id:08}", map.item_class(id).unwrap_or_default())
        } else {
            format!("_{}", map.name(id).unwrap_or_default())
        };
        let weight = bucket.item_weight(position);
        let depth = parent.depth + 1;
        sorted.insert(key, TreeItem { id, parent: parent.id, depth, weight, children: Vec::new() });
    }
    sorted.into_values().collect()
}

/// A filter on OSDs, carried up: a bucket passes if anything below it does.
fn passes_below(map: &CrushMap, item: i32, leaf: &dyn Fn(OsdId) -> bool) -> bool {
    match map.bucket(item) {
        None => item >= 0 && leaf(OsdId(item)),
        Some(bucket) => bucket.items.iter().any(|&child| passes_below(map, child, leaf)),
    }
}

/// The lines of `osd tree`, and the OSDs that exist but are not in it.
fn osd_lines(
    map: &OsdMap,
    crush: &CrushMap,
    filter: StateFilter,
    root: Option<i32>,
) -> (Vec<TreeItem>, Vec<TreeItem>) {
    let leaf = |osd: OsdId| filter.passes(map, osd);
    let passes = |item: i32| (item < 0 && filter.is_empty()) || passes_below(crush, item, &leaf);
    let roots = root.map_or_else(|| crush.roots(false), |root| vec![root]);
    let lines = walk(crush, &roots, &passes);
    if root.is_some() {
        return (lines, Vec::new());
    }
    let seen: BTreeSet<i32> = lines.iter().map(|line| line.id).collect();
    let strays = map.osds().filter(|osd| !seen.contains(&osd.0) && leaf(*osd)).map(|osd| TreeItem {
        id: osd.0,
        parent: 0,
        depth: 0,
        weight: 0,
        children: Vec::new(),
    });
    (lines, strays.collect())
}

/// `osd tree -f json`; with a root, `osd tree-from`.
pub fn osd_tree_json(map: &OsdMap, crush: &CrushMap, filter: StateFilter, root: Option<i32>) -> Json {
    let line = |item: &TreeItem| {
        let mut json = crush_item_json(crush, item);
        if item.id >= 0 {
            let osd = OsdId(item.id);
            json.push("exists", i32::from(map.exists(osd)));
            json.push("status", status(map, osd));
            json.push("reweight", weight_to_f64(map.weight(osd)));
            json.push("primary_affinity", weight_to_f64(map.primary_affinity(osd)));
        }
        with_children(json, item)
    };
    let (lines, strays) = osd_lines(map, crush, filter, root);
    let mut json = Json::object().with("nodes", Json::array(lines.iter().map(line)));
    if root.is_none() {
        json.push("stray", Json::array(strays.iter().map(line)));
    }
    json
}

/// `osd tree`; with a root, `osd tree-from`.
pub fn osd_tree_text(map: &OsdMap, crush: &CrushMap, filter: StateFilter, root: Option<i32>) -> String {
    let (lines, strays) = osd_lines(map, crush, filter, root);
    let headings = ["ID", "CLASS", "WEIGHT", "TYPE NAME", "STATUS", "REWEIGHT", "PRI-AFF"];
    let mut rows = vec![headings.map(str::to_string).to_vec()];
    for item in lines.iter().chain(&strays) {
        let osd = OsdId(item.id);
        let mut row = vec![
            item.id.to_string(),
            crush.item_class(item.id).unwrap_or_default().to_string(),
            weight_text(item.weight),
            indented_name(crush, item),
        ];
        match item.id {
            ..0 => {}
            _ if !map.exists(osd) => row.extend(["DNE", "0"].map(str::to_string)),
            _ => row.extend([
                status(map, osd).to_string(),
                weight_text(map.weight(osd)),
                weight_text(map.primary_affinity(osd)),
            ]),
        }
        rows.push(row);
    }
    table(&rows, 3)
}

/// `osd crush tree -f json`.
pub fn crush_tree_json(crush: &CrushMap, with_shadows: bool) -> Json {
    let lines = walk(crush, &crush.roots(with_shadows), &|_| true);
    let seen: BTreeSet<i32> = lines.iter().map(|line| line.id).collect();
    let line = |item: &TreeItem| with_children(crush_item_json(crush, item), item);
    let strays = crush
        .names
        .keys()
        .filter(|id| **id >= 0 && !seen.contains(id))
        .map(|id| line(&TreeItem { id: *id, parent: 0, depth: 0, weight: 0, children: Vec::new() }));
    Json::object().with("nodes", Json::array(lines.iter().map(line))).with("stray", Json::array(strays))
}

/// `osd crush tree`.
pub fn crush_tree_text(crush: &CrushMap, with_shadows: bool) -> String {
    let mut headings = vec!["ID".to_string(), "CLASS".to_string(), "WEIGHT".to_string()];
    headings.extend(crush.choose_args.keys().map(|key| weight_set_name(*key)));
    headings.push("TYPE NAME".to_string());
    let name_column = headings.len() - 1;
    let mut rows = vec![headings];
    for item in walk(crush, &crush.roots(with_shadows), &|_| true) {
        let mut row = vec![
            item.id.to_string(),
            crush.item_class(item.id).unwrap_or_default().to_string(),
            weight_text(item.weight),
        ];
        for args in crush.choose_args.values() {
            let weights = set_weights(crush, args, &item);
            row.push(weights.and_then(|w| w.first().copied()).map_or(String::new(), weight_text));
        }
        row.push(indented_name(crush, &item));
        rows.push(row);
    }
    table(&rows, name_column)
}

fn weight_set_name(key: i64) -> String {
    if key == DEFAULT_CHOOSE_ARGS { "(compat)".to_string() } else { key.to_string() }
}

/// What the parent's weight sets say of an item, by position.
fn set_weights(crush: &CrushMap, args: &ChooseArgs, item: &TreeItem) -> Option<Vec<u32>> {
    let position = crush.bucket(item.parent)?.position_of(item.id)?;
    let sets = &args.get(&(!item.parent as u32))?.weight_sets;
    let weights: Vec<u32> = sets.iter().filter_map(|set| set.get(position).copied()).collect();
    Some(weights).filter(|weights| !weights.is_empty())
}

fn crush_item_json(crush: &CrushMap, item: &TreeItem) -> Json {
    let mut json = Json::object().with("id", item.id);
    if let Some(class) = crush.item_class(item.id) {
        json.push("device_class", class);
    }
    let type_id = crush.item_type(item.id).unwrap_or(DEVICE_TYPE);
    let kind = crush.type_name(type_id).unwrap_or_default();
    if item.id < 0 {
        json.push("name", crush.name(item.id).unwrap_or_default());
        json.push("type", kind);
        json.push("type_id", type_id);
    } else {
        json.push("name", format!("osd.{}", item.id));
        json.push("type", kind);
        json.push("type_id", type_id);
        json.push("crush_weight", weight_to_f64(item.weight));
        json.push("depth", item.depth);
    }
    if item.parent < 0 {
        let mut sets = Json::object();
        for (key, args) in &crush.choose_args {
            if let Some(weights) = set_weights(crush, args, item) {
                sets.push(weight_set_name(*key), Json::array(weights.into_iter().map(weight_to_f64)));
            }
        }
        json.push("pool_weights", sets);
    }
    json
}

fn with_children(json: Json, item: &TreeItem) -> Json {
    if item.id >= 0 {
        return json;
    }
    json.with("children", Json::array(item.children.iter().copied()))
}

fn indented_name(crush: &CrushMap, item: &TreeItem) -> String {
    let indent = "    ".repeat(item.depth);
    if item.id >= 0 {
        return format!("{indent}osd.{}", item.id);
    }
    let kind = crush.item_type(item.id).and_then(|id| crush.type_name(id)).unwrap_or_default();
    format!("{indent}{kind} {}", crush.name(item.id).unwrap_or_default())
}

/// Ceph's `weightf_t`: five decimals, and a bare 0.
fn weight_text(weight: u32) -> String {
    match weight {
        0 => "0".to_string(),
        _ => format!("{:.5}", weight_to_f64(weight)),
    }
}

/// The first row is the heading, flush left; cells are flush right except in
/// `left_column`. Columns are two spaces apart, lines padded to the full width.
fn table(rows: &[Vec<String>], left_column: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
    let width = |column| rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let pad = |column: usize| match number == 0 || column == left_column {
            true => format!("{:<1$}", cell(row, column), widths[column]),
            false => format!("{:>1$}", cell(row, column), widths[column]),
        };
        text.push_str(&(0..columns).map(pad).collect::<Vec<_>>().join("  "));
        text.push('\n');
    }
    text
}
