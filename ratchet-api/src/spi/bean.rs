use std::any::Any;
use std::sync::Arc;

use crate::TargetName;

/// The object that the methods of a target are called on.
pub type Bean = Arc<dyn Any + Send + Sync>;

/// Finds the object for a target.
///
/// The default reads the registry that was filled at start-up; an application with its own container can hand out
/// objects from there.
pub trait BeanResolver: Send + Sync + 'static {
    /// Returns the object for `target`; called for each attempt.
    ///
    /// # Contract
    /// - `bean.unknown`: a target that this node does not know answers `None`, and the job is handed back unchanged.
    /// - `bean.current`: the answer may change while the scheduler runs; attempts that have started keep their object.
    fn resolve(&self, target: &TargetName) -> Option<Bean>;
}
