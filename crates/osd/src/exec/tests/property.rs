//! Random compounds of honest operations against a plain model of one object.

use super::*;
use base::Random;

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    exists: bool,
    data: Vec<u8>,
    xattrs: BTreeMap<String, String>,
    omap: BTreeMap<String, String>,
}

/// One operation, what it does to the model, and what it should answer.
fn random_op(random: &mut Random, model: &mut Model) -> (OsdOp, i32, Option<Vec<u8>>) {
    let key = format!("k{}", random.below(4));
    let value = format!("v{}", random.below(100));
    let offset = random.below(9000);
    let bytes: Vec<u8> = (0..random.below(5000)).map(|_| random.next_u64() as u8).collect();
    match random.below(13) {
        0 | 1 => {
            model.exists = true;
            let end = offset as usize + bytes.len();
            model.data.resize(model.data.len().max(end), 0);
            model.data[offset as usize..end].copy_from_slice(&bytes);
            (write(offset, &bytes), 0, None)
        }
        2 => {
            model.exists = true;
            model.data.clone_from(&bytes);
            (write_full(&bytes), 0, None)
        }
        3 => {
            model.exists = true;
            model.data.extend_from_slice(&bytes);
            (extent(OpCode::APPEND, 0, bytes.len() as u64, &bytes), 0, None)
        }
        4 => {
            if model.exists {
                model.data.resize(offset as usize, 0);
            }
            (extent(OpCode::TRUNCATE, offset, 0, b""), 0, None)
        }
        5 => {
            let (from, len) = (offset as usize, 1 + random.below(5000) as usize);
            if from + len >= model.data.len() {
                model.data.truncate(from);
            } else {
                model.data[from..from + len].fill(0);
            }
            (extent(OpCode::ZERO, offset, len as u64, b""), 0, None)
        }
        6 => {
            let from = model.data.len().min(offset as usize);
            let to = model.data.len().min(from + 4000);
            (read(offset, 4000), 0, Some(model.data[from..to].to_vec()))
        }
        7 => {
            model.exists = true;
            model.xattrs.insert(key.clone(), value.clone());
            (set_xattr(&key, &value), 0, None)
        }
        8 => {
            let code = if model.exists { 0 } else { -2 };
            model.xattrs.remove(&key);
            (xattr_op(OpCode::RMXATTR, key.as_bytes(), b""), code, None)
        }
        9 => {
            model.exists = true;
            model.omap.insert(key.clone(), value.clone());
            (omap_set(&[(&key, &value)]), 0, None)
        }
        10 => {
            let code = if model.exists { 0 } else { -2 };
            model.omap.remove(&key);
            (omap_keys_op(OpCode::OMAPRMKEYS, &[&key]), code, None)
        }
        11 => {
            let found: Vec<_> = model.omap.get(&key).into_iter().collect();
            let out = encoded(|e| {
                e.count(found.len());
                for value in found {
                    e.string(&key);
                    e.string(value);
                }
            });
            (omap_keys_op(OpCode::OMAPGETVALSBYKEYS, &[&key]), 0, Some(out))
        }
        _ => {
            let code = if model.exists { 0 } else { -2 };
            if random.chance(1, 3) {
                *model = Model::default();
                (bare(OpCode::DELETE), code, None)
            } else {
                model.exists = true;
                (bare(OpCode::CREATE), 0, None)
            }
        }
    }
}

fn stored(bench: &mut Bench) -> Model {
    if bench.store.stat(&id("o")).unwrap().is_none() {
        return Model::default();
    }
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let mut model = Model { exists: true, data: bench.data().unwrap(), ..Model::default() };
    for (name, value) in bench.store.xattrs(&id("o")).unwrap() {
        if let Some(name) = object_info::user_name(&name) {
            model.xattrs.insert(text(name), text(value));
        }
    }
    for (key, value) in bench.store.omap_list(&id("o"), None, b"", store::OmapLimit::NONE).unwrap().entries {
        model.omap.insert(text(key), text(value));
    }
    model
}

#[test]
fn compounds_do_to_the_object_what_their_operations_say() {
    for seed in 0..30 {
        let mut random = Random::from_seed(seed);
        let (mut bench, mut model) = (Bench::new(), Model::default());
        for round in 0..60 {
            let mut after = model.clone();
            let (mut ops, mut answers) = (Vec::new(), Vec::new());
            for _ in 0..1 + random.below(6) {
                let (op, code, out) = random_op(&mut random, &mut after);
                ops.push(op);
                answers.push((code, out));
                if code < 0 {
                    break;
                }
            }
            let request = request(ops);
            let writes = classify(&request) == Class::Write;
            if !writes && !model.exists {
                continue;
            }
            let mut fetched = Fetched::default();
            let first = bench.decide(&request, &mut fetched);
            // With everything at hand at once the answer is the same.
            let second = bench.attempt(&request, &fetched).unwrap();
            let show = |outcome: &Outcome| format!("{:?}", (outcome.result, &outcome.ops, &outcome.effect));
            assert_eq!(show(&first), show(&second), "seed {seed} round {round}");

            // Reads in writes answer at most 64 bytes; compare them where they are read alone.
            let overflow = first.result == Errno::EOVERFLOW.negative();
            let failed = answers.last().unwrap().0 < 0;
            if !overflow {
                for (op, (code, out)) in first.ops.iter().zip(&answers) {
                    assert_eq!(op.rval, *code, "seed {seed} round {round}: {request:?}");
                    let out = out.clone().unwrap_or_default();
                    assert_eq!(op.outdata, out, "seed {seed} round {round}: {:?}", op.op);
                }
            }
            bench.run_request(&request);
            if !failed && !overflow {
                model = after;
            }
            assert_eq!(stored(&mut bench), model, "seed {seed} round {round}");
        }
    }
}
