//! The other members of a replica set: processes beside the first one, each with a directory of its own in that of the
//! server. Their data is a copy, so it is made anew with every start.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{
    cache::{Cache, Record, remove_directory},
    launch::{START_LIMIT, check_child, free_port, ready_within},
    probe::check_port,
    progress::Progress,
    recipes::{Directories, Installation, Settings, mongodb::url_of_set, recipe},
};
use crate::{Server, process_id::ProcessId, record::Endpoint};

/// The signal that ends members. A regular shutdown takes each member 15 s, and their journals make up for a kill.
pub(super) const STOP_SIGNAL: &str = "KILL";

/// A running member besides the first.
#[derive(Debug)]
pub(super) struct Member {
    directory: PathBuf,
    record: Record,
    process: ProcessId,
}

/// The other members that are running.
pub(super) fn others(server_directory: &Path) -> Result<Vec<Member>> {
    let mut others = Vec::new();
    for entry in fs::read_dir(server_directory)? {
        let directory = entry?.path();
        let is_member =
            directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with("member-"));
        if is_member
            && let Some(record) = Record::read(&directory)?
            && let Some(process) = record.endpoint.live_process().cloned()
        {
            others.push(Member { directory, record, process });
        }
    }
    Ok(others)
}

impl Member {
    pub(super) fn stop(mut self) -> Result<()> {
        self.process.stop(STOP_SIGNAL)?;
        self.record.endpoint.process = None;
        self.record.write(&self.directory)
    }
}

/// The number of members of the set at this URL.
pub(super) fn members_of(url: &str) -> usize {
    let hosts = url.split_once("://").map_or(url, |(_, rest)| rest);
    hosts.split('/').next().unwrap_or_default().split(',').count()
}

/// Starts members until the set has as many as wanted, and waits until each has the data of the first. Returns the
/// URL of the whole set.
pub(super) fn grow(
    cache: &Cache,
    installation: &Installation,
    first: &Record,
    members: usize,
    progress: &Progress,
) -> Result<String> {
    let server_directory = cache.server_directory(Server::Mongodb)?;
    let mut ports = vec![first.port];
    for number in 2..=members {
        let directory = server_directory.join(format!("member-{number}"));
        ports.push(progress.step(format!("starting member {number} of {members}"), || {
            start(cache, installation, &directory, first.durable)
        })?);
    }
    let url = url_of_set(&ports);
    let settings = Settings { port: first.port, durable: first.durable };
    progress.step("waiting until every member has the data", || {
        ready_within(START_LIMIT, recipe(Server::Mongodb), &url, settings, || Ok(()))
    })?;
    let mut record = first.clone();
    record.endpoint.url.clone_from(&url);
    record.write(&server_directory)?;
    Ok(url)
}

/// Starts an empty server to be added to a set, and returns its port.
fn start(cache: &Cache, installation: &Installation, directory: &Path, durable: bool) -> Result<u16> {
    remove_directory(directory)?;
    let directories = Directories {
        data: directory.join("data"),
        temporary: directory.join("tmp"),
        log: directory.join("server.log"),
    };
    fs::create_dir_all(&directories.data)?;
    fs::create_dir_all(&directories.temporary)?;
    let (port, _port_lock) = free_port(cache, None)?;
    let command =
        recipe(Server::Mongodb).command_line(installation, &directories, &Settings { port, durable });
    let mut child = command.detach(&directories.log)?;
    let endpoint = Endpoint { process: ProcessId::of(child.id()), url: url_of_set(&[port]) };
    Record { endpoint, port, durable, upstream: None }.write(directory)?;
    loop {
        check_child(&mut child)?;
        match check_port(port) {
            Ok(()) => return Ok(port),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_every_member() {
        for members in [&[1][..], &[1, 2, 3]] {
            assert_eq!(members_of(&url_of_set(members)), members.len());
        }
    }

    #[test]
    fn only_members_that_run_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let me = ProcessId::of(std::process::id()).unwrap();
        for (name, process) in [
            ("member-2", Some(me.clone())),
            ("member-3", Some(me.impostor())),
            ("tmp", Some(me)),
            ("member-4", None),
        ] {
            let folder = directory.path().join(name);
            fs::create_dir(&folder).unwrap();
            let endpoint = Endpoint { process, url: url_of_set(&[1]) };
            Record { endpoint, port: 1, durable: false, upstream: None }.write(&folder).unwrap();
        }
        let found = others(directory.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].directory.ends_with("member-2"));
    }
}
