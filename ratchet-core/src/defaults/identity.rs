use std::fs::File;
use std::io::Read;

use ratchet_api::spi::NodeIdentityProvider;
use ratchet_api::{InvalidName, NameProblem};

/// The name of this node: host name and process id, an environment variable, or a given text.
///
/// ```
/// use ratchet_core::spi::NodeIdentityProvider;
/// use ratchet_core::defaults::DefaultNodeIdentity;
///
/// let by_host = DefaultNodeIdentity::new();
/// assert!(by_host.node_id().ends_with(&format!("-{}", std::process::id())));
///
/// let pod = DefaultNodeIdentity::from_env("POD_NAME"); // by host where it is not set
/// # let _ = pod;
/// let fixed = DefaultNodeIdentity::fixed("billing-1")?;
/// assert_eq!(fixed.node_id(), "billing-1");
/// # Ok::<(), ratchet_core::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultNodeIdentity(String);

impl DefaultNodeIdentity {
    /// The most bytes a name can have.
    pub const MAX_LEN: usize = 255;

    /// Host name and process id, looked up once.
    pub fn new() -> Self {
        let host = host_name(kernel_host_name, |variable| std::env::var(variable).ok());
        Self(format!("{host}-{}", std::process::id()))
    }

    /// The value of an environment variable, such as a pod name; host name and process id if it is not set or not
    /// valid.
    pub fn from_env(variable: &str) -> Self {
        match std::env::var(variable).map(Self::fixed) {
            Ok(Ok(identity)) => identity,
            Ok(Err(problem)) => {
                tracing::warn!(
                    variable,
                    %problem,
                    "environment variable is no valid node name; naming this node by its host instead"
                );
                Self::new()
            }
            Err(_) => {
                tracing::warn!(
                    variable,
                    "environment variable is not set; naming this node by its host instead"
                );
                Self::new()
            }
        }
    }

    /// The given name.
    ///
    /// # Errors
    /// If it is empty, too long, or has control characters.
    pub fn fixed(name: impl Into<String>) -> Result<Self, InvalidName> {
        let name = name.into();
        let problem = if name.is_empty() {
            NameProblem::Empty
        } else if name.len() > Self::MAX_LEN {
            NameProblem::TooLong { len: name.len(), max: Self::MAX_LEN }
        } else if let Some(control) = name.chars().find(|c| c.is_control()) {
            NameProblem::Control(u32::from(control))
        } else {
            return Ok(Self(name));
        };
        Err(InvalidName { what: "node id", problem })
    }
}

impl Default for DefaultNodeIdentity {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeIdentityProvider for DefaultNodeIdentity {
    fn node_id(&self) -> String {
        self.0.clone()
    }
}

/// The host name from the first source with a usable one; else a random one, so that two nodes still differ.
///
/// No name service is asked, so the answer comes at once.
fn host_name(kernel: impl FnOnce() -> Option<String>, variable: impl Fn(&str) -> Option<String>) -> String {
    let usable = |name: String| {
        let name = name.trim();
        let fits = !name.is_empty() && name.len() <= 200 && !name.contains(char::is_control);
        fits.then(|| name.to_owned())
    };
    kernel()
        .and_then(usable)
        .or_else(|| variable("HOSTNAME").and_then(usable))
        .or_else(|| variable("COMPUTERNAME").and_then(usable))
        .unwrap_or_else(|| format!("node-{:08x}", rand::random::<u32>()))
}

fn kernel_host_name() -> Option<String> {
    let mut name = String::new();
    File::open("/proc/sys/kernel/hostname").ok()?.take(256).read_to_string(&mut name).ok()?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use ratchet_api::Owner;

    use super::*;

    // shows: S129
    #[test]
    fn by_default_it_is_host_name_and_process_id() {
        let (first, second) =
            (DefaultNodeIdentity::new().node_id(), DefaultNodeIdentity::default().node_id());
        assert_eq!(first, second);
        let host = first.strip_suffix(&format!("-{}", std::process::id())).unwrap();
        assert!(!host.is_empty());
    }

    // shows: S129
    #[test]
    fn the_kernel_is_asked_before_the_environment() {
        let env = |set: &'static str| move |variable: &str| (variable == set).then(|| format!("by-{set}"));
        let kernel = |name: &str| {
            let name = name.to_owned();
            move || Some(name)
        };
        assert_eq!(host_name(kernel("web-1\n"), env("HOSTNAME")), "web-1");
        for unusable in ["", "\n", "a\0b", &"x".repeat(201)] {
            assert_eq!(host_name(kernel(unusable), env("HOSTNAME")), "by-HOSTNAME");
        }
        assert_eq!(host_name(|| None, env("COMPUTERNAME")), "by-COMPUTERNAME");
    }

    #[test]
    fn nodes_without_a_host_name_still_differ() {
        let nameless = || host_name(|| None, |_| None);
        assert!(nameless().starts_with("node-"));
        assert_ne!(nameless(), nameless());
    }

    // shows: S131
    #[test]
    fn it_can_come_from_an_environment_variable() {
        // Cargo sets it for tests; setting one here would race with other threads.
        assert_eq!(DefaultNodeIdentity::from_env("CARGO_PKG_NAME").node_id(), "ratchet-core");
        let unset = DefaultNodeIdentity::from_env("RATCHET_NO_SUCH_VARIABLE");
        assert_eq!(unset, DefaultNodeIdentity::new());
    }

    // shows: S130 S131
    #[test]
    fn it_can_be_any_name_and_its_owner_fits_into_64_bytes() {
        let identity = DefaultNodeIdentity::fixed("pod-".repeat(60)).unwrap();
        assert_eq!(identity.node_id(), "pod-".repeat(60));
        assert_eq!(Owner::incarnate(&identity.node_id()).as_str().len(), Owner::MAX_LEN);
        for (name, problem) in [
            ("", "node id is empty"),
            (&*"x".repeat(256), "node id has 256 bytes, at most 255 are kept"),
            ("a\nb", "node id contains the control character U+000A"),
        ] {
            assert_eq!(DefaultNodeIdentity::fixed(name).unwrap_err().to_string(), problem);
        }
    }
}
