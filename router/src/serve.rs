//! Runs the router: the accept loop, the shutdown and its drain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::config::Config;
use crate::dispatch::AllSaved;
use crate::proxy::{self, App};
use crate::servers::Servers;
use crate::store::{Store, StoreError};

/// For those who are told no at the end of the drain: long enough to read the answer.
const LAST_WORD: Duration = Duration::from_secs(1);
/// For saving what the slots hold at the end.
const SAVE_ALL: Duration = Duration::from_secs(30);
const STORE_CLOSE: Duration = Duration::from_secs(10);
/// A client that has begun a request has this long to send its headers.
const HEADER_READ: Duration = Duration::from_secs(60);

/// Why the router can't start or go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// The database can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The upstream address or key can't be written into a request.
    #[error("the upstream address or key can't be used in a request: {0}")]
    Upstream(#[from] http::Error),
    /// A task that asks `/slots`, or how servers are, has ended by a fault of the program.
    #[error("the slots can't be watched any more, which is a fault of this program: start it again")]
    Watch,
}

/// Serves until `shutdown` ends, then drains: no new connections, running answers go on for at most
/// [`Config::drain`], the store is written out.
///
/// # Errors
/// Before the first connection is accepted; later only [`RunError::Watch`].
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let opened = Store::open(&config.database(), config.event_days)?;
    let (store, chain_key) = (opened.store.clone(), opened.chain_key);
    let servers = Servers::build(&config, opened)?;
    let mut watch = servers.watch();
    let drain = config.drain;
    let app = App {
        config,
        servers: Arc::clone(&servers),
        store: store.clone(),
        chain_key,
        started: Instant::now(),
    };
    if let Ok(address) = listener.local_addr() {
        let users: Vec<_> = app.config.api_keys.iter().filter_map(|key| key.user.as_deref()).collect();
        let users = (!users.is_empty()).then(|| users.join(" "));
        info!(address = %address, upstream = servers.addresses(), users, "listening");
    }
    let shutdown = async {
        tokio::select! {
            () = shutdown => Ok(()),
            // Nothing would ever be granted again.
            _ = watch.join_next() => Err(RunError::Watch),
        }
    };
    let (connections, outcome) = accept_until(&listener, app, shutdown).await;
    drop(listener);
    connections.drain(drain, &servers).await;
    if outcome.is_ok() {
        save_sessions(&servers).await;
    }
    watch.abort_all();
    close(servers.stores(store)).await;
    outcome
}

/// Open connections.
struct Connections {
    tasks: JoinSet<()>,
    graceful: GracefulShutdown,
}

async fn accept_until<T>(
    listener: &TcpListener,
    app: App,
    shutdown: impl Future<Output = T>,
) -> (Connections, T) {
    let routes = proxy::routes(Arc::new(app));
    let mut connections = Connections { tasks: JoinSet::new(), graceful: GracefulShutdown::new() };
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => connections.serve(socket, routes.clone()),
                Err(error) => {
                    // Out of file descriptors, most likely: what is open must go on, and some will close.
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.tasks.join_next() => {}
            outcome = &mut shutdown => return (connections, outcome),
        }
    }
}

impl Connections {
    fn serve(&mut self, socket: TcpStream, routes: axum::Router) {
        // Without it the kernel would hold back small SSE events.
        if let Err(error) = socket.set_nodelay(true) {
            warn!(%error, "TCP_NODELAY could not be set");
        }
        let mut http = auto::Builder::new(TokioExecutor::new()).http1_only();
        http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_READ);
        let service = TowerToHyperService::new(routes);
        let connection = http.serve_connection_with_upgrades(TokioIo::new(socket), service).into_owned();
        let connection = self.graceful.watch(connection);
        self.tasks.spawn(async move {
            // An error here is a client's: it has left, or sent something that hyper has answered with 400.
            if let Err(error) = connection.await
                && error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)
            {
                info!(reason = %error, "a request was refused: it is no valid HTTP");
            }
        });
    }

    async fn drain(mut self, limit: Duration, servers: &Arc<Servers>) {
        info!(
            connections = self.tasks.len(),
            limit_s = limit.as_secs(),
            "stopping: no new connections, running answers go on"
        );
        let mut closed = std::pin::pin!(self.graceful.shutdown());
        if tokio::time::timeout(limit, &mut closed).await.is_err() {
            servers.stop();
            if tokio::time::timeout(LAST_WORD, &mut closed).await.is_err() {
                warn!(
                    connections = self.tasks.len(),
                    "the drain time is over: the answers still running are cut"
                );
            }
        }
        self.tasks.shutdown().await;
    }
}

/// What the sessions left in their slots, for the next start. The slots are still watched meanwhile.
async fn save_sessions(servers: &Servers) {
    let AllSaved { saved, complete } = servers.save_all(SAVE_ALL).await;
    if saved > 0 {
        info!(saved, "the sessions' slots were saved");
    }
    if !complete {
        warn!(
            limit_s = SAVE_ALL.as_secs(),
            "some slots could not be saved in time: their sessions begin cold"
        );
    }
}

async fn close(stores: Vec<Store>) {
    let mut closing = JoinSet::new();
    for store in stores {
        closing.spawn_blocking(move || store.close(STORE_CLOSE));
    }
    let mut closed = true;
    while let Some(one) = closing.join_next().await {
        closed &= one.unwrap_or(false);
    }
    if !closed {
        warn!("the database could not be written out in time");
    }
    info!("stopped");
}
