use super::harness::Cluster;
use base::Random;
use bytes::Bytes;
use wire::messages::*;

/// Every kind that the monitor decodes.
const KINDS: [u16; 18] = [
    MMonGetMap::KIND,
    MMonSubscribe::KIND,
    MMonGetVersion::KIND,
    MStatfs::KIND,
    MGetPoolStats::KIND,
    MPoolOp::KIND,
    MMonCommand::KIND,
    MCommand::KIND,
    MLog::KIND,
    MAuth::KIND,
    MOsdBoot::KIND,
    MOsdFailure::KIND,
    MOsdAlive::KIND,
    MOsdPgTemp::KIND,
    MOsdGoingDown::KIND,
    MOsdReport::KIND,
    9999,
    0,
];

#[test]
fn random_bytes_close_the_session_at_worst() {
    let (mut c, _) = Cluster::with_osds(2);
    let mut random = Random::from_seed(3);
    for round in 0..4000 {
        let session = c.osd_session(0);
        let len = random.below(120);
        let front: Vec<u8> =
            (0..len).map(|_| (random.next_u64() % if round % 2 == 0 { 256 } else { 3 }) as u8).collect();
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        c.send_raw(session, kind, (random.below(9)) as u16, Bytes::from(front), Bytes::new());
        c.sent.clear();
        c.with(|mon, ctx| mon.on_session_closed(ctx, session));
    }
    let client = c.client();
    assert!(c.ok(client, r#"{"prefix":"status"}"#).contains("osd: 2 osds"));
}

#[test]
fn commands_that_make_no_sense_are_refused_with_words() {
    let (mut c, _) = Cluster::with_osds(1);
    let client = c.client();
    for json in [
        "",
        "{",
        "[]",
        r#"{"prefix":7}"#,
        r#"{"prefix":"no such command"}"#,
        r#"{"prefix":"osd pool set","pool":"x","var":"recovery_priority": "5"}"#,
        r#"{"prefix":"osd pool create"}"#,
        r#"{"prefix":"osd reweight","id":"many","weight":1}"#,
        r#"{"prefix":"osd reweight","id":0,"weight":"NaN"}"#,
        r#"{"prefix":"osd reweight","id":0,"weight":1e300}"#,
        r#"{"prefix":"osd setmaxosd","newmax":-5}"#,
        r#"{"prefix":"osd setmaxosd","newmax":99999999999999999999}"#,
        r#"{"prefix":"osd tree","states":["sideways"]}"#,
        r#"{"prefix":"pg map","pgid":"1.zz"}"#,
        r#"{"prefix":"log last","level":"loud"}"#,
    ] {
        let answer = c.command(client, json);
        assert_eq!(answer.result.min(0), answer.result, "{json}");
        assert!(
            answer.result < 0 && !answer.status.is_empty(),
            "{json}: {} {}",
            answer.result,
            answer.status
        );
    }
}

/// Every command with every argument absent, and with arguments of odd types.
#[test]
fn no_command_panics_on_missing_or_odd_arguments() {
    let (mut c, _) = Cluster::with_osds(2);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let text = c.ok(client, r#"{"prefix":"get_command_descriptions"}"#);
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let odd =
        ["\"\"", "null", "-1", "1e99", "true", "[]", "[[]]", "{}", "\"p\"", "\"0\"", "\"osd.0\"", "\"1.0\""];
    for description in all.as_object().unwrap().values() {
        let words = description["sig"].as_array().unwrap();
        let prefix: Vec<&str> = words.iter().filter_map(|w| w.as_str()).collect();
        let args: Vec<&str> = words.iter().filter_map(|w| w["name"].as_str()).collect();
        let prefix = prefix.join(" ");
        c.command(client, &format!(r#"{{"prefix":"{prefix}"}}"#));
        for value in odd {
            let args: String = args.iter().map(|arg| format!(r#","{arg}":{value}"#)).collect();
            for format in ["plain", "json", "json-pretty"] {
                c.command(client, &format!(r#"{{"prefix":"{prefix}","format":"{format}"{args}}}"#));
            }
        }
        c.sent.clear();
    }
    c.run(5);
}
