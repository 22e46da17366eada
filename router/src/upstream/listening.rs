//! The command line of the llama-server that listens at an address of this machine.

use std::net::IpAddr;

use super::Upstream;
use crate::aside::aside;
use crate::command_line::CommandLine;

impl Upstream {
    /// Its command line and those of its variables that llama-server reads, which alone say how its slots share their
    /// memory, and the types of its cache. `None` where it can't be seen.
    pub(crate) async fn command_line(&self) -> Option<CommandLine> {
        command_line(self.authority()).await
    }
}

/// The command line of the llama-server at `authority` (`host:port`). `None` if it is on another machine, in another
/// container, of another user, or another program, and on systems without `/proc`. Host names but `localhost` are not
/// looked up.
///
/// It goes through the processes of this machine on a thread of its own: milliseconds.
async fn command_line(authority: &str) -> Option<CommandLine> {
    let (ip, port) = address(authority)?;
    aside(move || own(ip).then(|| process::listening_at(ip, port))?).await
}

/// Where a connection to `authority` goes; the unspecified address means this machine.
fn address(authority: &str) -> Option<(IpAddr, u16)> {
    let (host, port) = authority.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.eq_ignore_ascii_case("localhost") { "127.0.0.1" } else { host };
    Some((host.parse::<IpAddr>().ok()?.to_canonical(), port.parse().ok()?))
}

/// Whether it is an address of this machine: no socket can be bound to another's. Nothing is sent.
fn own(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(target_os = "linux")]
mod process {
    use std::net::IpAddr;

    use procfs::net::{TcpNetEntry, TcpState};
    use procfs::process::{FDTarget, Process};

    use crate::command_line::{CommandLine, is_server};

    /// What of its environment a llama-server reads.
    const VARIABLES: &str = "LLAMA_ARG_";

    pub(super) fn listening_at(ip: IpAddr, port: u16) -> Option<CommandLine> {
        let sockets: Vec<u64> = tables()
            .filter(|socket| socket.state == TcpState::Listen && is_reached(socket, ip, port))
            .map(|socket| socket.inode)
            .collect();
        // Most of the time there is none, and no process has to be looked at.
        if sockets.is_empty() {
            return None;
        }
        procfs::process::all_processes().ok()?.flatten().find_map(|process| {
            // The cheaper question first, and no look into other programs.
            let args = process.cmdline().ok().filter(|args| is_server(args))?;
            holds(&process, &sockets).then(|| CommandLine::of(&args, variables(&process)))?
        })
    }

    fn tables() -> impl Iterator<Item = TcpNetEntry> {
        let tables = [procfs::net::tcp(), procfs::net::tcp6()];
        tables.into_iter().flatten().flatten()
    }

    fn is_reached(socket: &TcpNetEntry, ip: IpAddr, port: u16) -> bool {
        let at = socket.local_address;
        let address = at.ip().to_canonical();
        let same =
            address == ip || address.is_unspecified() || (ip.is_unspecified() && address.is_loopback());
        at.port() == port && same
    }

    fn holds(process: &Process, sockets: &[u64]) -> bool {
        let files = process.fd().into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| matches!(file.target, FDTarget::Socket(inode) if sockets.contains(&inode)))
    }

    fn variables(process: &Process) -> Vec<(String, String)> {
        let all = process.environ().into_iter().flatten();
        let texts =
            all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        texts.filter(|(name, _)| name.starts_with(VARIABLES)).collect()
    }
}

#[cfg(not(target_os = "linux"))]
mod process {
    use std::net::IpAddr;

    use super::CommandLine;

    pub(super) fn listening_at(_: IpAddr, _: u16) -> Option<CommandLine> {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_looked_at() {
        assert_eq!(address("localhost:8080"), Some(([127, 0, 0, 1].into(), 8080)));
        assert_eq!(address("[::1]:1"), Some(("::1".parse().unwrap(), 1)));
        assert_eq!(address("[::ffff:127.0.0.2]:1"), Some(([127, 0, 0, 2].into(), 1)));
        for other in ["gpu.lan:8080", "127.0.0.1", "127.0.0.1:x"] {
            assert_eq!(address(other), None, "{other}");
        }
        assert!(own([127, 0, 0, 1].into()) && own([0, 0, 0, 0].into()));
        // Reserved for documentation: nobody has it.
        assert!(!own([192, 0, 2, 1].into()));
    }

    #[tokio::test]
    async fn a_port_where_something_else_listens_tells_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(command_line(&listener.local_addr().unwrap().to_string()).await, None);
    }

    /// A process that is called llama-server and inherits a listening socket, as nothing else can be one here.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_command_line_of_the_llama_server_that_listens_is_found() {
        use std::os::unix::process::CommandExt as _;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        // Its standard input is the socket; it ends when killed.
        let mut child = std::process::Command::new("sleep")
            .arg0("/opt/llama-server")
            .arg("1000")
            .env("LLAMA_ARG_N_PARALLEL", "2")
            .env("SECRET", "hunter2")
            .stdin(std::os::fd::OwnedFd::from(listener))
            .spawn()
            .unwrap();
        let found = command_line(&at).await;
        let other = command_line("127.0.0.1:1").await;
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert_eq!(found.options().collect::<Vec<_>>(), [("1000".into(), None)]);
        assert_eq!(found.variable("LLAMA_ARG_N_PARALLEL"), Some("2"));
        assert_eq!(found.variable("SECRET"), None, "nothing else is read");
        assert_eq!(other, None);
    }
}
