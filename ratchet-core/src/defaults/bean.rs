use std::collections::HashMap;
use std::fmt;

use ratchet_api::TargetName;
use ratchet_api::spi::{Bean, BeanResolver};

/// Objects by the name of their target, inserted before the scheduler starts.
///
/// ```
/// use ratchet_core::TargetName;
/// use ratchet_core::spi::BeanResolver;
/// use ratchet_core::defaults::Beans;
/// use std::sync::Arc;
///
/// let mailer = TargetName::new("mail.Mailer")?;
/// let mut beans = Beans::new();
/// beans.insert(mailer.clone(), Arc::new("smtp://relay"));
/// let bean = beans.resolve(&mailer).unwrap();
/// assert_eq!(bean.downcast_ref(), Some(&"smtp://relay"));
/// # Ok::<(), ratchet_core::InvalidName>(())
/// ```
#[derive(Clone, Default)]
pub struct Beans(HashMap<TargetName, Bean>);

impl Beans {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts `bean` for `target` and returns the one that it displaces, so that the caller can refuse a second one.
    pub fn insert(&mut self, target: TargetName, bean: Bean) -> Option<Bean> {
        self.0.insert(target, bean)
    }
}

impl BeanResolver for Beans {
    fn resolve(&self, target: &TargetName) -> Option<Bean> {
        self.0.get(target).cloned()
    }
}

impl fmt::Debug for Beans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn target(name: &str) -> TargetName {
        TargetName::new(name).unwrap()
    }

    // shows: S79
    #[test]
    fn a_target_resolves_to_its_own_object() {
        let mut beans = Beans::new();
        let (one, two) = (Arc::new(1), Arc::new("two"));
        assert!(beans.insert(target("a.One"), one.clone()).is_none());
        assert!(beans.insert(target("a.Two"), two).is_none());

        let found = beans.resolve(&target("a.One")).unwrap().downcast::<i32>().unwrap();
        assert!(Arc::ptr_eq(&found, &one));
        for unknown in ["a.one", "a.One2", "a", "A.One"] {
            assert!(beans.resolve(&target(unknown)).is_none());
        }
    }

    #[test]
    fn a_second_object_for_a_target_gives_the_first_back() {
        let mut beans = Beans::new();
        beans.insert(target("a.One"), Arc::new(1));
        let displaced = beans.insert(target("a.One"), Arc::new(2)).unwrap();
        assert_eq!(displaced.downcast_ref(), Some(&1));
    }
}
