//! The order of steps of a strict machine. A deterministic program has the same trace for the same
//! seed. The trace contains no times.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Older steps are dropped.
const KEPT: usize = 1 << 20;

/// One step of a strict machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    pub(crate) step: u64,
    pub(crate) actor: Actor,
    pub(crate) what: What,
    pub(crate) tag: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Actor {
    Thread(Arc<str>),
    Stream { stream: u64, card: u32 },
    Communicator(Arc<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Calls(&'static str),
    Resumes(&'static str),
    /// A blocked call continues because its time limit ended.
    TimesOut(&'static str),
    /// A stream reaches a queued entry; a task also runs.
    Runs(&'static str),
    /// A collective transfers its data.
    Meets(&'static str),
    /// The other threads continue without this thread, which has been away for a long time.
    IsOvertaken,
}

impl TraceEvent {
    /// Returns the number of the step, starting at 1.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.step)?;
        match &self.actor {
            Actor::Thread(name) => write!(f, "{name} ")?,
            Actor::Stream { stream, card } => write!(f, "stream {stream} of card {card} ")?,
            Actor::Communicator(name) => write!(f, "communicator {name} ")?,
        }
        match self.what {
            What::Calls(call) => write!(f, "calls {call}")?,
            What::Resumes(call) => write!(f, "resumes {call}")?,
            What::TimesOut(call) => write!(f, "times out in {call}")?,
            What::Runs(entry) => write!(f, "runs {entry}")?,
            What::Meets(collective) => write!(f, "meets in {collective}")?,
            What::IsOvertaken => f.write_str("is overtaken: it has not returned for a long time")?,
        }
        match &self.tag {
            Some(tag) => write!(f, " at {tag:?}"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct StrictTrace {
    steps: u64,
    events: VecDeque<TraceEvent>,
}

impl StrictTrace {
    pub(crate) fn push(&mut self, actor: Actor, what: What, tag: Option<Arc<str>>) {
        self.steps += 1;
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(TraceEvent { step: self.steps, actor, what, tag });
    }

    pub(crate) fn events(&self) -> Vec<TraceEvent> {
        self.events.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_as_sentences() {
        let mut trace = StrictTrace::default();
        trace.push(Actor::Thread("rank-2".into()), What::Calls("aclrtMalloc"), None);
        trace.push(Actor::Stream { stream: 9, card: 2 }, What::Runs("aclnnMatmul"), Some("layer 3".into()));
        let lines: Vec<String> = trace.events().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["1 rank-2 calls aclrtMalloc", "2 stream 9 of card 2 runs aclnnMatmul at \"layer 3\""]
        );
    }
}
