//! What a broken server does to the requests that take a slot, and how a connection is cut.
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use http::StatusCode;
use http_body_util::{BodyExt, StreamBody};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;

use super::failure::Failure;
use super::reply::{Reply, failed, typed};
use super::state::Shared;

/// How a server is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// The connection is reset instead of an answer.
    ResetBeforeHead,
    /// The head of an event stream comes, then the connection is reset.
    ResetAfterHead,
    /// An error of this status, which is no full memory.
    Answers(StatusCode),
    /// Its memory is full for whoever comes.
    Full,
    /// Its page about models is answered with an error; all else is well.
    TellsNoModels,
    /// It takes connections and requests, of whatever route, and says nothing.
    Hangs,
}

impl Breakage {
    /// What becomes of a request that takes a slot; `None`: it is served.
    pub(super) async fn reply(self, cut: &Cut) -> Option<Reply> {
        match self {
            Self::Full | Self::Hangs | Self::TellsNoModels => None,
            Self::Answers(status) => Some(failed(&Failure::broken(status))),
            Self::ResetAfterHead => Some(cut.behind_a_head()),
            Self::ResetBeforeHead => {
                cut.now();
                std::future::pending().await
            }
        }
    }
}

/// Returns when the server does not hang.
pub(super) async fn until_it_answers(shared: &Shared) {
    shared.until(|state| state.breakage != Some(Breakage::Hangs)).await;
}

/// The end of one connection, for those who serve its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut(Arc<Notify>);

impl Cut {
    /// Resets the connection.
    fn now(&self) {
        self.0.notify_one();
    }

    /// Returns when it is to be reset.
    pub(super) async fn asked_for(&self) {
        self.0.notified().await;
    }

    fn behind_a_head(&self) -> Reply {
        let cut = self.clone();
        let frames = stream::once(async move {
            // The head goes out when there is nothing to follow it yet.
            tokio::task::yield_now().await;
            cut.now();
            std::future::pending().await
        });
        typed("text/event-stream", StreamBody::new(frames.boxed()).boxed_unsync())
    }
}

/// A second handle to a connection, with which it can be reset though somebody else reads and writes it.
pub(super) fn twin(stream: &TcpStream) -> Option<OwnedFd> {
    stream.as_fd().try_clone_to_owned().ok()
}

/// Once the connection is closed, the other side gets a reset and not an orderly end.
pub(super) fn reset_at_close(twin: OwnedFd) {
    let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(twin));
    // Without it the other side sees the end of a connection that is cut, which is nearly as good.
    let _ = socket.set_zero_linger();
}
