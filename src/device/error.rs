//! Errors of the device layer, with names and numbers for the message.

use std::fmt;

use ascend_tp_sys::{LoadError, aclnn_status_name};

use crate::base::Diagnostic;

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kinds that a caller may distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No CANN toolkit, or functions missing.
    NoToolkit,
    /// Device or host memory ran out.
    OutOfMemory,
    /// A retry does not help.
    InvalidArgument,
    /// Unsupported by card or library.
    Unsupported,
    /// Not done in time.
    Timeout,
    /// Another rank is gone.
    PeerLost,
    /// Card or library failed.
    Failed,
}

/// An error of the device layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The toolkit was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A C function failed.
    #[error("{0}")]
    Call(Box<CallError>),
    /// The toolkit lacks this operator.
    #[error(
        "the CANN toolkit has no {0}: install a release that has it; `ascend-tp doctor` lists missing operators"
    )]
    NoOperator(&'static str),
    /// Refused before any C call.
    #[error("{0}")]
    Refused(Box<Diagnostic>),
}

impl Error {
    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Load(_) => ErrorKind::NoToolkit,
            Self::Call(call) => call.kind(),
            Self::NoOperator(_) => ErrorKind::Unsupported,
            Self::Refused(_) => ErrorKind::InvalidArgument,
        }
    }

    pub(super) fn on_rank(mut self, rank: usize) -> Self {
        if let Self::Call(call) = &mut self {
            call.rank = Some(rank);
        }
        self
    }

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

/// An error code of a C function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The C name of the function.
    pub function: &'static str,
    /// The code that the function returned.
    pub code: i64,
    /// C name, if known.
    pub code_name: Option<&'static str>,
    /// The message of the library.
    pub message: Option<String>,
    /// Numbers of this layer.
    pub note: Option<String>,
    /// Card of the call.
    pub device: Option<usize>,
    /// Rank in the communicator.
    pub rank: Option<usize>,
}

/// AscendCL and aclnn codes start here; HCCL codes are below.
const HCCL_CODES_END: i64 = 100_000;

impl CallError {
    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.code {
            // HCCL_E_PARA, _PTR | _MEMORY, _OOM | _NOT_SUPPORT | _TIMEOUT | _REMOTE, _NETWORK,
            // _TCP_… and _ROCE_…
            1 | 2 => ErrorKind::InvalidArgument,
            3 | 24 => ErrorKind::OutOfMemory,
            5 => ErrorKind::Unsupported,
            9 => ErrorKind::Timeout,
            11..=14 | 19 | 21 => ErrorKind::PeerLost,
            code if code < HCCL_CODES_END => ErrorKind::Failed,
            // Runtime: timeouts of waits, tasks and synchronisations.
            107_019 | 107_020 | 507_012 | 507_014 | 507_017 | 507_034 | 507_046 | 507_047 => {
                ErrorKind::Timeout
            }
            200_000 | 207_001 | 207_018 => ErrorKind::OutOfMemory,
            // A peer left or failed while this card waited for it.
            507_057 => ErrorKind::PeerLost,
            200_001 | 200_006 | 207_000 => ErrorKind::Unsupported,
            // Codes of the caller's errors start with 1.
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

/// AscendCL and aclnn share one numbering.
pub(super) const fn status_name(code: i32) -> Option<&'static str> {
    // Here, 0 means that a function returned NULL.
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
