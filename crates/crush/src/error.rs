//! Why an edit of the map was refused.

use base::Errno;

/// An errno and the words for it: those of the `ceph` command where it has
/// some, else the C library's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct EditError {
    pub errno: Errno,
    pub text: String,
}

pub type EditResult<T> = Result<T, EditError>;

impl EditError {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> EditError {
        EditError { errno, text: text.into() }
    }
}

/// Where Ceph shows nothing but `(22) Invalid argument`.
impl From<Errno> for EditError {
    fn from(errno: Errno) -> EditError {
        EditError { errno, text: format!("({}) {}", errno.0, errno.text()) }
    }
}
