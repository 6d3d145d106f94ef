//! An initialised CANN library.

use std::ffi::CStr;
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use ascend_tp_sys::{
    ACL_ERROR_REPEAT_INITIALIZE, ACL_SUCCESS, Table, aclCANNPackageName, aclCANNPackageVersion, aclError,
    load,
};

use super::error::{CallError, Error, Result, status_name};

/// An initialised CANN library, which gives access to the cards.
///
/// The library is finalised when the last value made from it is dropped. Create one per table and
/// share it: a second one ends when the first one does.
///
/// ```
/// use ascend_tp::Cann;
/// use ascend_tp::emulator::{Config, Emulator};
///
/// // Cards if a toolkit is installed, else emulated cards.
/// let cann = match Cann::load(None) {
///     Ok(cann) => cann,
///     Err(_) => Cann::new(Emulator::new(Config::with_cards(2))?.table())?,
/// };
/// assert!(cann.device_count()? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cann {
    table: Arc<Table>,
    /// Must finalise the library that it initialised.
    finalize: bool,
}

impl Cann {
    /// Initialises the library behind `table`, if it is not yet initialised.
    ///
    /// # Errors
    /// The library fails.
    pub fn new(table: Arc<Table>) -> Result<Arc<Self>> {
        // SAFETY: a null configuration asks for the defaults.
        let code = unsafe { (table.aclInit)(ptr::null()) };
        match code {
            ACL_SUCCESS => Ok(Arc::new(Self { table, finalize: true })),
            ACL_ERROR_REPEAT_INITIALIZE => Ok(Arc::new(Self { table, finalize: false })),
            code => Err(call_error(&table, "aclInit", code, None)),
        }
    }

    /// Loads an installed toolkit and initialises it.
    ///
    /// # Errors
    /// [`Error::Load`] with all searched places, or the library fails.
    pub fn load(path: Option<&Path>) -> Result<Arc<Self>> {
        Self::new(Arc::new(load(path)?))
    }

    /// Counts the cards that this process sees.
    ///
    /// # Errors
    /// The library fails, for example without a driver.
    pub fn device_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: `count` is valid for a write.
        let code = unsafe { (self.table.aclrtGetDeviceCount)(&raw mut count) };
        self.check("aclrtGetDeviceCount", code)?;
        Ok(count as usize)
    }

    /// Returns the chip, such as `Ascend910B3`, or `None` without a card.
    #[must_use]
    pub fn soc_name(&self) -> Option<String> {
        // SAFETY: the call takes nothing.
        let name = unsafe { (self.table.aclrtGetSocName)() };
        // SAFETY: a non-null name is a C string that lives as long as the library.
        unsafe { text(name) }
    }

    /// Returns the library's version.
    #[must_use]
    #[doc(hidden)]
    pub fn toolkit_version(&self) -> Option<String> {
        toolkit_version(&self.table)
    }

    /// Lists needed operators that the library lacks.
    #[must_use]
    #[doc(hidden)]
    pub fn missing_operators(&self) -> &[&'static str] {
        &self.table.missing_operators
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    fn check(&self, function: &'static str, code: aclError) -> Result<()> {
        if code == ACL_SUCCESS { Ok(()) } else { Err(call_error(&self.table, function, code, None)) }
    }
}

impl Drop for Cann {
    fn drop(&mut self) {
        if self.finalize {
            // SAFETY: `new` initialised the library, and every value made from it is gone. Errors
            // cannot be reported here.
            let _ = unsafe { (self.table.aclFinalize)() };
        }
    }
}

impl fmt::Debug for Cann {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cann").field("soc_name", &self.soc_name()).finish_non_exhaustive()
    }
}

/// Returns the version of a toolkit, such as `8.1.RC1`, if the libraries contain it. Needs neither
/// driver nor card.
#[must_use]
pub fn toolkit_version(table: &Table) -> Option<String> {
    let mut version = aclCANNPackageVersion {
        version: [0; 128],
        majorVersion: [0; 64],
        minorVersion: [0; 64],
        releaseVersion: [0; 64],
        patchVersion: [0; 64],
        reserved: [0; 128],
    };
    // SAFETY: `version` is valid for a write.
    let code =
        unsafe { (table.aclsysGetCANNVersion)(aclCANNPackageName::ACL_PKG_NAME_CANN, &raw mut version) };
    version.version[127] = 0;
    // SAFETY: the array is alive and ends in a zero.
    (code == ACL_SUCCESS).then(|| unsafe { text(version.version.as_ptr()) })?
}

/// Includes the library's message for this thread.
pub(super) fn call_error(table: &Table, function: &'static str, code: i32, device: Option<usize>) -> Error {
    let code_name = status_name(code);
    Error::Call(Box::new(CallError {
        function,
        code: code.into(),
        code_name,
        message: recent_message(table),
        note: None,
        device,
        rank: None,
    }))
}

/// Returns and clears the message about this thread's last error.
pub(super) fn recent_message(table: &Table) -> Option<String> {
    // SAFETY: the call takes nothing.
    let message = unsafe { (table.aclGetRecentErrMsg)() };
    // SAFETY: a non-null message is a C string that is valid until this thread's next call.
    unsafe { text(message) }
}

/// `None` for NULL and the empty string.
///
/// # Safety
/// * `pointer` is null or points to a C string that lives until this returns.
unsafe fn text(pointer: *const std::ffi::c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string by this function's contract.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
