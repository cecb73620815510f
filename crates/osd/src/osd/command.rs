//! `ceph tell osd.N …`.

use super::Osd;
use crate::action::Ctx;
use base::{Errno, Json};
use bytes::Bytes;
use store::{ObjectStore, WritesByPart};
use wire::messages::{MCommand, MCommandReply, Outgoing, SessionId};

/// Names and helps, as `get_command_descriptions` gives them.
const COMMANDS: &[(&str, &str)] = &[
    ("get_command_descriptions", "list available commands"),
    ("version", "report version of OSD"),
    ("status", "high-level status of OSD"),
    ("perf dump", "dump perfcounters value"),
    ("dump_mempools", "get mempool stats"),
];

impl<S: ObjectStore> Osd<S> {
    pub(super) fn handle_command(
        &mut self,
        _ctx: &mut Ctx<'_>,
        session: SessionId,
        tid: u64,
        command: &MCommand,
    ) {
        let Some(client) = self.sessions.get(&session) else { return };
        let features = client.peer.features;
        let text = command.cmd.concat();
        let reply = match member_of(&text, "prefix") {
            None => failure(Errno::EINVAL, "command is not JSON with a prefix"),
            Some(prefix) => self.run_command(&prefix, member_of(&text, "format").as_deref()),
        };
        self.sh.send_client(session, Outgoing::new(&reply, tid, features));
    }

    fn run_command(&mut self, prefix: &str, format: Option<&str>) -> MCommandReply {
        match prefix {
            "get_command_descriptions" => success(descriptions()),
            "dump_mempools" => success(formatted(&self.dump_mempools(), format)),
            "version" => success(format!(
                "{{\n    \"version\": {},\n    \"release\": \"pacific\",\n    \"release_type\": \"stable\"\n}}\n",
                quoted(&self.sh.config.version)
            )),
            "status" => success(format!(
                "{{\n    \"cluster_fsid\": \"{}\",\n    \"osd_fsid\": \"{}\",\n    \"whoami\": {},\n    \"state\": \"{}\",\n    \
                 \"newest_map\": {},\n    \"num_pgs\": {}\n}}\n",
                self.sh.config.fsid,
                self.sh.config.uuid,
                self.sh.me(),
                if self.sh.am_up { "active" } else { "booting" },
                self.sh.epoch(),
                self.pgs.len()
            )),
            "perf dump" => success(self.perf_dump()),
            other => {
                tracing::warn!(command = other, "tell command not supported");
                failure(Errno::EINVAL, &format!("unrecognized command '{other}'"))
            }
        }
    }

    /// As Ceph's, of which it has few; the others are ours.
    fn perf_dump(&self) -> String {
        let counters = &self.sh.counters;
        let unsupported: u64 = counters.unsupported.values().sum();
        let figures = [
            ("op_wip", self.sh.held_ops as u64),
            ("op_r", counters.reads),
            ("op_w", counters.writes),
            ("op_duplicate", counters.duplicates),
            ("op_misdirected", counters.misdirected),
            ("op_unsupported", unsupported),
            ("malformed", counters.malformed),
            ("snap_trims", counters.snap_trims),
            ("backfilled_ranges", counters.backfilled_ranges),
            ("recovery_bytes_shared", counters.recovery_bytes_shared),
            ("recovery_bases_refused", counters.recovery_bases_refused),
            ("op_w_refused_full", counters.refused_full),
            ("scrubs", counters.scrubs),
            ("deep_scrubs", counters.deep_scrubs),
            ("scrubbed_objects", counters.scrubbed_objects),
            ("scrub_errors", counters.scrub_errors),
            ("object_read_errors", counters.read_errors),
            ("objects_repaired", counters.repaired),
            ("objects_unrepairable", counters.unrepairable),
        ];
        let sections = [section("osd", &figures), section("store", &self.store_figures())];
        format!("{{\n{}\n}}\n", sections.join(",\n"))
    }

    fn store_figures(&self) -> Vec<(&'static str, u64)> {
        let stats = self.sh.store.stats();
        let WritesByPart { log, data, in_place, checkpoints, laid } = stats.writes_by_part;
        vec![
            ("transactions", stats.transactions),
            ("transactions_paced", stats.transactions_paced),
            ("flushes", stats.flushes),
            ("durable_writes", stats.durable_writes),
            ("log_writes", log.requests),
            ("log_bytes", log.bytes),
            ("data_writes", data.requests),
            ("data_bytes", data.bytes),
            ("in_place_writes", in_place.requests),
            ("in_place_bytes", in_place.bytes),
            ("checkpoint_writes", checkpoints.requests),
            ("checkpoint_bytes", checkpoints.bytes),
            ("laid_bytes", laid.bytes),
            ("device_reads", stats.device_reads),
            ("device_read_bytes", stats.device_read_bytes),
            ("metadata_reads", stats.metadata_reads),
            ("metadata_memory", stats.metadata_memory),
            ("mended_units", stats.mended_units),
            ("mended_blocks", stats.mended_blocks),
            ("moved_blocks", stats.moved_blocks),
        ]
    }
}

fn section(name: &str, figures: &[(&str, u64)]) -> String {
    let lines: Vec<String> =
        figures.iter().map(|(name, value)| format!("        \"{name}\": {value}")).collect();
    format!("    \"{name}\": {{\n{}\n    }}", lines.join(",\n"))
}

/// As asked for; indented when nothing else was.
fn formatted(json: &Json, format: Option<&str>) -> String {
    match format {
        Some("json") => json.compact(),
        _ => json.pretty(),
    }
}

fn success(output: String) -> MCommandReply {
    MCommandReply { result: 0, status: String::new(), output: Bytes::from(output) }
}

fn failure(errno: Errno, status: &str) -> MCommandReply {
    MCommandReply { result: errno.negative(), status: status.into(), output: Bytes::new() }
}

fn descriptions() -> String {
    let one = |(number, (name, help)): (usize, &(&str, &str))| {
        let words: Vec<String> = name.split(' ').map(quoted).collect();
        format!(
            "\"cmd{number:03}\":{{\"sig\":[{}],\"help\":{},\"module\":\"osd\",\"perm\":\"r\",\"flags\":0}}",
            words.join(","),
            quoted(help)
        )
    };
    let all: Vec<String> = COMMANDS.iter().enumerate().map(one).collect();
    format!("{{{}}}", all.join(","))
}

/// Text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The text of a top-level member ("prefix", "format"), which is all that these
/// commands need of their JSON.
fn member_of(json: &str, name: &str) -> Option<String> {
    let after = json.split_once(&quoted(name))?.1.trim_start().strip_prefix(':')?;
    let value = after.trim_start().strip_prefix('"')?;
    let end = value.find('"')?;
    let text = &value[..end];
    (!text.contains('\\')).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_among_others() {
        let command = r#"{"target": ["osd","0"], "prefix" : "version", "format": "json"}"#;
        assert_eq!(member_of(command, "prefix").as_deref(), Some("version"));
        assert_eq!(member_of(command, "format").as_deref(), Some("json"));
        assert_eq!(member_of("{", "prefix").as_deref(), None);
        assert_eq!(member_of(r#"{"prefix": 3}"#, "prefix").as_deref(), None);
    }

    #[test]
    fn descriptions_name_every_command() {
        let text = descriptions();
        let words = COMMANDS.iter().flat_map(|(name, _)| name.split(' '));
        assert!(words.into_iter().all(|word| text.contains(&quoted(word))));
    }
}
