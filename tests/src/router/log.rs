//! A child's output, read by a thread, line by line, with a signal at each line.
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

/// No test waits longer than this for a line.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Output {
    lines: Vec<String>,
    ended: bool,
}

/// The lines so far.
#[derive(Debug)]
pub(crate) struct Lines {
    output: watch::Receiver<Output>,
}

impl Lines {
    /// Reads a pipe on a thread of its own until it ends.
    pub(crate) fn read(pipe: impl Read + Send + 'static) -> Self {
        let (told, output) = watch::channel(Output::default());
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                told.send_modify(|output| output.lines.push(line));
            }
            told.send_modify(|output| output.ended = true);
        });
        Self { output }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.output.borrow().lines.clone()
    }

    pub(super) fn json(&self) -> Vec<Value> {
        json(&self.output.borrow().lines)
    }

    pub(crate) fn dump(&self) -> String {
        self.all().join("\n")
    }

    /// Waits until the lines are as wanted.
    pub(super) async fn wait(&self, what: &str, check: impl Fn(&[String]) -> bool) {
        let found = self.found(|output| check(&output.lines)).await;
        assert!(found, "no {what} in the log:\n{}", self.dump());
    }

    /// Waits for a JSON line.
    pub(super) async fn wait_json(&self, check: impl Fn(&Value) -> bool) -> Value {
        let first = |lines: &[String]| json(lines).into_iter().find(|line| check(line));
        self.wait("such line", |lines| first(lines).is_some()).await;
        first(&self.all()).expect("lines never go away")
    }

    /// Waits for either a line that gives a value or the end of the output.
    pub(crate) async fn first<R>(&self, pick: impl Fn(&str) -> Option<R>) -> Option<R> {
        let first = |lines: &[String]| lines.iter().find_map(|line| pick(line));
        self.found(|output| output.ended || first(&output.lines).is_some()).await;
        first(&self.all())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.output.borrow().ended
    }

    /// Waits for the end of the output.
    pub(super) async fn ended(&self) {
        // If a grandchild keeps the pipe open, that must not hang the test.
        self.found(|output| output.ended).await;
    }

    async fn found(&self, check: impl Fn(&Output) -> bool) -> bool {
        let mut output = self.output.clone();
        let found = output.wait_for(|output| check(output));
        // The reading thread may have gone with its last word unsaid only after `ended`.
        matches!(tokio::time::timeout(PATIENCE, found).await, Ok(Ok(_)))
    }
}

fn json(lines: &[String]) -> Vec<Value> {
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The lines about requests.
pub(super) fn requests(lines: &[String]) -> Vec<Value> {
    json(lines).into_iter().filter(|line| line["message"] == "request").collect()
}
