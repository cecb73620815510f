//! A value that several hold and few change: copies share it, and who changes
//! his has one of his own from then on.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct OnWrite<T>(Rc<T>);

impl<T> From<T> for OnWrite<T> {
    fn from(value: T) -> OnWrite<T> {
        OnWrite(Rc::new(value))
    }
}

impl<T> Deref for OnWrite<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for OnWrite<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}
