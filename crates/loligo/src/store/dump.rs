//! `loligo store dump`: what is in a store, read only.
//!
//! Lists and objects are shown as they are found, so that a large store needs
//! no large memory.

use super::names;
use super::node::{Ending, Place, Step, Task, run_task};
use super::options::DumpOptions;
use anyhow::{Context, Result, anyhow, bail};
use base::Time;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use store::{CollId, Engine, FetchId, ObjectId, ObjectStore, OmapLimit, Options, StoreError, StoreEvent};
use uring::DiskOptions;
use wire::types::HObject;

/// Objects, or omap entries, asked for at once, and bytes of these.
const PAGE: usize = 256;
const PAGE_BYTES: usize = 4 << 20;

/// Bytes of content read at once.
const READ_LEN: u64 = 4 << 20;

pub fn run(options: &DumpOptions) -> Result<ExitCode> {
    let target = &options.target;
    let disk_options = DiskOptions { read_only: true, ..DiskOptions::default() };
    let place = Place { path: &target.path, backend: target.backend, options: disk_options };
    let read_only = Options { read_only: true, ..Options::default() };
    let open = |disk: &uring::Disk| Engine::open(disk.info(), None, read_only);
    let mut dump = Dump::new(options)?;
    run_task(&place, Ending::Abrupt, &mut dump, open)?;
    dump.out.finish()?;
    if let Some(name) = &options.object
        && dump.found.is_none()
    {
        bail!("no object of the name {name:?}");
    }
    Ok(ExitCode::SUCCESS)
}

enum Stage {
    Collections,
    Objects { coll: CollId, from: HObject },
    Describe { id: ObjectId, shown: Box<Description> },
    Content { id: ObjectId, offset: u64, size: u64, read: Option<FetchId>, data: Option<Bytes> },
}

/// What has been found of one object. Gathered over several steps, for each may
/// have to wait for the device.
#[derive(Default)]
struct Description {
    head: Option<Head>,
    omap: Vec<(Bytes, Bytes)>,
    omap_done: bool,
}

struct Head {
    size: u64,
    allocated: u64,
    xattrs: Vec<(String, Bytes)>,
    omap_header: Bytes,
    extents: Vec<(u64, u64, u64)>,
}

struct Dump<'a> {
    options: &'a DumpOptions,
    out: Output,
    content: Option<Box<dyn Write>>,
    collections: VecDeque<CollId>,
    /// Objects of the page to be shown.
    objects: VecDeque<ObjectId>,
    /// Where the list goes on after them.
    next: Option<(CollId, HObject)>,
    stage: Stage,
    /// With `--object`: the last one that matched.
    found: Option<ObjectId>,
}

impl<'a> Dump<'a> {
    fn new(options: &'a DumpOptions) -> Result<Dump<'a>> {
        let to_stdout = options.data.as_deref() == Some(Path::new("-"));
        let content: Option<Box<dyn Write>> = match &options.data {
            None => None,
            Some(_) if to_stdout => Some(Box::new(io::stdout())),
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
                Some(Box::new(BufWriter::new(file)))
            }
        };
        let format = match (to_stdout, options.target.json) {
            (true, _) => Format::Nothing,
            (false, true) => Format::Json,
            (false, false) => Format::Text,
        };
        Ok(Dump {
            options,
            out: Output { format, nested: options.object.is_none(), any: false, any_inner: false },
            content,
            collections: VecDeque::new(),
            objects: VecDeque::new(),
            next: None,
            stage: Stage::Collections,
            found: None,
        })
    }

    fn next_collection(&mut self) -> bool {
        let Some(coll) = self.collections.pop_front() else { return false };
        self.stage = Stage::Objects { coll, from: HObject::default() };
        true
    }

    /// One page of a collection's list.
    fn list(&mut self, store: &Engine, coll: CollId, from: &HObject) -> Result<()> {
        let mut page = store.list(coll, from, PAGE + 1)?;
        self.next = (page.len() > PAGE).then(|| page.pop()).flatten().map(|name| (coll, name));
        let wanted = |object: &HObject| self.options.object.as_ref().is_none_or(|name| *name == object.name);
        let found = page.into_iter().filter(wanted).map(|object| ObjectId { coll, object });
        self.objects.extend(found);
        Ok(())
    }

    /// After an object, or a page without any.
    fn go_on(&mut self) -> bool {
        if let Some(id) = self.objects.pop_front() {
            self.stage = Stage::Describe { id, shown: Box::default() };
        } else if let Some((coll, from)) = self.next.take() {
            self.stage = Stage::Objects { coll, from };
        } else {
            return self.next_collection();
        }
        true
    }

    fn show_brief(&mut self, store: &Engine, id: &ObjectId) -> Result<()> {
        let stat = store.stat(id)?.ok_or(StoreError::NoObject)?;
        self.out.object_brief(id, stat.size, stat.omap_keys)
    }

    fn show_whole(&mut self, id: &ObjectId, shown: &Description) -> Result<()> {
        let head = shown.head.as_ref().ok_or_else(|| anyhow!("nothing is known of the object"))?;
        self.out.object_whole(id, head, &shown.omap)
    }
}

impl Task for Dump<'_> {
    fn step(&mut self, store: &mut Engine, _: Time) -> Result<Step> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Collections) {
                Stage::Collections => {
                    self.collections = store.collections().into();
                    if let Some(only) = self.options.coll {
                        self.collections.retain(|coll| *coll == only);
                        if self.collections.is_empty() {
                            bail!("no collection {}", names::collection(only));
                        }
                    }
                    self.out.begin()?;
                    if !self.next_collection() {
                        return Ok(Step::Done);
                    }
                }
                Stage::Objects { coll, from } => {
                    let listed = self.list(store, coll, &from);
                    if let Err(error) = listed {
                        self.stage = Stage::Objects { coll, from };
                        return Err(error);
                    }
                    if from == HObject::default() {
                        self.out.collection(coll)?;
                    }
                    if !self.go_on() {
                        return Ok(Step::Done);
                    }
                }
                Stage::Describe { id, mut shown } => {
                    let done = if self.options.object.is_none() {
                        self.show_brief(store, &id)
                    } else {
                        gather(store, &id, &mut shown).and_then(|()| self.show_whole(&id, &shown))
                    };
                    if let Err(error) = done {
                        self.stage = Stage::Describe { id, shown };
                        return Err(error);
                    }
                    if self.options.object.is_some() {
                        if self.content.is_some() && self.found.is_some() {
                            bail!("several objects have this name: choose one with --coll");
                        }
                        self.found = Some(id.clone());
                    }
                    if self.content.is_some() {
                        let size = shown.head.as_ref().map_or(0, |head| head.size);
                        self.stage = Stage::Content { id, offset: 0, size, read: None, data: None };
                    } else if !self.go_on() {
                        return Ok(Step::Done);
                    }
                }
                Stage::Content { id, mut offset, size, mut read, mut data } => {
                    if let Some(data) = data.take() {
                        let content = self.content.as_mut().context("nowhere to write to")?;
                        content.write_all(&data).context("cannot write the content")?;
                        offset += data.len() as u64;
                        read = None;
                    }
                    if offset >= size {
                        self.content.as_mut().context("nowhere to write to")?.flush()?;
                        if !self.go_on() {
                            return Ok(Step::Done);
                        }
                        continue;
                    }
                    let started = match read {
                        Some(fetch) => Ok(fetch),
                        None => store.read(&id, offset, READ_LEN.min(size - offset)),
                    };
                    let read = started.as_ref().ok().copied();
                    self.stage = Stage::Content { id, offset, size, read, data: None };
                    started?;
                    return Ok(Step::Wait);
                }
            }
        }
    }

    fn on_event(&mut self, _: &mut Engine, event: StoreEvent, _: Time) -> Result<()> {
        if let StoreEvent::Read { id, result } = event
            && let Stage::Content { read: Some(waiting), data, .. } = &mut self.stage
            && *waiting == id
        {
            let bytes = result?;
            if bytes.is_empty() {
                bail!("the object ends before its size");
            }
            *data = Some(bytes);
        }
        Ok(())
    }
}

/// Goes on where the last attempt had to wait.
fn gather(store: &Engine, id: &ObjectId, shown: &mut Description) -> Result<()> {
    if shown.head.is_none() {
        let stat = store.stat(id)?.ok_or(StoreError::NoObject)?;
        shown.head = Some(Head {
            size: stat.size,
            allocated: stat.allocated,
            xattrs: store.xattrs(id)?.into_iter().collect(),
            omap_header: store.omap_header(id)?,
            extents: store.device_extents(id)?,
        });
    }
    while !shown.omap_done {
        let after = shown.omap.last().map(|(key, _)| key.clone());
        let limit = OmapLimit { entries: PAGE, bytes: PAGE_BYTES };
        let page = store.omap_list(id, after.as_deref(), b"", limit)?;
        shown.omap_done = !page.more;
        shown.omap.extend(page.entries);
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
    Nothing,
}

/// Standard output, in either form. In JSON a list of collections with their
/// objects, or, with `nested` off, of objects.
struct Output {
    format: Format,
    nested: bool,
    any: bool,
    any_inner: bool,
}

impl Output {
    fn line(&self, text: &str) -> Result<()> {
        writeln!(io::stdout(), "{text}").context("cannot write the list")
    }

    fn begin(&mut self) -> Result<()> {
        match self.format {
            Format::Json => self.line("["),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        match self.format {
            Format::Json => {
                if self.nested && self.any {
                    self.line("]}")?;
                }
                self.line("]")
            }
            _ => Ok(()),
        }
    }

    fn collection(&mut self, coll: CollId) -> Result<()> {
        if !self.nested {
            return Ok(());
        }
        let name = names::collection(coll);
        match self.format {
            Format::Json => {
                if self.any {
                    self.line("]},")?;
                }
                self.line(&format!("{{\"collection\": {}, \"objects\": [", json!(name)))?;
            }
            Format::Text => self.line(&name)?,
            Format::Nothing => {}
        }
        self.any = true;
        self.any_inner = false;
        Ok(())
    }

    /// One element of the innermost list.
    fn element(&mut self, value: &Value) -> Result<()> {
        let any = if self.nested { &mut self.any_inner } else { &mut self.any };
        let comma = if std::mem::replace(any, true) { ", " } else { "" };
        self.line(&format!("{comma}{value}"))
    }

    fn object_brief(&mut self, id: &ObjectId, size: u64, omap_keys: u64) -> Result<()> {
        match self.format {
            Format::Json => {
                let mut value = name_json(id);
                value.insert("size".into(), json!(size));
                value.insert("omap_keys".into(), json!(omap_keys));
                self.element(&Value::Object(value))
            }
            Format::Text => {
                let omap = if omap_keys > 0 { format!(", {omap_keys} omap keys") } else { String::new() };
                self.line(&format!("  {}  {size} bytes{omap}", names::object(&id.object)))
            }
            Format::Nothing => Ok(()),
        }
    }

    fn object_whole(&mut self, id: &ObjectId, head: &Head, omap: &[(Bytes, Bytes)]) -> Result<()> {
        match self.format {
            Format::Json => self.element(&whole_json(id, head, omap)),
            Format::Text => self.line(&whole_text(id, head, omap)),
            Format::Nothing => Ok(()),
        }
    }
}

fn name_json(id: &ObjectId) -> Map<String, Value> {
    let object = &id.object;
    let fields = [
        ("collection", json!(names::collection(id.coll))),
        ("pool", json!(object.pool.0)),
        ("hash", json!(format!("{:08x}", object.hash))),
        ("namespace", json!(object.nspace)),
        ("key", json!(object.key)),
        ("name", json!(object.name)),
        ("snap", json!(names::snap(object.snap))),
    ];
    fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

fn whole_json(id: &ObjectId, head: &Head, omap: &[(Bytes, Bytes)]) -> Value {
    let mut value = name_json(id);
    let xattrs: Map<String, Value> =
        head.xattrs.iter().map(|(name, bytes)| (name.clone(), names::bytes_json(bytes))).collect();
    let omap: Vec<Value> = omap
        .iter()
        .map(|(key, bytes)| json!({ "key": names::bytes_json(key), "value": names::bytes_json(bytes) }))
        .collect();
    let extents: Vec<Value> = head
        .extents
        .iter()
        .map(|(offset, len, device)| json!({ "offset": offset, "len": len, "device_offset": device }))
        .collect();
    value.insert("size".into(), json!(head.size));
    value.insert("allocated".into(), json!(head.allocated));
    value.insert("xattrs".into(), Value::Object(xattrs));
    value.insert("omap_header".into(), names::bytes_json(&head.omap_header));
    value.insert("omap".into(), json!(omap));
    value.insert("extents".into(), json!(extents));
    Value::Object(value)
}

fn whole_text(id: &ObjectId, head: &Head, omap: &[(Bytes, Bytes)]) -> String {
    let object = &id.object;
    let mut lines = vec![
        format!("{} {}", names::collection(id.coll), names::object(object)),
        format!("  pool {}, hash {:08x}, snap {}", object.pool.0, object.hash, names::snap(object.snap)),
        format!("  size {} bytes, {} allocated", head.size, head.allocated),
    ];
    for (name, bytes) in &head.xattrs {
        lines.push(format!("  xattr {}: {}", name.escape_default(), names::bytes_text(bytes)));
    }
    if !head.omap_header.is_empty() {
        lines.push(format!("  omap header: {}", names::bytes_text(&head.omap_header)));
    }
    for (key, value) in omap {
        lines.push(format!("  omap {}: {}", key.escape_ascii(), names::bytes_text(value)));
    }
    for (offset, len, device) in &head.extents {
        lines.push(format!("  extent {offset}, {len} bytes, at device offset {device}"));
    }
    lines.join("\n")
}
