//! What commands there are: `ceph` asks before it sends its first one.
//!
//! Commands of the manager are listed like the monitor's own, without the flag
//! that would make the client look for a manager, so that they come here.

use super::{Command, Outcome, Reply, Request};
use base::Json;

pub const COMMANDS: &[Command] = &[Command {
    signature: "get_command_descriptions",
    access: "mon r",
    help: "list the commands",
    run: get_command_descriptions,
}];

fn get_command_descriptions(_: &mut Request) -> Outcome {
    Ok(Reply::bytes(describe(super::all()).into()))
}

pub fn describe<'a>(commands: impl Iterator<Item = &'a Command>) -> String {
    let mut all = Json::object();
    for (i, command) in commands.enumerate() {
        let (module, permission) = command.access.split_once(' ').unwrap_or((command.access, "r"));
        let description = Json::object()
            .with("sig", Json::Array(command.signature.split(' ').map(word).collect()))
            .with("help", command.help)
            .with("module", module)
            .with("perm", permission)
            .with("flags", 0);
        all.push(format!("cmd{i:03}"), description);
    }
    all.compact()
}

/// A literal, or an argument's attributes.
fn word(word: &str) -> Json {
    if !word.starts_with("name=") {
        return word.into();
    }
    let mut json = Json::object();
    for attribute in word.split(',') {
        let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        json.push(key, value);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_become_ceph_argparse_descriptions() {
        let command = Command {
            signature: "osd out name=ids,type=CephString,n=N",
            access: "osd rw",
            help: "h",
            run: get_command_descriptions,
        };
        let expected = r#"{"cmd000":{"sig":["osd","out",{"name":"ids","type":"CephString","n":"N"}],"help":"h","module":"osd","perm":"rw","flags":0}}"#;
        assert_eq!(describe([command].iter()), expected);
    }
}
