//! Pi in rpc mode: one process, commands and events as JSON lines.
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::pi::Pi;

/// A running Pi. Dropping it kills it.
pub(crate) struct Rpc {
    _child: Child,
    stdin: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
    settled: &'static str,
}

impl Rpc {
    pub(crate) fn start(pi: &Pi, provider: &str, arguments: &[&str]) -> Self {
        let mut command: Command = pi.talk(provider, &["--mode", "rpc"]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take().expect("stdin should be a pipe");
        let stdout = child.stdout.take().expect("stdout should be a pipe");
        Self { _child: child, stdin, events: BufReader::new(stdout).lines(), settled: pi.version.settled }
    }

    /// Asks something and waits for the end of the turn.
    pub(crate) async fn prompt(&mut self, message: &str) {
        self.send(json!({"type": "prompt", "message": message})).await;
        let settled = self.settled;
        self.event(|event| event["type"] == settled).await;
    }

    /// Gives a command and waits for its answer.
    pub(crate) async fn command(&mut self, name: &str) -> Value {
        self.send(json!({"type": name})).await;
        let answer = self.event(|event| event["type"] == "response" && event["command"] == name).await;
        assert_eq!(answer["success"], true, "{name}: {answer}");
        answer["data"].clone()
    }

    async fn send(&mut self, command: Value) {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.expect("Pi should read its commands");
    }

    async fn event(&mut self, check: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Vec::new();
        while let Some(line) = self.events.next_line().await.expect("Pi's events should be text") {
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if check(&event) {
                return event;
            }
            // Later events repeat all that was said before.
            seen.push(line.chars().take(200).collect::<String>());
        }
        panic!("Pi has ended; it said:\n{}", seen.join("\n"));
    }
}
