/// Provides the distributed trace that a submission belongs to.
///
/// Called on the submitting task, so the present span of your tracer is in reach. The default returns `None`. A closure
/// will do:
///
/// ```
/// use ratchet_api::spi::TraceParentResolver;
///
/// let resolver = || Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
/// assert!(resolver.trace_parent().is_some());
/// ```
pub trait TraceParentResolver: Send + Sync + 'static {
    /// The present span, as the W3C header `traceparent` writes it.
    ///
    /// # Contract
    /// - `trace.parent`: `None` outside of a trace; a text that is no `traceparent` counts as `None`.
    fn trace_parent(&self) -> Option<String>;
}

impl<F: Fn() -> Option<String> + Send + Sync + 'static> TraceParentResolver for F {
    fn trace_parent(&self) -> Option<String> {
        self()
    }
}
