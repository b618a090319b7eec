//! The program of a server that runs on this machine.

use std::{ffi::OsStr, fs, io, os::unix::ffi::OsStrExt, process::Command};

/// A command that runs the program of this process again, with the same libraries and without arguments. For tests that
/// need a server of their own, to kill it or to run it with other options.
///
/// # Errors
/// There is no such process on this machine, or it belongs to another user.
pub fn program_of(pid: u32) -> io::Result<Command> {
    let mut command = Command::new(fs::read_link(format!("/proc/{pid}/exe"))?);
    let environment = fs::read(format!("/proc/{pid}/environ"))?;
    let libraries = |variable: &[u8]| variable.strip_prefix(b"LD_LIBRARY_PATH=").map(<[u8]>::to_vec);
    if let Some(libraries) = environment.split(|byte| *byte == 0).find_map(libraries) {
        command.env("LD_LIBRARY_PATH", OsStr::from_bytes(&libraries));
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_process_is_found_by_its_number() {
        let command = program_of(std::process::id()).unwrap();
        assert_eq!(Some(command.get_program()), std::env::current_exe().ok().as_deref().map(AsRef::as_ref));
        assert!(program_of(u32::MAX).is_err());
    }
}
