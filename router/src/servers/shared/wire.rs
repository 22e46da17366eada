//! The commands that the shared homes are made of, spoken with a Valkey or Redis.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, cmd, pipe};

use super::fault::Fault;
use crate::config::Secret;

/// A Valkey or Redis.
pub(super) struct Server(Client);

/// One connection, which all clones share; gone with the last one.
#[derive(Clone)]
pub(super) struct Connection(MultiplexedConnection);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection(..)")
    }
}

impl Server {
    /// Does not connect.
    pub(super) fn new(url: &Secret) -> Result<Self, Fault> {
        Client::open(url.expose()).map(Self).map_err(|_| Fault::BadUrl)
    }

    pub(super) async fn connect(&self) -> Result<Connection, Fault> {
        // Every caller has a time limit of its own.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = self.0.get_multiplexed_async_connection_with_config(&config).await;
        connection.map(Connection).map_err(|error| match fault(&error) {
            Fault::Broken => Fault::Unreachable,
            other => other,
        })
    }
}

impl Connection {
    /// A value, which is kept for another `ttl`.
    pub(super) async fn get(&mut self, name: &str, ttl: Duration) -> Result<Option<String>, Fault> {
        self.ask(cmd("GETEX").arg(name).arg("PX").arg(millis(ttl))).await
    }

    /// Sets a value if there is none; otherwise says what there is, and leaves it.
    pub(super) async fn claim(
        &mut self,
        name: &str,
        value: &str,
        ttl: Option<Duration>,
    ) -> Result<Option<String>, Fault> {
        let mut claim = cmd("SET");
        claim.arg(name).arg(value).arg("NX").arg("GET");
        if let Some(ttl) = ttl {
            claim.arg("PX").arg(millis(ttl));
        }
        self.ask(&claim).await
    }

    /// Sets a value, whatever there is.
    pub(super) async fn set(&mut self, name: &str, value: &str, ttl: Duration) -> Result<(), Fault> {
        self.ask(cmd("SET").arg(name).arg(value).arg("PX").arg(millis(ttl))).await
    }

    /// Sets `name` to `text`, with `me` in the set of `routers`; all of it goes after `expiry`.
    pub(super) async fn publish(
        &mut self,
        routers: &str,
        me: &str,
        name: &str,
        text: &str,
        expiry: Duration,
    ) -> Result<(), Fault> {
        let mut all = pipe();
        all.cmd("SET").arg(name).arg(text).arg("PX").arg(millis(expiry)).ignore();
        all.cmd("SADD").arg(routers).arg(me).ignore();
        all.cmd("PEXPIRE").arg(routers).arg(millis(expiry)).ignore();
        all.query_async(&mut self.0).await.map_err(|error| fault(&error))
    }

    /// What the routers other than `me` have published. Those whose words have gone are taken out of the set.
    pub(super) async fn others(
        &mut self,
        routers: &str,
        me: &str,
        name: impl Fn(&str) -> String,
    ) -> Result<Vec<String>, Fault> {
        let members: Vec<String> = self.ask(cmd("SMEMBERS").arg(routers)).await?;
        let others: Vec<String> = members.into_iter().filter(|router| router != me).collect();
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = others.iter().map(|router| name(router)).collect();
        let texts: Vec<Option<String>> = self.ask(cmd("MGET").arg(names)).await?;
        let gone = others.iter().zip(&texts).filter(|(_, text)| text.is_none());
        let gone: Vec<&String> = gone.map(|(router, _)| router).collect();
        if !gone.is_empty() {
            // One that only was slow puts itself back with its next words.
            let _: u64 = self.ask(cmd("SREM").arg(routers).arg(gone)).await?;
        }
        Ok(texts.into_iter().flatten().collect())
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Fault> {
        command.query_async(&mut self.0).await.map_err(|error| fault(&error))
    }
}

/// Expiries of 0 are errors.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2)
}

fn fault(error: &RedisError) -> Fault {
    match error.kind() {
        ErrorKind::Io => Fault::Broken,
        ErrorKind::AuthenticationFailed => Fault::Refused("WRONGPASS".to_owned()),
        ErrorKind::InvalidClientConfig => Fault::BadUrl,
        // `SET` had no `GET` beside `NX` before.
        _ if error.detail() == Some("syntax error") => Fault::TooOld,
        _ => Fault::Refused(code(error).unwrap_or("of no name").to_owned()),
    }
}

/// A code is a word in capitals; whatever else stands in its place is not for the log.
fn code(error: &RedisError) -> Option<&str> {
    error.code().filter(|code| code.len() <= 20 && code.bytes().all(|byte| byte.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_server_refuses_only_the_code_is_told() {
        for (answer, told) in [
            ("-OOM command not allowed when used memory > 'maxmemory'", "it answers with the error OOM"),
            ("-ERR max number of clients reached", "it answers with the error ERR"),
            (
                "-ERR unknown command 'AUTH', with args beginning with: 'hunter2'",
                "it answers with the error ERR",
            ),
            ("-hunter2 is no password", "it answers with the error of no name"),
            ("-ERR syntax error", "it is too old: Valkey, or Redis 7.0 or later, is needed"),
        ] {
            let answer = redis::parse_redis_value(format!("{answer}\r\n").as_bytes());
            let error = answer.and_then(redis::Value::extract_error).expect_err("an error");
            assert_eq!(fault(&error).to_string(), told);
        }
    }
}
