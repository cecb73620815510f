//! Object classes: what the OSD makes of a CALL around the method that it runs.

use super::*;
use wire::messages::osd_op::CallArgs;

fn call(class: &str, method: &str, input: &[u8]) -> OsdOp {
    let args = CallArgs {
        class_len: class.len() as u8,
        method_len: method.len() as u8,
        argc: 0,
        indata_len: input.len() as u32,
    };
    op(OpCode::CALL, args.into_args(), &[class.as_bytes(), method.as_bytes(), input].concat())
}

fn hello(method: &str) -> OsdOp {
    call("hello", method, b"")
}

fn plain(ops: Vec<OsdOp>) -> MOsdOp {
    MOsdOp { flags: flags::READ, ..request(ops) }
}

#[test]
fn the_flags_of_the_method_decide_and_not_those_of_the_message() {
    let mut bench = Bench::new();
    assert_eq!(classify(&plain(vec![hello("say_hello")])), Class::Read);
    assert_eq!(classify(&plain(vec![hello("say_hello"), hello("turn_it_to_11")])), Class::Write);
    assert_eq!(bench.run_request(&plain(vec![hello("replay")])).result, -2);
    let recorded = bench.run_request(&plain(vec![hello("record_hello")]));
    assert_eq!((recorded.result, recorded.user_version), (0, 1));
    assert!(matches!(recorded.effect, Effect::Change(_)));
    let replayed = bench.run(vec![hello("replay")]);
    assert_eq!((replayed.ops[0].outdata.as_ref(), replayed.user_version), (&b"Hello, world!"[..], 1));
    assert!(matches!(replayed.effect, Effect::None), "answered as a read");
}

#[test]
fn a_method_reads_what_its_message_wrote_and_fails_with_it() {
    let mut bench = Bench::new();
    let outcome = bench.run(vec![write(0, b"quiet"), hello("turn_it_to_11"), read(0, 0)]);
    assert_eq!(outcome.ops[2].outdata, "QUIET");
    let failed = bench.run(vec![hello("turn_it_to_11"), write_full(b"x"), hello("record_hello")]);
    assert_eq!((failed.result, rvals(&failed)), (-17, vec![0, 0, -17]));
    assert!(matches!(failed.effect, Effect::ErrorOnly));
    let ignored = bench.run(vec![failok(hello("record_hello")), write_full(b"x")]);
    assert_eq!((ignored.result, rvals(&ignored)), (0, vec![-17, 0]));
    assert_eq!(bench.data().unwrap(), b"x");
}

#[test]
fn data_that_a_method_lacks_is_fetched() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"there")]);
    match bench.attempt(&plain(vec![hello("turn_it_to_11"), read(1, 2)]), &Fetched::default()) {
        Err(Need::Data(ranges)) => assert_eq!(ranges[0].len, 5),
        other => panic!("{other:?}"),
    }
    bench.run(vec![hello("turn_it_to_11")]);
    assert_eq!(bench.data().unwrap(), b"THERE");
}

#[test]
fn the_caller_is_recorded() {
    let mut bench = Bench::new();
    bench.run(vec![hello("record_hello")]);
    assert_eq!(bench.run(vec![get_xattr("said_by")]).ops[0].outdata, "client.1 -");
}

#[test]
fn writes_answer_when_they_are_asked_to_and_errors_always() {
    let mut bench = Bench::new();
    let quiet = bench.run_request(&plain(vec![hello("write_return_data")]));
    assert_eq!((quiet.result, quiet.ops[0].outdata.len()), (0, 0));
    let asked = bench.run(vec![hello("write_return_data")]);
    assert_eq!((asked.result, asked.ops[0].rval), (42, 42));
    assert_eq!(asked.ops[0].outdata, "you might see this");
    assert_eq!(bench.run(vec![hello("write_too_much_return_data")]).result, -75);
    let failed = bench.run_request(&plain(vec![call("hello", "write_return_data", b"!")]));
    assert_eq!((failed.result, failed.ops[0].outdata.as_ref()), (-22, &b"too much input data!"[..]));
}

#[test]
fn methods_that_do_more_than_their_flags_say_fail() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"x")]);
    assert_eq!(bench.run(vec![hello("bad_reader")]).result, -5);
    assert_eq!(bench.run(vec![call("hello", "bad_writer", b"y")]).result, -5);
    assert_eq!(bench.data().unwrap(), b"x");
}

#[test]
fn unknown_names_fail_the_whole_message_and_are_named() {
    let mut bench = Bench::new();
    let unknown = bench.run(vec![write(0, b"x"), failok(call("hello", "say\n", b""))]);
    assert_eq!((unknown.result, rvals(&unknown)), (-95, vec![0, 0]));
    assert_eq!(unknown.unsupported[0].to_string(), "CALL hello.say\\n");
    assert_eq!(unknown.unsupported[0].code(), OpCode::CALL);
    assert_eq!(bench.run(vec![failok(call("no", "such", b""))]).result, -1);
    // The first one counts.
    assert_eq!(bench.run(vec![call("no", "such", b""), hello("such")]).result, -1);
    assert_eq!(bench.run(vec![hello("such"), call("no", "such", b"")]).result, -95);
    assert!(bench.info().is_none());
}

#[test]
fn input_must_hold_what_the_arguments_say() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"x")]);
    let mut short_names = hello("say_hello");
    short_names.indata.truncate(7);
    assert_eq!(bench.run(vec![short_names]).result, -22);
    let mut short_input = hello("say_hello");
    short_input.args[3] = 1;
    let outcome = bench.run(vec![read(0, 0), short_input]);
    assert_eq!((outcome.result, outcome.ops[0].outdata.as_ref()), (-22, &b"x"[..]));
    let mut long_input = call("hello", "say_hello", b"you all");
    long_input.args[3] = 3;
    assert_eq!(bench.run(vec![long_input]).ops[0].outdata, "Hello, you!");
}
