//! Starts this program once more for each rank, as a launcher on one host does.
//!
//! Invariant: a process that was started by a launcher starts none. The processes meet at a port that was free a moment ago.

use std::ffi::OsString;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::world::World;

use crate::cli::failure::{Failure, Outcome};

/// Starts `wanted` processes with this one's arguments and waits for them; none if none are wanted, or this is one of them.
///
/// # Errors
/// A launcher started another number, or a process cannot be started or fails.
pub(super) fn start(wanted: Option<usize>) -> Result<Option<Outcome>, Failure> {
    let Some(wanted) = wanted else { return Ok(None) };
    let world = World::from_env().map_err(|error| Failure::Input(error.into()))?;
    if world.size == wanted {
        return Ok(None);
    }
    if world.size > 1 {
        let problem = Diagnostic::new("--processes", "a launcher has started another number");
        return Err(Diagnostics::from(problem.expected(world.size).found(wanted).help("leave --processes out")).into());
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut children = spawn(wanted, &arguments, Stdio::inherit)?;
    let mut worst = 0;
    for child in &mut children {
        worst = worst.max(child.wait()?.code().unwrap_or(i32::from(u8::MAX)));
    }
    match worst {
        0 => Ok(Some(Outcome::Done)),
        // They have said what it is.
        2 => Err(Failure::Elsewhere),
        _ => Err(Failure::Run(anyhow::anyhow!("a process of the measurement failed"))),
    }
}

/// One process a rank. The first one's output goes where `stdout` says; the others have none.
pub(super) fn spawn(
    processes: usize,
    arguments: &[OsString],
    stdout: impl Fn() -> Stdio,
) -> Result<Vec<Child>, Failure> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let program = std::env::current_exe()?;
    let child = |rank: usize| {
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", processes.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("LOCAL_WORLD_SIZE", processes.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(if rank == 0 { stdout() } else { Stdio::null() });
        command.spawn()
    };
    Ok((0..processes).map(child).collect::<Result<_, _>>()?)
}
