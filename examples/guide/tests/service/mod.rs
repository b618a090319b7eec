//! Programs that serve requests until they are told to stop.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A program that runs until it is told to stop.
pub(crate) struct Service {
    pub(crate) process: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Service {
    pub(crate) fn start(program: &str, (variable, url): (&str, &str)) -> Self {
        let mut process = Command::new(program)
            .env(variable, url)
            .env("ADDRESS", "127.0.0.1:0")
            .env("POD_NAME", "pod-1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut service = Self { process, lines, address: String::new() };
        service.address = service.line().rsplit(' ').next().unwrap().to_owned();
        service
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends a request; returns the status line and the body of the response.
    pub(crate) fn ask(&self, request: &str, body: &str) -> (String, String) {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        let headers = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
        let length = body.len();
        write!(connection, "{request} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    pub(crate) fn signal(&self) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &process]).status().unwrap().success());
    }

    pub(crate) fn stop(&mut self) {
        self.signal();
        assert_eq!(self.line(), "stopped");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}
