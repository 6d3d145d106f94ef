//! Endings: a process leaves, quits or is killed, and the others notice and continue to their own
//! end.
//!
//! The supervisor kills after all survivors have enqueued their work.
#![expect(unsafe_code, reason = "the storm calls C functions")]

use std::time::{Duration, Instant};

use ascend_tp_sys::{HcclComm, aclrtStream, c_void};

use crate::calls::{Failed, StormResult, call, young};
use crate::element::{Reduction, StormElement};
use crate::process::heard;
use crate::program::Ending;
use crate::rank::RankDriver;

/// Note of the victim: ready or gone.
const GONE: &str = "gone";

fn sum(rank: &RankDriver<'_>, buffer: *mut c_void, comm: HcclComm, stream: aclrtStream) -> StormResult {
    let (element, sum) = (StormElement::I32.hccl(), Reduction::Sum.hccl());
    call!(rank.api, HcclAllReduce(buffer, buffer, 16, element, sum, comm, stream))
}

pub(crate) fn of_rank(rank: &mut RankDriver<'_>, process: u32) -> StormResult {
    let program = &rank.world.program;
    let (victim, queued) = match program.ending {
        Ending::InOrder => return Ok(()),
        Ending::Leaves { process } | Ending::Quits { process } => (process, 0),
        Ending::Dies { process, queued, .. } => (process, queued),
    };
    let ranks: Vec<u32> = (0..program.world()).collect();
    let comm = rank.meet("ending", &ranks)?;
    let (stream, buffer) = (rank.api.create_stream()?, rank.api.malloc(4096)?);
    rank.api.upload(buffer, &[1; 4096])?;
    sum(rank, buffer, comm, stream)?;
    rank.api.synchronize(stream)?;
    if process == victim {
        if let Ending::Dies { has_called: true, .. } = program.ending {
            let notify = rank.api.create_notify()?;
            young!(rank.api, aclrtWaitAndResetNotify(notify, stream, 0))?;
            (0..queued).try_for_each(|_| sum(rank, buffer, comm, stream))?;
        }
        return be_gone(rank, comm);
    }
    for _ in 0..queued {
        sum(rank, buffer, comm, stream)?;
    }
    rank.world.post(&format!("queued-{}", rank.number), "");
    if queued == 0 {
        rank.world.wait(&format!("{GONE}-{victim}"));
    }
    let (since, limit) = (Instant::now(), Duration::from_secs(60));
    // The time of detection is undefined, so a rank without queued work calls until a call fails.
    let outcome: StormResult = rank.bounded("noticing the end of another process", limit, || {
        loop {
            if queued == 0 {
                std::thread::sleep(Duration::from_millis(1));
                sum(rank, buffer, comm, stream)?;
            }
            rank.api.synchronize(stream)?;
            if queued > 0 {
                return Ok(());
            }
        }
    });
    heard(rank.number);
    let what = match &outcome {
        Ok(()) => Some("a collective that a dead rank never called returned 0".to_owned()),
        Err(failed) if matches!(program.ending, Ending::Dies { .. }) && !failed.message.contains("died") => {
            Some(format!("expected a message that names the dead rank, {failed}"))
        }
        Err(failed) if matches!(program.ending, Ending::Leaves { .. }) && failed.message.contains("died") => {
            Some(format!("a rank that left in order is reported as dead: {failed}"))
        }
        Err(_) if queued == 0 && since.elapsed() > RankDriver::HEARD_WITHIN => {
            Some(format!("heard of it after {:?}", since.elapsed()))
        }
        Err(_) => None,
    };
    if let Some(what) = what {
        rank.world.finding("gone", &format!("rank {} {:?}: {what}", rank.number, program.ending));
    }
    // The broken communicator may fail again.
    let _ = call!(rank.api, HcclCommDestroy(comm));
    call!(rank.api, aclrtDestroyStreamForce(stream))?;
    call!(rank.api, aclrtFree(buffer))
}

fn be_gone(rank: &RankDriver<'_>, comm: HcclComm) -> StormResult {
    let program = &rank.world.program;
    let (victims, survivors): (Vec<u32>, Vec<u32>) = (0..program.world()).partition(|other| {
        program.setup.processes.iter().any(|ranks| ranks.contains(other) && ranks.contains(&rank.number))
    });
    let process = program.setup.processes.iter().position(|ranks| *ranks == victims).unwrap_or_default();
    for survivor in survivors {
        rank.world.wait(&format!("queued-{survivor}"));
    }
    match program.ending {
        Ending::Dies { .. } => {
            rank.world.post("die", &process.to_string());
            std::thread::park_timeout(Duration::from_secs(600));
        }
        Ending::Quits { .. } => {
            rank.world.post(&format!("{GONE}-{process}"), "");
            std::process::exit(0);
        }
        Ending::Leaves { .. } => {
            call!(rank.api, HcclCommDestroy(comm))?;
            rank.world.post(&format!("{GONE}-{process}"), "");
        }
        Ending::InOrder => {}
    }
    Ok(())
}
