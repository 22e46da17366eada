//! Starts what is measured: llama-server (a fake or a real one), nginx, the router and hearth, each on a free port, each
//! ended on drop; and whatever else listens where it is told to.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The router.
    pub router: PathBuf,
    /// The fake llama-server.
    pub fake: PathBuf,
    /// nginx; a bare name is looked up in PATH.
    pub nginx: PathBuf,
    /// nginx's worker processes.
    pub nginx_workers: usize,
}

impl Programs {
    /// The router and the fake, where they are given or else beside the running program; no nginx.
    pub fn without_nginx(router: Option<&Path>, fake: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            router: beside(router, ROUTER)?,
            fake: beside(fake, "fake-llama-server")?,
            nginx: PathBuf::new(),
            nginx_workers: 0,
        })
    }
}

/// The router's program.
pub const ROUTER: &str = "session-slot-router";

/// The program `name` where it is given, or else beside the running one.
pub fn beside(given: Option<&Path>, name: &str) -> io::Result<PathBuf> {
    let here = || Ok(std::env::current_exe()?.parent().map(Path::to_path_buf).unwrap_or_default());
    given.map_or_else(|| here().map(|here| here.join(name)), |given| Ok(given.to_path_buf()))
}

/// A running program.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Peer {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without a warning, as a crash does.
    pub fn crash(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A crashed one's number may be somebody else's by now.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Asked first: nginx's master must end its workers itself, a killed one leaves them behind.
        let _ = Command::new("kill").arg(self.pid().to_string()).status();
        drop(self.child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the fake llama-server with `slots` slots and any further flags.
pub fn fake(programs: &Programs, slots: usize, flags: &[&str]) -> io::Result<Peer> {
    let mut command = Command::new(&programs.fake);
    command.args(["--listen", "127.0.0.1:0", "--slots", &slots.to_string(), "--fast"]).args(flags);
    announced(command)
}

/// Starts a real llama-server with `launcher`, a script for `python` that takes llama-server's flags; its log goes to
/// `folder`.
pub fn llama(python: &Path, launcher: &Path, flags: &[String], folder: &Path) -> io::Result<Peer> {
    let log = File::options().create(true).append(true).open(folder.join("llama.log"))?;
    let mut command = Command::new(python);
    command.arg(launcher).args(flags).stderr(log);
    announced(command)
}

/// Starts a server that prints `listening on http://ADDRESS` when it is ready.
fn announced(mut command: Command) -> io::Result<Peer> {
    let program = PathBuf::from(command.get_program());
    let mut child = command
        // It ends when this pipe closes, so that it can't outlive this process.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| not_started(&program, &error))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
    match address {
        Some(address) => Ok(Peer { child, address }),
        None => {
            let _ = child.kill();
            let _ = child.wait();
            Err(io::Error::other(format!("{} did not say where it listens", program.display())))
        }
    }
}

/// Nobody is refused: what is measured is how those are held who wait.
const ROOMY: &str = "[queue]\nmax_waiting = 100000\nmax_per_session = 100000\n";

/// Starts the router in front of `upstream`; its log and database go to `folder`.
pub fn router(programs: &Programs, upstream: SocketAddr, folder: &Path) -> io::Result<Peer> {
    router_with(&programs.router, upstream, folder, ROOMY)
}

/// Starts the router with this configuration file's text.
pub fn router_with(program: &Path, upstream: SocketAddr, folder: &Path, config: &str) -> io::Result<Peer> {
    let mut command = Command::new(program);
    command.args(["--upstream", &format!("http://{upstream}")]);
    configured(command, folder, config)
}

/// Starts the router with this configuration file's text, which names the servers.
pub fn router_over(program: &Path, folder: &Path, config: &str) -> io::Result<Peer> {
    configured(Command::new(program), folder, config)
}

fn configured(mut command: Command, folder: &Path, config: &str) -> io::Result<Peer> {
    let address = free_address()?;
    let file = folder.join("router.toml");
    std::fs::write(&file, config)?;
    command.args(["--listen", &address.to_string()]).arg("--state-dir").arg(folder).arg("--config").arg(file);
    start(command, address, folder, "router.log")
}

/// Starts hearth in front of `upstream`, whose one slot it drives; `states` is the server's save path.
pub fn hearth(program: &Path, upstream: SocketAddr, states: &Path, folder: &Path) -> io::Result<Peer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--upstream", &format!("http://{upstream}"), "--port", &address.port().to_string()])
        .arg("--cache-dir")
        .arg(states);
    start(command, address, folder, "hearth.log")
}

/// Starts nginx in front of `upstream`, configured as one would for streams: nothing buffered, connections kept. It
/// logs every request, as the router does.
pub fn nginx(programs: &Programs, upstream: SocketAddr, folder: &Path) -> io::Result<Peer> {
    let upstream = format!("server {upstream}; keepalive 64; keepalive_requests 100000000;");
    nginx_over(&programs.nginx, programs.nginx_workers, &upstream, folder)
}

/// Starts nginx so with these directives in its upstream block.
pub fn nginx_over(program: &Path, workers: usize, upstream: &str, folder: &Path) -> io::Result<Peer> {
    let address = free_address()?;
    let config = folder.join("nginx.conf");
    std::fs::write(&config, nginx_config(address, upstream, folder, workers))?;
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c").arg(&config).arg("-e").arg(folder.join("nginx-error.log"));
    start(command, address, folder, "nginx.log")
}

fn nginx_config(listen: SocketAddr, upstream: &str, folder: &Path, workers: usize) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log {folder}/nginx-access.log;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    client_max_body_size 0;
    keepalive_requests 100000000;
    upstream server {{ {upstream} }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
            proxy_request_buffering off;
        }}
    }}
}}
"
    )
}

fn start(command: Command, address: SocketAddr, folder: &Path, log: &str) -> io::Result<Peer> {
    start_within(Duration::from_secs(20), command, address, folder, log)
}

/// Starts a program that will listen at `address`, which is found out by trying; its output goes to `log` in `folder`.
pub fn start_within(
    patience: Duration,
    mut command: Command,
    address: SocketAddr,
    folder: &Path,
    log: &str,
) -> io::Result<Peer> {
    let path = folder.join(log);
    let output = File::create(&path)?;
    let program = PathBuf::from(command.get_program());
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .map_err(|error| not_started(&program, &error))?;
    let mut peer = Peer { child, address };
    let deadline = Instant::now() + patience;
    while TcpStream::connect(address).is_err() {
        if peer.child.try_wait()?.is_some() || Instant::now() > deadline {
            let said = std::fs::read_to_string(&path).unwrap_or_default();
            return Err(io::Error::other(format!("{} did not start: {}", program.display(), said.trim())));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(peer)
}

fn not_started(program: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't start {}: {error}", program.display()))
}

/// A port that nothing listens on now.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
