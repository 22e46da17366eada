//! The task that connects to the shared homes, connects again when they were away, and writes moves in their order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};

use super::fault::Fault;
use super::link::Link;
use super::wire::{Connection, Server};
use super::{LOAD_EXPIRY, UNHURRIED};
use crate::config::Secret;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// A conversation has moved.
#[derive(Debug)]
pub(super) struct Move {
    /// The name under which its home is kept.
    pub(super) name: String,
    /// Its new home.
    pub(super) home: Arc<str>,
    /// For how long.
    pub(super) ttl: Duration,
}

/// Ends with the last handle, which holds the other end of `moves`. `own` is a name that only this router writes to.
pub(super) async fn keep(link: Arc<Link>, url: Secret, own: String, mut moves: Receiver<Move>) {
    let server = match Server::new(&url) {
        Ok(server) => server,
        Err(fault) => return link.stayed_away(&fault),
    };
    loop {
        match timeout(UNHURRIED, connect(&server, &own)).await.unwrap_or(Err(Fault::Late)) {
            Ok(connection) => {
                link.came(connection);
                serve(&link, &mut moves).await;
            }
            Err(fault) => link.stayed_away(&fault),
        }
        if !pause(&mut moves).await {
            return;
        }
    }
}

/// A connection counts once a command has worked that is as much as any request asks for. Otherwise a server that
/// refuses them would seem to come and go.
async fn connect(server: &Server, own: &str) -> Result<Connection, Fault> {
    let mut connection = server.connect().await?;
    connection.claim(own, "", Some(LOAD_EXPIRY)).await?;
    Ok(connection)
}

/// Writes moves until the connection is lost or the last handle is gone.
async fn serve(link: &Link, moves: &mut Receiver<Move>) {
    loop {
        tokio::select! {
            () = link.lost() => return,
            next = moves.recv() => {
                let Some(Move { name, home, ttl }) = next else { return };
                link.ask(UNHURRIED, |mut wire| async move { wire.set(&name, &home, ttl).await }).await;
            }
        }
    }
}

/// Lets a moment pass. Moves meanwhile are not shared: on its return the shared home is the one that counts. Says
/// whether there is still a handle.
async fn pause(moves: &mut Receiver<Move>) -> bool {
    let drop_moves = async { while moves.recv().await.is_some() {} };
    tokio::select! {
        () = sleep(PAUSE) => true,
        () = drop_moves => false,
    }
}
