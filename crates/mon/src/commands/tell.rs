//! `ceph tell mon.X …`: what one asks of this daemon rather than of the cluster.

use super::{Command, Failure, Outcome, Reply, Request, descriptions, fail, parse};
use crate::core::{Core, Turn};
use base::{Errno, Json};
use wire::messages::{MCommand, MCommandReply, SessionId};

const COMMANDS: &[Command] = &[
    Command { signature: "version", access: "mon r", help: "show the monitor's version", run: version },
    Command { signature: "mon_status", access: "mon r", help: "show the monitor's state", run: mon_status },
    Command { signature: "sessions", access: "mon r", help: "list open sessions", run: sessions },
    Command {
        signature: "get_command_descriptions",
        access: "mon r",
        help: "list the commands",
        run: get_command_descriptions,
    },
];

pub fn on_tell(core: &mut Core, turn: &mut Turn, id: SessionId, tid: u64, message: MCommand) {
    let outcome = parse(&message.cmd).and_then(|(args, format)| {
        let prefix = args.prefix().to_string();
        let mut request = Request { core, turn, session: id, args, format, input: message.input };
        match COMMANDS.iter().find(|command| command.prefix() == prefix) {
            Some(command) => (command.run)(&mut request),
            None => fail(Errno::EINVAL, "command not known"),
        }
    });
    let (result, reply) = match outcome {
        Ok(reply) => (0, reply),
        Err(Failure { errno, status, output }) => (errno.negative(), Reply { status, output }),
    };
    core.send(id, &MCommandReply { result, status: reply.status, output: reply.output }, tid);
}

fn get_command_descriptions(_: &mut Request) -> Outcome {
    Ok(Reply::bytes(descriptions::describe(COMMANDS.iter()).into()))
}

fn version(r: &mut Request) -> Outcome {
    let json =
        Json::object().with("version", "16.2.15").with("release", "pacific").with("release_type", "stable");
    Ok(r.json(&json))
}

fn mon_status(r: &mut Request) -> Outcome {
    let monmap = super::mon::monmap_json(r.core);
    let json = Json::object()
        .with("name", r.core.name.as_str())
        .with("rank", 0)
        .with("state", "leader")
        .with("election_epoch", super::mon::ELECTION_EPOCH)
        .with("quorum", Json::array([0]))
        .with("quorum_age", super::mon::quorum_age(r))
        .with("monmap", monmap);
    Ok(r.json(&json))
}

fn sessions(r: &mut Request) -> Outcome {
    let sessions = r.core.sessions.values().map(|s| {
        Json::object()
            .with("name", s.peer.name.to_string())
            .with("entity_name", s.entity())
            .with("addr", s.peer.addr.to_string())
            .with("global_id", s.peer.global_id.0)
            .with("con_features", s.peer.features.0)
            .with("remote_host", s.hostname.as_str())
            .with("age", r.turn.now.since(s.opened).as_secs())
    });
    let json = Json::array(sessions.collect::<Vec<_>>());
    Ok(r.json(&json))
}
