//! A queue of work shared by threads.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The items that are still waiting, in order.
pub(crate) struct Queue<T>(Mutex<VecDeque<T>>);

impl<T> Queue<T> {
    pub(crate) fn new(work: impl Into<VecDeque<T>>) -> Self {
        Self(Mutex::new(work.into()))
    }

    pub(crate) fn next(&self) -> Option<T> {
        self.lock().pop_front()
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
