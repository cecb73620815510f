//! Fuzzer input read as a list of frames.

pub enum Step<'a> {
    Raw(&'a [u8]),
    Frame { kind: u8, body: &'a [u8] },
    Message { kind: u8, body: &'a [u8] },
}

pub struct Script<'a>(pub &'a [u8]);

impl<'a> Iterator for Script<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        let [choice, kind, len, rest @ ..] = self.0 else { return None };
        let (body, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        self.0 = rest;
        Some(match choice % 4 {
            0 => Step::Raw(body),
            1 | 2 => Step::Frame { kind: *kind, body },
            _ => Step::Message { kind: *kind, body },
        })
    }
}
