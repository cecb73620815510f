//! Pools: making, listing, renaming, removing; quotas, applications, snapshots.

use super::{Command, Failure, Outcome, Reply, Request, fail};
use crate::format::units;
use crate::pools::NewPool;
use crate::serde_bridge::from_serde;
use base::{Errno, Json};
use std::collections::BTreeMap;
use wire::dump;
use wire::maps::{AutoscaleMode, PoolFlags};
use wire::types::PoolId;

/// As Ceph's limits on applications and their metadata.
const APPLICATIONS_MAX: usize = 4;
const APPLICATION_LEN_MAX: usize = 128;
const APPLICATION_KEYS_MAX: usize = 64;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd pool create name=pool,type=CephPoolname name=pg_num,type=CephInt,range=0,req=false name=pgp_num,type=CephInt,range=0,req=false name=pool_type,type=CephChoices,strings=replicated|erasure,req=false name=erasure_code_profile,type=CephString,goodchars=[A-Za-z0-9-_.],req=false name=rule,type=CephString,req=false name=expected_num_objects,type=CephInt,range=0,req=false name=size,type=CephInt,range=0,req=false name=pg_num_min,type=CephInt,range=0,req=false name=pg_num_max,type=CephInt,range=0,req=false name=autoscale_mode,type=CephChoices,strings=on|off|warn,req=false name=bulk,type=CephBool,req=false name=target_size_bytes,type=CephInt,range=0,req=false name=target_size_ratio,type=CephFloat,range=0.0,req=false",
        access: "osd rw",
        help: "make a pool",
        run: create,
    },
    Command {
        signature: "osd pool rm name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false name=yes_i_really_really_mean_it,type=CephBool,req=false name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        access: "osd rw",
        help: "remove a pool and all it holds",
        run: remove,
    },
    Command {
        signature: "osd pool delete name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false name=yes_i_really_really_mean_it,type=CephBool,req=false name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        access: "osd rw",
        help: "the older name of osd pool rm",
        run: remove,
    },
    Command {
        signature: "osd pool ls name=detail,type=CephChoices,strings=detail,req=false",
        access: "osd r",
        help: "list pools",
        run: list,
    },
    Command {
        signature: "osd pool rename name=srcpool,type=CephPoolname name=destpool,type=CephPoolname",
        access: "osd rw",
        help: "rename a pool",
        run: rename,
    },
    Command {
        signature: "osd pool set-quota name=pool,type=CephPoolname name=field,type=CephChoices,strings=max_objects|max_bytes name=val,type=CephString",
        access: "osd rw",
        help: "limit a pool's objects or bytes",
        run: set_quota,
    },
    Command {
        signature: "osd pool get-quota name=pool,type=CephPoolname",
        access: "osd r",
        help: "show a pool's limits",
        run: get_quota,
    },
    Command {
        signature: "osd pool application enable name=pool,type=CephPoolname name=app,type=CephString,goodchars=[A-Za-z0-9-_.] name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "say which application uses a pool",
        run: app_enable,
    },
    Command {
        signature: "osd pool application disable name=pool,type=CephPoolname name=app,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "say that an application no longer uses a pool",
        run: app_disable,
    },
    Command {
        signature: "osd pool application set name=pool,type=CephPoolname name=app,type=CephString name=key,type=CephString,goodchars=[A-Za-z0-9-_.] name=value,type=CephString,goodchars=[A-Za-z0-9-_.=]",
        access: "osd rw",
        help: "set a key of an application's notes on a pool",
        run: app_set,
    },
    Command {
        signature: "osd pool application rm name=pool,type=CephPoolname name=app,type=CephString name=key,type=CephString",
        access: "osd rw",
        help: "remove a key of an application's notes on a pool",
        run: app_rm,
    },
    Command {
        signature: "osd pool application get name=pool,type=CephPoolname,req=false name=app,type=CephString,req=false name=key,type=CephString,req=false",
        access: "osd r",
        help: "show applications' notes on pools",
        run: app_get,
    },
    Command {
        signature: "osd pool mksnap name=pool,type=CephPoolname name=snap,type=CephString",
        access: "osd rw",
        help: "make a snapshot of a pool",
        run: mksnap,
    },
    Command {
        signature: "osd pool rmsnap name=pool,type=CephPoolname name=snap,type=CephString",
        access: "osd rw",
        help: "remove a snapshot of a pool",
        run: rmsnap,
    },
];

// ---- making and removing ----

fn create(r: &mut Request) -> Outcome {
    let name = r.args.string("pool")?;
    if r.core.osd.map().pool_by_name(&name).is_some() {
        return Ok(Reply::status(format!("pool '{name}' already exists")));
    }
    // A third word is a rule's name when it is no pool type: `osd pool create NAME PGS RULE`.
    let mut rule = r.args.optional_string("rule").filter(|rule| !rule.is_empty());
    match r.args.optional_string("pool_type").as_deref() {
        None | Some("" | "replicated") => {}
        Some("erasure") => return fail(Errno::EOPNOTSUPP, "erasure-coded pools are not supported yet"),
        Some(other) => return fail(Errno::EINVAL, format!("unknown pool type '{other}'")),
    }
    // Replicated pools take a rule where erasure-coded ones take a profile.
    if let Some(profile) = r.args.optional_string("erasure_code_profile").filter(|p| !p.is_empty()) {
        rule = rule.or(Some(profile));
    }
    let pg_num = positive(r, "pg_num", "'pg_num' must be greater than 0")?;
    let pgp_num = positive(r, "pgp_num", "'pgp_num' must be greater than 0")?;
    if let (Some(pgs), Some(placements)) = (pg_num, pgp_num)
        && placements > pgs
    {
        return fail(
            Errno::ERANGE,
            format!(
                "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pgs}"
            ),
        );
    }
    let size = match r.args.optional_int("size")? {
        None | Some(0) => None,
        Some(size @ 1..=10) => u8::try_from(size).ok(),
        Some(size) => return fail(Errno::EINVAL, format!("pool size {size} must be between 1 and 10")),
    };
    let autoscale = match r.args.optional_string("autoscale_mode").as_deref() {
        Some("on") => Some(AutoscaleMode::On),
        Some("warn") => Some(AutoscaleMode::Warn),
        Some("off") => Some(AutoscaleMode::Off),
        _ => None,
    };
    let expected = r.args.optional_int("expected_num_objects")?.unwrap_or(0);
    let wanted = NewPool {
        name: name.clone(),
        pg_num,
        size,
        rule,
        autoscale,
        expected_num_objects: u64::try_from(expected).unwrap_or(0),
        bulk: r.args.flag("bulk"),
        ..NewPool::default()
    };
    r.core.create_pool(r.turn, &wanted)?;
    Ok(Reply::status(format!("pool '{name}' created")))
}

/// A count that is absent, or 0 for the default; anything else must be positive.
fn positive(r: &Request, arg: &str, why: &str) -> Result<Option<u32>, Failure> {
    match r.args.optional_int(arg)? {
        None | Some(0) => Ok(None),
        Some(n) => match u32::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => fail(Errno::EINVAL, why),
        },
    }
}

fn remove(r: &mut Request) -> Outcome {
    let name = r.args.string("pool")?;
    let Some((id, _)) = r.core.osd.map().pool_by_name(&name) else {
        return Ok(Reply::status(format!("pool '{name}' does not exist")));
    };
    let again = r.args.optional_string("pool2").unwrap_or_default();
    let confirmed = r.args.flag("yes_i_really_really_mean_it");
    let faked = r.args.flag("yes_i_really_really_mean_it_not_faking");
    if again != name || (!confirmed && !faked) {
        return fail(
            Errno::EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
            ),
        );
    }
    r.core.check_pool_removal(id)?;
    r.core.remove_pool(id);
    Ok(Reply::status(format!("pool '{name}' removed")))
}

fn list(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    if r.args.has("detail") {
        return Ok(r.json_or(|| from_serde(&dump::pools_detail(map)), || dump::pools_detail_text(map)));
    }
    Ok(r.json_or(
        || Json::array(map.pool_names.values().map(String::as_str)),
        || map.pool_names.values().map(|name| format!("{name}\n")).collect(),
    ))
}

fn rename(r: &mut Request) -> Outcome {
    let (from, to) = (r.args.string("srcpool")?, r.args.string("destpool")?);
    let map = r.core.osd.map();
    let target = map.pool_by_name(&to).is_some();
    let Some((id, _)) = map.pool_by_name(&from) else {
        // Said twice, it has been done already.
        if target {
            return Ok(Reply::status(format!(
                "pool '{from}' does not exist; pool '{to}' does -- assuming successful rename"
            )));
        }
        return fail(Errno::ENOENT, format!("unrecognized pool '{from}'"));
    };
    r.core.rename_pool(id, &to)?;
    Ok(Reply::status(format!("pool '{from}' renamed to '{to}'")))
}

// ---- quotas ----

fn set_quota(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let (field, text) = (r.args.string("field")?, r.args.string("val")?);
    let value = match field.as_str() {
        "max_bytes" => units::parse_size(&text),
        "max_objects" => parse_count(&text),
        _ => return fail(Errno::EINVAL, format!("unrecognized option '{field}'")),
    };
    let Some(value) = value else {
        return fail(Errno::EINVAL, format!("error parsing value '{text}': not a number"));
    };
    if let Some(pool) = r.core.osd.pool_mut(id) {
        match field.as_str() {
            "max_bytes" => pool.quota_max_bytes = value,
            _ => pool.quota_max_objects = value,
        }
    }
    Ok(Reply::status(format!("set-quota {field} = {value} for pool {name}")))
}

/// Objects are counted in thousands, not in 1024s.
fn parse_count(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let value: u64 = text[..digits].parse().ok()?;
    let scale = match text[digits..].trim() {
        "" => 1,
        "K" | "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    value.checked_mul(scale)
}

fn get_quota(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let Some(pool) = r.core.osd.map().pool(id) else { return fail(Errno::ENOENT, "") };
    let stats = r.core.pgs.pool_stat(id).stats;
    let json = || {
        Json::object()
            .with("pool_name", name.as_str())
            .with("pool_id", id.0)
            .with("quota_max_objects", pool.quota_max_objects)
            .with("current_num_objects", stats.num_objects)
            .with("quota_max_bytes", pool.quota_max_bytes)
            .with("current_num_bytes", stats.num_bytes)
    };
    let current = |n: i64| u64::try_from(n).unwrap_or(0);
    let text = || {
        let objects = match pool.quota_max_objects {
            0 => "N/A".to_string(),
            n => format!(
                "{} objects  (current num objects: {} objects)",
                units::count(n),
                units::count(current(stats.num_objects))
            ),
        };
        let size = match pool.quota_max_bytes {
            0 => "N/A".to_string(),
            n => format!("{}  (current num bytes: {} bytes)", units::bytes(n), stats.num_bytes),
        };
        format!("quotas for pool '{name}':\n  max objects: {objects}\n  max bytes  : {size}")
    };
    Ok(r.json_or(json, text))
}

// ---- applications ----

type Applications = BTreeMap<String, BTreeMap<String, String>>;

fn applications(r: &Request, id: PoolId) -> Applications {
    r.core.osd.map().pool(id).map(|p| p.application_metadata.clone()).unwrap_or_default()
}

fn store_applications(r: &mut Request, id: PoolId, applications: Applications) {
    if let Some(pool) = r.core.osd.pool_mut(id) {
        pool.application_metadata = applications;
    }
}

fn app_enable(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let app = r.args.string("app")?;
    let mut apps = applications(r, id);
    if app.is_empty() || app.len() > APPLICATION_LEN_MAX {
        return fail(
            Errno::EINVAL,
            format!("application name '{app}' is empty or too long; max length {APPLICATION_LEN_MAX}"),
        );
    }
    if !apps.contains_key(&app) {
        if !apps.is_empty() && !r.args.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "Are you SURE? Pool '".to_string()
                    + &name
                    + "' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway",
            );
        }
        if apps.len() >= APPLICATIONS_MAX {
            return fail(
                Errno::EINVAL,
                format!("too many enabled applications on pool '{name}'; max {APPLICATIONS_MAX}"),
            );
        }
        apps.insert(app.clone(), BTreeMap::new());
        store_applications(r, id, apps);
    }
    Ok(Reply::status(format!("enabled application '{app}' on pool '{name}'")))
}

fn app_disable(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let app = r.args.string("app")?;
    let mut apps = applications(r, id);
    if !apps.contains_key(&app) {
        return Ok(Reply::status(format!("application '{app}' is not enabled on pool '{name}'")));
    }
    if !r.args.flag("yes_i_really_mean_it") {
        return fail(
            Errno::EPERM,
            "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass --yes-i-really-mean-it to proceed anyway",
        );
    }
    apps.remove(&app);
    store_applications(r, id, apps);
    Ok(Reply::status(format!("disable application '{app}' on pool '{name}'")))
}

fn not_enabled<T>(app: &str, pool: &str) -> Result<T, Failure> {
    fail(Errno::ENOENT, format!("application '{app}' is not enabled on pool '{pool}'"))
}

fn app_set(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let (app, key, value) = (r.args.string("app")?, r.args.string("key")?, r.args.string("value")?);
    let mut apps = applications(r, id);
    let Some(notes) = apps.get_mut(&app) else { return not_enabled(&app, &name) };
    if key.is_empty() || key.len() > APPLICATION_LEN_MAX || value.len() > APPLICATION_LEN_MAX {
        return fail(
            Errno::EINVAL,
            format!("key or value is empty or too long; max length {APPLICATION_LEN_MAX}"),
        );
    }
    if !notes.contains_key(&key) && notes.len() >= APPLICATION_KEYS_MAX {
        return fail(
            Errno::EINVAL,
            format!("too many keys set for application '{app}' on pool '{name}'; max {APPLICATION_KEYS_MAX}"),
        );
    }
    notes.insert(key.clone(), value.clone());
    store_applications(r, id, apps);
    Ok(Reply::status(format!("set application '{app}' key '{key}' to '{value}' on pool '{name}'")))
}

fn app_rm(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let (app, key) = (r.args.string("app")?, r.args.string("key")?);
    let mut apps = applications(r, id);
    let Some(notes) = apps.get_mut(&app) else { return not_enabled(&app, &name) };
    if notes.remove(&key).is_none() {
        return Ok(Reply::status(format!("application '{app}' on pool '{name}' does not have key '{key}'")));
    }
    store_applications(r, id, apps);
    Ok(Reply::status(format!("removed application '{app}' key '{key}' on pool '{name}'")))
}

fn notes_json(notes: &BTreeMap<String, String>) -> Json {
    notes.iter().fold(Json::object(), |json, (key, value)| json.with(key.as_str(), value.as_str()))
}

fn apps_json(apps: &Applications) -> Json {
    apps.iter().fold(Json::object(), |json, (app, notes)| json.with(app.as_str(), notes_json(notes)))
}

fn app_get(r: &mut Request) -> Outcome {
    if !r.args.has("pool") {
        let map = r.core.osd.map();
        let json = map.pool_names.iter().fold(Json::object(), |json, (id, name)| {
            json.with(name.as_str(), apps_json(&applications(r, *id)))
        });
        return Ok(r.json(&json));
    }
    let (id, name) = r.pool("pool")?;
    let apps = applications(r, id);
    let Some(app) = r.args.optional_string("app").filter(|a| !a.is_empty()) else {
        return Ok(r.json(&apps_json(&apps)));
    };
    let Some(notes) = apps.get(&app) else {
        return fail(Errno::ENOENT, format!("pool '{name}' has no application '{app}'"));
    };
    let Some(key) = r.args.optional_string("key").filter(|k| !k.is_empty()) else {
        return Ok(r.json(&notes_json(notes)));
    };
    match notes.get(&key) {
        Some(value) => Ok(Reply::text(format!("{value}\n"))),
        None => {
            fail(Errno::ENOENT, format!("application '{app}' on pool '{name}' does not have key '{key}'"))
        }
    }
}

// ---- snapshots ----

fn mksnap(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let snap = r.args.string("snap")?;
    let exists = r.core.osd.map().pool(id).is_some_and(|p| p.snap_by_name(&snap).is_some());
    if exists {
        return Ok(Reply::status(format!("pool {name} snap {snap} already exists")));
    }
    r.core.create_pool_snap(r.turn, id, &snap)?;
    Ok(Reply::status(format!("created pool {name} snap {snap}")))
}

fn rmsnap(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let snap = r.args.string("snap")?;
    let pool = r.core.osd.map().pool(id);
    if pool.is_some_and(|p| p.flags.contains(PoolFlags::SELFMANAGED_SNAPS)) {
        return fail(Errno::EINVAL, format!("pool {name} is in unmanaged snaps mode"));
    }
    if pool.is_none_or(|p| p.snap_by_name(&snap).is_none()) {
        return Ok(Reply::status(format!("pool {name} snap {snap} does not exist")));
    }
    r.core.remove_pool_snap(id, &snap)?;
    Ok(Reply::status(format!("removed pool {name} snap {snap}")))
}
