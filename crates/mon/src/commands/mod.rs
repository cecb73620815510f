//! Commands: from a JSON request to a status line and output.
//!
//! Each family has its file, and in it a table: signature, module and
//! permission as the `ceph` command learns them, and the handler. Handlers
//! judge by the durable map; what they change is committed before the answer
//! leaves (see [`crate::core`]).

mod args;
mod blocklist;
mod cluster;
mod config;
mod config_key;
mod crush_edit;
mod crush_view;
mod descriptions;
mod log;
mod manager;
mod mon;
mod osd_admin;
mod osd_state;
mod osd_usage;
mod osd_view;
mod pg;
mod pool;
mod pool_vars;
mod scrub;
mod status;
mod tell;
mod tree;

pub use tell::on_tell;

use crate::core::{Core, Turn};
use args::Args;
use base::{Errno, Json};
use bytes::Bytes;
use wire::messages::{LogLevel, MMonCommand, MMonCommandAck, SessionId};
use wire::types::PoolId;

/// A request longer than this is nobody's honest command.
const COMMAND_LEN_MAX: usize = 1 << 20;

/// What `ceph` learns of a command, and what answers it.
pub struct Command {
    /// Literal words, then arguments as `name=…,type=…`.
    pub signature: &'static str,
    /// Module and permission: `osd rw`.
    pub access: &'static str,
    pub help: &'static str,
    pub run: fn(&mut Request) -> Outcome,
}

impl Command {
    /// The literal words: what a request names.
    pub fn prefix(&self) -> &'static str {
        let end = self.signature.find(" name=").unwrap_or(self.signature.len());
        &self.signature[..end]
    }

    fn writes(&self) -> bool {
        self.access.split_once(' ').is_some_and(|(_, permission)| permission.contains('w'))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Plain,
    Json,
    JsonPretty,
}

impl Format {
    pub fn is_json(self) -> bool {
        self != Format::Plain
    }
}

/// One command being answered.
pub struct Request<'a, 't> {
    pub core: &'a mut Core,
    pub turn: &'a mut Turn<'t>,
    pub session: SessionId,
    pub args: Args,
    pub format: Format,
    /// What `-i FILE` brought.
    pub input: Bytes,
}

/// The status line goes to stderr, the output to stdout.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    pub status: String,
    pub output: Bytes,
}

impl Reply {
    pub fn status(text: impl Into<String>) -> Reply {
        Reply { status: text.into(), output: Bytes::new() }
    }

    /// Plain text ends in a newline, as Ceph's monitors see to.
    pub fn text(text: impl Into<String>) -> Reply {
        let mut text: String = text.into();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Reply { status: String::new(), output: Bytes::from(text) }
    }

    pub fn bytes(output: Bytes) -> Reply {
        Reply { status: String::new(), output }
    }

    #[must_use]
    pub fn and_status(mut self, text: impl Into<String>) -> Reply {
        self.status = text.into();
        self
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub errno: Errno,
    pub status: String,
    /// Some failures come with output all the same.
    pub output: Bytes,
}

impl Failure {
    pub fn new(errno: Errno, status: impl Into<String>) -> Failure {
        Failure { errno, status: status.into(), output: Bytes::new() }
    }
}

impl From<crush::EditError> for Failure {
    fn from(error: crush::EditError) -> Failure {
        Failure::new(error.errno, error.text)
    }
}

pub type Outcome = Result<Reply, Failure>;

/// `Err` with words: `fail(Errno::ENOENT, format!(…))`.
pub fn fail<T>(errno: Errno, status: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::new(errno, status))
}

impl Request<'_, '_> {
    /// For commands whose output is JSON in any case: pretty when plain text is wanted.
    pub fn json(&self, value: &Json) -> Reply {
        match self.format {
            Format::Json => Reply::bytes(Bytes::from(value.compact())),
            Format::JsonPretty | Format::Plain => Reply::text(value.pretty()),
        }
    }

    /// JSON or text, as asked for.
    pub fn json_or(&self, value: impl FnOnce() -> Json, text: impl FnOnce() -> String) -> Reply {
        if self.format.is_json() { self.json(&value()) } else { Reply::text(text()) }
    }

    /// The pool that an argument names.
    pub fn pool(&self, arg: &str) -> Result<(PoolId, String), Failure> {
        let name = self.args.string(arg)?;
        match self.core.osd.map().pool_by_name(&name) {
            Some((id, _)) => Ok((id, name)),
            None => fail(Errno::ENOENT, format!("unrecognized pool '{name}'")),
        }
    }
}

/// All families.
fn tables() -> [&'static [Command]; 20] {
    [
        status::COMMANDS,
        cluster::COMMANDS,
        log::COMMANDS,
        mon::COMMANDS,
        manager::COMMANDS,
        osd_view::COMMANDS,
        osd_usage::COMMANDS,
        osd_state::COMMANDS,
        blocklist::COMMANDS,
        osd_admin::COMMANDS,
        tree::COMMANDS,
        crush_view::COMMANDS,
        crush_edit::COMMANDS,
        pool::COMMANDS,
        pool_vars::COMMANDS,
        pg::COMMANDS,
        scrub::COMMANDS,
        config::COMMANDS,
        config_key::COMMANDS,
        descriptions::COMMANDS,
    ]
}

fn all() -> impl Iterator<Item = &'static Command> {
    tables().into_iter().flatten()
}

fn find(prefix: &str) -> Option<&'static Command> {
    all().find(|command| command.prefix() == prefix)
}

pub fn on_mon_command(core: &mut Core, turn: &mut Turn, id: SessionId, tid: u64, message: MMonCommand) {
    let outcome = if message.fsid != core.fsid && message.fsid != wire::types::Uuid::ZERO {
        fail(Errno::EPERM, "request for another cluster")
    } else {
        run(core, turn, id, &message.cmd, message.input)
    };
    let (result, reply) = match outcome {
        Ok(reply) => (0, reply),
        Err(failure) => (failure.errno.negative(), Reply { status: failure.status, output: failure.output }),
    };
    let ack = MMonCommandAck {
        version: u64::from(core.osd.coming_epoch().0),
        result,
        status: reply.status,
        cmd: message.cmd,
        output: reply.output,
    };
    core.send(id, &ack, tid);
}

/// Finds and runs the command that `cmd` asks for.
pub fn run(core: &mut Core, turn: &mut Turn, session: SessionId, cmd: &[String], input: Bytes) -> Outcome {
    let (args, format) = parse(cmd)?;
    let prefix = args.prefix().to_string();
    let Some(command) = find(&prefix) else {
        return fail(Errno::EINVAL, "command not known");
    };
    let mut request = Request { core, turn, session, args, format, input };
    let outcome = (command.run)(&mut request);
    if command.writes() {
        conclude(core, turn, session, cmd, outcome.is_ok());
    }
    outcome
}

/// A command that changes something is committed with its turn, or not at all.
fn conclude(core: &mut Core, turn: &mut Turn, session: SessionId, cmd: &[String], ok: bool) {
    if !ok {
        core.osd.discard_pending();
        return;
    }
    let who = core.sessions.get(&session).map(|s| (s.peer.name.kind.name(), s.peer.addr, s.entity()));
    if let Some((kind, addr, entity)) = who {
        let text = format!("from='{kind}.? {addr}' entity='{entity}' cmd='[{}]': finished", cmd.join(","));
        core.log_to(turn, "audit", LogLevel::Info, text);
    }
    if core.osd.has_pending() || !core.writes.writes.is_empty() {
        core.commit_now(turn);
    }
}

/// One JSON object, sometimes in pieces.
fn parse(cmd: &[String]) -> Result<(Args, Format), Failure> {
    let text = cmd.concat();
    if text.len() > COMMAND_LEN_MAX {
        return fail(Errno::E2BIG, "the command is too long");
    }
    let Some(args) = Args::parse(&text) else {
        return fail(Errno::EINVAL, "unparsable command: not a JSON object with a \"prefix\"");
    };
    let format = match args.optional_string("format").as_deref() {
        Some("json") => Format::Json,
        Some("json-pretty") => Format::JsonPretty,
        _ => Format::Plain,
    };
    Ok((args, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commands_have_one_prefix() {
        let mut prefixes: Vec<&str> = all().map(Command::prefix).collect();
        prefixes.sort_unstable();
        for pair in prefixes.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }
}
