//! In the place of the commands where this program is built without the feature `shared`: there is never a connection.

use std::time::Duration;

use super::fault::Fault;
use crate::config::Secret;

/// There is none.
pub(super) enum Server {}

/// There is none.
#[derive(Debug, Clone)]
pub(super) enum Connection {}

impl Server {
    pub(super) fn new(_: &Secret) -> Result<Self, Fault> {
        Err(Fault::NotBuilt)
    }

    pub(super) async fn connect(&self) -> Result<Connection, Fault> {
        match *self {}
    }
}

impl Connection {
    pub(super) async fn get(&mut self, _: &str, _: Duration) -> Result<Option<String>, Fault> {
        match *self {}
    }

    pub(super) async fn claim(
        &mut self,
        _: &str,
        _: &str,
        _: Option<Duration>,
    ) -> Result<Option<String>, Fault> {
        match *self {}
    }

    pub(super) async fn set(&mut self, _: &str, _: &str, _: Duration) -> Result<(), Fault> {
        match *self {}
    }

    pub(super) async fn publish(
        &mut self,
        _: &str,
        _: &str,
        _: &str,
        _: &str,
        _: Duration,
    ) -> Result<(), Fault> {
        match *self {}
    }

    pub(super) async fn others(
        &mut self,
        _: &str,
        _: &str,
        _: impl Fn(&str) -> String,
    ) -> Result<Vec<String>, Fault> {
        match *self {}
    }
}
