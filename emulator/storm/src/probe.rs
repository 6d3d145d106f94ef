//! Probes: behaviour that one rank can test alone, such as the end of waits and effects of
//! failures.
//!
//! Each probe uses its own objects and compares with CANN's documentation.
#![expect(unsafe_code, reason = "the storm calls C functions")]

use std::time::{Duration, Instant};

use ascend_tp_sys::{ACL_ERROR_RT_STREAM_ABORT, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, ACL_ERROR_RT_TASK_TIMEOUT};
use ascend_tp_sys::{aclError, aclrtStream, c_void};

use crate::calls::{EventCreation, Failed, StormResult, call, young};
use crate::rank::RankDriver;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamBlocker {
    /// A notify that is never recorded.
    Notify,
    /// An event on a blocked stream.
    Event,
    /// A value that is never written.
    Value,
}

/// Method with which the host waits for a time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// `aclrtSynchronizeStream` returns after the limit.
    Synchronizes,
    /// Repeated calls of `aclrtStreamQuery`.
    PollsStream,
    /// `aclrtQueryEventStatus` of an event recorded after the wait.
    PollsEvent,
    /// Sleep, followed by one query after the limit.
    Sleeps,
}

impl Waiting {
    pub(crate) const ALL: [Self; 4] = [Self::Synchronizes, Self::PollsStream, Self::PollsEvent, Self::Sleeps];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StormProbe {
    /// State of an event that was never recorded.
    Unrecorded,
    /// A waiting stream is aborted.
    Abort {
        /// Object for which the stream waits.
        held: StreamBlocker,
    },
    /// A stream that waits for a notify is destroyed; another stream then uses the notify.
    ForcedDestroy,
    ContinueAfterFailure,
    /// A failure stops all streams of the context.
    StopAfterFailure,
    /// A wait reaches its time limit.
    Limit {
        /// Object for which the stream waits.
        held: StreamBlocker,
        /// Work before the wait, in milliseconds.
        work_ms: u64,
        /// Method with which the host waits.
        waiting: Waiting,
    },
}

pub(crate) const SLACK: Duration = Duration::from_secs(5);
/// In seconds, for waits that reach the limit.
const LIMIT_S: u32 = 2;
/// Shows which work has run.
const SCRATCH_BYTES: u64 = 4096;

pub(crate) type ProbeResult = Result<(), String>;

impl From<Failed> for String {
    fn from(failed: Failed) -> Self {
        failed.to_string()
    }
}

fn expect(what: &str, found: StormResult, codes: &[aclError]) -> ProbeResult {
    let code = found.as_ref().map_or_else(|failed| failed.code, |()| 0);
    if codes.iter().any(|expected| i64::from(*expected) == code) {
        return Ok(());
    }
    let found = found.map_or_else(|failed| failed.to_string(), |()| "returned 0".to_owned());
    Err(format!("{what}: expected {codes:?}, {found}"))
}

impl StormProbe {
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unrecorded => "unrecorded-event",
            Self::Abort { .. } => "abort",
            Self::ForcedDestroy => "forced-destroy",
            Self::ContinueAfterFailure => "continue-after-failure",
            Self::StopAfterFailure => "stop-after-failure",
            Self::Limit { .. } => "limit",
        }
    }

    pub(crate) fn run(self, rank: &mut RankDriver<'_>) -> ProbeResult {
        match self {
            Self::Unrecorded => unrecorded(rank),
            Self::Abort { held } => abort(rank, held),
            Self::ForcedDestroy => forced_destroy(rank),
            Self::ContinueAfterFailure => continue_after_failure(rank),
            Self::StopAfterFailure => stop_after_failure(rank),
            Self::Limit { held, work_ms, waiting } => limit(rank, held, work_ms, waiting),
        }
    }
}

fn unrecorded(rank: &RankDriver<'_>) -> ProbeResult {
    for making in EventCreation::ALL {
        let event = rank.api.create_event(making)?;
        let found = (rank.api.is_recorded(event)?, rank.api.is_waited(event)?);
        call!(rank.api, aclrtDestroyEvent(event))?;
        let complete = making == EventCreation::ExWithFlag;
        if found != (complete, complete) {
            return Err(format!(
                "an event made {making:?} and never recorded: expected {complete} of aclrtQueryEventStatus and \
                 aclrtQueryEventWaitStatus, found {found:?}"
            ));
        }
    }
    Ok(())
}

/// Blocks forever or until a limit.
struct Hold {
    notify: *mut c_void,
    event: *mut c_void,
    helper: aclrtStream,
    value: *mut c_void,
}

impl Hold {
    fn begin(
        rank: &RankDriver<'_>,
        stream: aclrtStream,
        held: StreamBlocker,
        limit_s: u32,
    ) -> StormResult<Self> {
        let api = rank.api;
        let (notify, helper) = (api.create_notify()?, api.create_stream()?);
        let event = api.create_event(EventCreation::ExWithFlag)?;
        let value = api.malloc(64)?;
        api.upload(value, &[0; 64])?;
        match held {
            StreamBlocker::Notify => young!(api, aclrtWaitAndResetNotify(notify, stream, limit_s))?,
            StreamBlocker::Event => {
                young!(api, aclrtWaitAndResetNotify(notify, helper, 0))?;
                call!(api, aclrtRecordEvent(event, helper))?;
                young!(api, aclrtStreamWaitEventWithFlag(stream, event, limit_s, 0))?;
            }
            // Condition 1 is equality.
            StreamBlocker::Value => young!(api, aclrtValueWait(value, 1, 1, stream))?,
        }
        Ok(Self { notify, event, helper, value })
    }

    /// The notify must still release the helper stream.
    fn end(self, rank: &RankDriver<'_>, held: StreamBlocker) -> StormResult {
        let api = rank.api;
        if held == StreamBlocker::Event {
            let recorder = api.create_stream()?;
            young!(api, aclrtRecordNotify(self.notify, recorder))?;
            api.synchronize(recorder)?;
            call!(api, aclrtDestroyStream(recorder))?;
        }
        api.synchronize_within(self.helper, SLACK)?;
        call!(api, aclrtDestroyStream(self.helper))?;
        call!(api, aclrtDestroyEvent(self.event))?;
        young!(api, aclrtDestroyNotify(self.notify))?;
        call!(api, aclrtFree(self.value))
    }
}

fn abort(rank: &RankDriver<'_>, held: StreamBlocker) -> ProbeResult {
    let api = rank.api;
    let stream = api.create_stream()?;
    let hold = Hold::begin(rank, stream, held, 0)?;
    call!(api, aclrtStreamAbort(stream))?;
    let since = Instant::now();
    let outcome = api.synchronize_within(stream, SLACK);
    let what =
        format!("synchronizing a stream aborted while it waits for {held:?}, after {:?}", since.elapsed());
    expect(&what, outcome, &[ACL_ERROR_RT_STREAM_ABORT])?;
    call!(api, aclrtDestroyStreamForce(stream))?;
    hold.end(rank, held).map_err(String::from)
}

fn forced_destroy(rank: &RankDriver<'_>) -> ProbeResult {
    let api = rank.api;
    let stream = || api.create_stream().map_err(String::from);
    let (first, second, third) = (stream()?, stream()?, stream()?);
    let notify = api.create_notify()?;
    young!(api, aclrtWaitAndResetNotify(notify, first, 0))?;
    call!(api, aclrtDestroyStreamForce(first))?;
    young!(api, aclrtWaitAndResetNotify(notify, second, 0))?;
    young!(api, aclrtRecordNotify(notify, third))?;
    let outcome = api.synchronize_within(second, SLACK);
    expect("a stream that waits for a notify which a destroyed stream waited for before", outcome, &[0])?;
    call!(api, aclrtDestroyStream(second))?;
    call!(api, aclrtDestroyStream(third))?;
    young!(api, aclrtDestroyNotify(notify)).map_err(String::from)
}

fn continue_after_failure(rank: &RankDriver<'_>) -> ProbeResult {
    let api = rank.api;
    let stream = api.create_stream()?;
    let notify = api.create_notify()?;
    let scratch = api.malloc(SCRATCH_BYTES)?;
    let half = SCRATCH_BYTES / 2;
    young!(api, aclrtWaitAndResetNotify(notify, stream, 1))?;
    api.fill(scratch, half, 5, stream)?;
    let outcome =
        rank.bounded("synchronizing a stream with a wait limited to 1 s", SLACK, || api.synchronize(stream));
    expect("synchronizing a stream with a failed wait", outcome, &[ACL_ERROR_RT_TASK_TIMEOUT])?;
    let later = api.fill(scratch.wrapping_byte_add(half as usize), half, 7, stream);
    expect("work enqueued after a failure", later, &[0])?;
    let outcome = rank.bounded("synchronizing it again", SLACK, || api.synchronize(stream));
    expect("synchronizing it again", outcome, &[0, ACL_ERROR_RT_TASK_TIMEOUT])?;
    let found = api.download(scratch, SCRATCH_BYTES)?;
    let (before, after) = found.split_at(half as usize);
    if before.iter().any(|byte| *byte != 5) || after.iter().any(|byte| *byte != 7) {
        let what =
            format!("expected bytes 5 and 7 of work behind a failure, found {} and {}", before[0], after[0]);
        return Err(what);
    }
    call!(api, aclrtDestroyStreamForce(stream))?;
    young!(api, aclrtDestroyNotify(notify))?;
    call!(api, aclrtFree(scratch)).map_err(String::from)
}

fn stop_after_failure(rank: &RankDriver<'_>) -> ProbeResult {
    let api = rank.api;
    let context = api.create_context(rank.number.cast_signed())?;
    let (first, second, third) = (api.create_stream()?, api.create_stream()?, api.create_stream()?);
    let (notify, other) = (api.create_notify()?, api.create_notify()?);
    let scratch = api.malloc(SCRATCH_BYTES)?;
    api.upload(scratch, &[0; SCRATCH_BYTES as usize])?;
    // Mode 1: `ACL_STOP_ON_FAILURE`.
    call!(api, aclrtSetStreamFailureMode(first, 1))?;
    young!(api, aclrtWaitAndResetNotify(other, second, 0))?;
    young!(api, aclrtWaitAndResetNotify(notify, first, 1))?;
    api.fill(scratch, SCRATCH_BYTES, 5, first)?;
    let outcome =
        rank.bounded("synchronizing a stream with a wait limited to 1 s", SLACK, || api.synchronize(first));
    expect("synchronizing a stream with a failed wait", outcome, &[ACL_ERROR_RT_TASK_TIMEOUT])?;
    let waiting = api.synchronize_within(second, SLACK);
    let is_stopped =
        waiting.as_ref().is_err_and(|failed| failed.code != i64::from(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT));
    let later = api.fill(scratch, SCRATCH_BYTES, 7, third).and_then(|()| api.synchronize(third));
    let found = api.download(scratch, SCRATCH_BYTES)?;
    if !is_stopped || later.is_ok() || found.iter().any(|byte| *byte != 0) {
        return Err(format!(
            "after a failure of a stream with ACL_STOP_ON_FAILURE expected errors of the other streams of the context \
             and no work; found {waiting:?} of one that waits, {later:?} of work that is new, and byte {}",
            found[0]
        ));
    }
    for stream in [first, second, third] {
        call!(api, aclrtDestroyStreamForce(stream))?;
    }
    for notify in [notify, other] {
        young!(api, aclrtDestroyNotify(notify))?;
    }
    call!(api, aclrtFree(scratch))?;
    call!(api, aclrtSetCurrentContext(rank.context))?;
    call!(api, aclrtDestroyContext(context)).map_err(String::from)
}

fn limit(rank: &mut RankDriver<'_>, held: StreamBlocker, work_ms: u64, waiting: Waiting) -> ProbeResult {
    let stream = rank.api.create_stream()?;
    rank.work(work_ms, stream)?;
    let hold = Hold::begin(rank, stream, held, LIMIT_S)?;
    let limit = Duration::from_secs(u64::from(LIMIT_S));
    until_limit(rank, stream, work_ms, limit, limit, waiting, &[ACL_ERROR_RT_TASK_TIMEOUT])?;
    call!(rank.api, aclrtDestroyStreamForce(stream))?;
    hold.end(rank, held).map_err(String::from)
}

/// Waits not less than `earliest`, and not much longer than `limit`.
pub(crate) fn until_limit(
    rank: &RankDriver<'_>,
    stream: aclrtStream,
    work_ms: u64,
    earliest: Duration,
    limit: Duration,
    waiting: Waiting,
    codes: &[aclError],
) -> ProbeResult {
    let api = rank.api;
    let behind = api.create_event(EventCreation::Plain)?;
    call!(api, aclrtRecordEvent(behind, stream))?;
    let (due, since) = (Duration::from_millis(work_ms) + limit, Instant::now());
    let latest = due + SLACK;
    let what = format!("{work_ms} ms of work and then a wait of at most {limit:?}, the host {waiting:?}");
    let poll = |is_over: &dyn Fn() -> StormResult<bool>| loop {
        match is_over() {
            Ok(false) if since.elapsed() < latest => std::thread::sleep(Duration::from_millis(5)),
            Ok(false) => return Err(format!("{what}: not over after {:?}", since.elapsed())),
            Ok(true) => return Ok(Ok(())),
            Err(failed) => return Ok(Err(failed)),
        }
    };
    let outcome = match waiting {
        Waiting::Synchronizes => rank.bounded(&what, latest, || api.synchronize(stream)),
        Waiting::PollsStream => poll(&|| api.is_complete(stream))?,
        Waiting::PollsEvent => poll(&|| api.is_recorded(behind))?
            .and_then(|()| rank.bounded(&what, SLACK, || api.synchronize(stream))),
        Waiting::Sleeps => {
            std::thread::sleep(due + Duration::from_secs(1));
            match api.is_complete(stream) {
                Ok(false) => rank.bounded(&what, SLACK, || api.synchronize(stream)),
                Ok(true) => Ok(()),
                Err(failed) => Err(failed),
            }
        }
    };
    let took = since.elapsed();
    expect(&format!("{what}, after {took:?}"), outcome, codes)?;
    if took + Duration::from_millis(100) < earliest {
        return Err(format!("{what}: over already after {took:?}"));
    }
    call!(api, aclrtDestroyEvent(behind)).map_err(String::from)
}
