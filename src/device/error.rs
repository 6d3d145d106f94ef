//! What can go wrong below this layer, with the names and numbers a reader of the message needs.

use std::fmt;

use ascend_tp_sys::{LoadError, aclnn_status_name};

use crate::base::Diagnostic;

/// Result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No CANN toolkit was found, or it lacks functions.
    NoToolkit,
    /// Device or host memory ran out.
    OutOfMemory,
    /// The call's arguments are wrong; calling again will not help.
    InvalidArgument,
    /// The card or its library cannot do this.
    Unsupported,
    /// Something did not end in time.
    Timeout,
    /// Another rank of a communicator is gone.
    PeerLost,
    /// The card or its library failed.
    Failed,
}

/// An error of the safe layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The toolkit could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A C function returned an error.
    #[error("{0}")]
    Call(Box<CallError>),
    /// The toolkit lacks an operator, named here.
    #[error("the CANN toolkit has no {0}: install a release that has it; `ascend-tp doctor` lists what is missing")]
    NoOperator(&'static str),
    /// Refused before any C function was called.
    #[error("{0}")]
    Refused(Box<Diagnostic>),
}

impl Error {
    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Load(_) => ErrorKind::NoToolkit,
            Self::Call(call) => call.kind(),
            Self::NoOperator(_) => ErrorKind::Unsupported,
            Self::Refused(_) => ErrorKind::InvalidArgument,
        }
    }

    /// Adds the rank in whose name the call was made.
    pub(super) fn on_rank(mut self, rank: usize) -> Self {
        if let Self::Call(call) = &mut self {
            call.rank = Some(rank);
        }
        self
    }

    /// Adds numbers that explain the error.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        if let Self::Call(call) = &mut self {
            call.note = Some(note.into());
        }
        self
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Refused(Box::new(diagnostic))
    }
}

/// A C function that returned an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The function's C name.
    pub function: &'static str,
    /// What it returned.
    pub code: i64,
    /// The C name of that code, if it is a known one.
    pub code_name: Option<&'static str>,
    /// The library's own message.
    pub message: Option<String>,
    /// Numbers this layer adds.
    pub note: Option<String>,
    /// The card it happened on.
    pub device: Option<usize>,
    /// The rank within a communicator.
    pub rank: Option<usize>,
}

/// AscendCL, aclnn and HCCL number their codes apart; HCCL's are below this.
const HCCL_CODES_END: i64 = 100_000;

impl CallError {
    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.code {
            // HCCL_E_PARA, _PTR | _MEMORY, _OOM | _NOT_SUPPORT | _TIMEOUT | _REMOTE, _NETWORK, _TCP_… and _ROCE_…
            1 | 2 => ErrorKind::InvalidArgument,
            3 | 24 => ErrorKind::OutOfMemory,
            5 => ErrorKind::Unsupported,
            9 => ErrorKind::Timeout,
            11..=14 | 19 | 21 => ErrorKind::PeerLost,
            code if code < HCCL_CODES_END => ErrorKind::Failed,
            // Runtime: waits and tasks that ran out of time, synchronisations that did.
            107_019 | 107_020 | 507_012 | 507_014 | 507_017 | 507_034 | 507_046 | 507_047 => ErrorKind::Timeout,
            200_000 | 207_001 | 207_018 => ErrorKind::OutOfMemory,
            // A peer left or failed while this card waited for it.
            507_057 => ErrorKind::PeerLost,
            200_001 | 200_006 | 207_000 => ErrorKind::Unsupported,
            // First digit 1: the caller's fault.
            100_000..=199_999 => ErrorKind::InvalidArgument,
            _ => ErrorKind::Failed,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = self.device {
            write!(f, "device {device}, ")?;
        }
        if let Some(rank) = self.rank {
            write!(f, "rank {rank}, ")?;
        }
        write!(f, "{} failed with ", self.function)?;
        match self.code_name {
            Some(name) => write!(f, "{name} ({})", self.code)?,
            None => write!(f, "code {}, which this version does not know", self.code)?,
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        if let Some(note) = &self.note {
            write!(f, " [{note}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for CallError {}

/// The name of a status of AscendCL or aclnn; the two share one numbering.
pub(super) const fn status_name(code: i32) -> Option<&'static str> {
    // 0 is success in all of them; a failure with that code comes from a function that returned NULL.
    if code == 0 { Some("a null pointer") } else { aclnn_status_name(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(code: i64) -> CallError {
        CallError {
            function: "aclrtMalloc",
            code,
            code_name: i32::try_from(code).ok().and_then(status_name),
            message: Some("no room".to_owned()),
            note: Some("asked 2.0 GiB, free 1.0 GiB".to_owned()),
            device: Some(3),
            rank: None,
        }
    }

    #[test]
    fn the_text_names_device_function_code_message_and_numbers() {
        assert_eq!(
            call(207_001).to_string(),
            "device 3, aclrtMalloc failed with ACL_ERROR_RT_MEMORY_ALLOCATION (207001): no room \
             [asked 2.0 GiB, free 1.0 GiB]"
        );
    }

    #[test]
    fn an_unknown_code_keeps_its_number() {
        let mut unknown = call(399_999);
        (unknown.message, unknown.note, unknown.device, unknown.rank) = (None, None, None, Some(2));
        assert_eq!(
            unknown.to_string(),
            "rank 2, aclrtMalloc failed with code 399999, which this version does not know"
        );
    }

    #[test]
    fn kinds_follow_the_codes() {
        for (code, kind) in [
            (207_001, ErrorKind::OutOfMemory),
            (107_000, ErrorKind::InvalidArgument),
            (161_002, ErrorKind::InvalidArgument),
            (207_000, ErrorKind::Unsupported),
            (507_046, ErrorKind::Timeout),
            (507_015, ErrorKind::Failed),
            (361_001, ErrorKind::Failed),
            (1, ErrorKind::InvalidArgument),
            (9, ErrorKind::Timeout),
            (21, ErrorKind::PeerLost),
            (507_057, ErrorKind::PeerLost),
            (4, ErrorKind::Failed),
        ] {
            assert_eq!(call(code).kind(), kind, "{code}");
        }
    }

    #[test]
    fn a_refusal_is_an_invalid_argument() {
        let error = Error::from(Diagnostic::new("copy", "lengths differ").expected(4).found(8));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.to_string(), "copy: lengths differ: expected 4, found 8");
    }
}
