/// Names the caller that submits a job.
///
/// Called on the submitting task, so a task-local security context is in reach. The default returns `None`.
pub trait CallerPrincipalResolver: Send + Sync + 'static {
    /// The caller's name.
    ///
    /// # Contract
    /// - `principal.context`: at most 255 bytes; `None` if there is no security context.
    fn caller_principal(&self) -> Option<String>;
}
