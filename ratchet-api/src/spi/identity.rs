/// Names this node. Incubating.
///
/// The name is a label for people: ownership rests on a random incarnation that the engine adds at each start, so a
/// restart under the same name is still a new owner. The default is host name and process id.
///
/// ```
/// use ratchet_api::spi::NodeIdentityProvider;
///
/// struct PodName(String);
///
/// impl NodeIdentityProvider for PodName {
///     fn node_id(&self) -> String {
///         self.0.clone()
///     }
/// }
/// ```
pub trait NodeIdentityProvider: Send + Sync + 'static {
    /// The name of this node. [`Owner`](crate::Owner) contains as much of it as fits; the node row has all of it.
    ///
    /// # Contract
    /// - `identity.stable`: not empty, and the same for the life of the process.
    /// - `identity.unique`: different on every node of a cluster.
    fn node_id(&self) -> String;
}
