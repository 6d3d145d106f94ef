//! The rendezvous token of a communicator.

use std::ffi::c_char;
use std::fmt;
use std::sync::Arc;

use ascend_tp_sys::{HCCL_ROOT_INFO_BYTES, HcclRootInfo};

use super::card::Device;
use super::error::Result;
use crate::base::Diagnostic;

/// Rendezvous token of a communicator. One rank creates it, and all ranks join with it.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
/// # let device = ascend_tp::device::Device::open(&cann, 0)?;
///
/// use ascend_tp::device::RootInfo;
///
/// let bytes = RootInfo::create(&device)?.to_bytes(); // Send them to the other processes.
/// let root = RootInfo::from_bytes(&bytes)?;
/// # drop(root);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RootInfo(Box<HcclRootInfo>);

impl RootInfo {
    /// Number of bytes that [`Self::to_bytes`] returns.
    #[doc(hidden)]
    pub const LEN_BYTES: usize = HCCL_ROOT_INFO_BYTES as usize;

    /// Creates a token that is reachable through `device`.
    ///
    /// # Errors
    /// The library fails, for example without a network interface.
    pub fn create(device: &Arc<Device>) -> Result<Self> {
        let table = device.enter()?;
        let mut info = Box::new(HcclRootInfo { internal: [0; Self::LEN_BYTES] });
        // SAFETY: `info` is valid for a write.
        let result = unsafe { (table.HcclGetRootInfo)(&raw mut *info) };
        device.check_hccl("HcclGetRootInfo", result)?;
        Ok(Self(info))
    }

    pub(super) fn as_ptr(&self) -> *const HcclRootInfo {
        &raw const *self.0
    }

    /// Returns the bytes for other processes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // `c_char` is signed on x86-64 and unsigned on aarch64.
        self.0.internal.iter().flat_map(|byte| byte.to_ne_bytes()).collect()
    }

    /// Creates a token from received bytes.
    ///
    /// # Errors
    /// The length is not [`Self::LEN_BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() != Self::LEN_BYTES {
            return Err(Diagnostic::new("root info", "wrong length")
                .expected(format!("{} bytes", Self::LEN_BYTES))
                .found(format!("{} bytes", bytes.len()))
                .into());
        }
        let mut info = Box::new(HcclRootInfo { internal: [0; Self::LEN_BYTES] });
        for (to, from) in info.internal.iter_mut().zip(bytes) {
            *to = c_char::from_ne_bytes([*from]);
        }
        Ok(Self(info))
    }
}

impl fmt::Debug for RootInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootInfo")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_unchanged() {
        let bytes: Vec<u8> = (0..RootInfo::LEN_BYTES).map(|index| (index % 251) as u8).collect();
        assert_eq!(RootInfo::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }

    #[test]
    fn another_length_is_refused() {
        let error = RootInfo::from_bytes(&[0; 4107]).unwrap_err();
        assert_eq!(error.to_string(), "root info: wrong length: expected 4108 bytes, found 4107 bytes");
    }
}
