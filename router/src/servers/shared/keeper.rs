//! The task that connects to the shared homes, connects again when they were away, and writes notes in their order.

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

/// What has become of a conversation.
#[derive(Debug)]
pub(super) struct Note {
    /// The name under which its home is kept.
    pub(super) name: String,
    /// Its new home; `None`: it is where it was.
    pub(super) home: Option<Arc<str>>,
    /// For how long it lives there from now on.
    pub(super) ttl: Duration,
}

/// Ends with the last handle, which holds the other end of `notes`. `own` is a name that only this router writes to.
pub(super) async fn keep(link: Arc<Link>, url: Secret, own: String, mut notes: Receiver<Note>) {
    let server = match Server::new(&url) {
        Ok(server) => server,
        Err(fault) => return link.stayed_away(&fault),
    };
    loop {
        match timeout(UNHURRIED, connect(&server, &own)).await.unwrap_or(Err(Fault::Late)) {
            Ok(connection) => {
                link.came(connection);
                serve(&link, &mut notes).await;
            }
            Err(fault) => link.stayed_away(&fault),
        }
        if !pause(&mut notes).await {
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

/// Writes notes until the connection is lost or the last handle is gone.
async fn serve(link: &Link, notes: &mut Receiver<Note>) {
    loop {
        tokio::select! {
            () = link.lost() => return,
            next = notes.recv() => {
                let Some(Note { name, home, ttl }) = next else { return };
                let write = |mut wire: Connection| async move {
                    match home {
                        Some(home) => wire.set(&name, &home, ttl).await,
                        None => wire.get(&name, ttl).await.map(drop),
                    }
                };
                link.ask(UNHURRIED, write).await;
            }
        }
    }
}

/// Lets a moment pass. Notes meanwhile are not shared: on its return the shared home is the one that counts. Says
/// whether there is still a handle.
async fn pause(notes: &mut Receiver<Note>) -> bool {
    let drop_notes = async { while notes.recv().await.is_some() {} };
    tokio::select! {
        () = sleep(PAUSE) => true,
        () = drop_notes => false,
    }
}
