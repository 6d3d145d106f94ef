//! Result pointers of the C caller.
//!
//! Invariant: only [`FromC::from_c`], called by the table's C functions, creates an [`Out`]. Its
//! pointer therefore satisfies the declaration.

use crate::base::failure::Failure;

/// NULL or valid for writing while the call runs.
#[derive(Debug)]
pub(super) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// `argument` is the pointer's declared name.
    pub(super) fn set(self, argument: &str, value: T) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::null(argument));
        }
        // SAFETY: not NULL, so valid for writing by the contract of `from_c`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads arguments that are input and output.
    ///
    /// # Safety
    ///
    /// The pointer is NULL or points to a `T`.
    pub(super) unsafe fn get(self, argument: &str) -> Result<T, Failure> {
        if self.0.is_null() {
            return Err(Failure::null(argument));
        }
        // SAFETY: not NULL, so a value by this function's contract.
        Ok(unsafe { self.0.read() })
    }

    /// # Safety
    ///
    /// The pointer is NULL or valid for writing a `U`, as the declaration requires.
    pub(super) unsafe fn of<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

pub(super) trait FromC<C> {
    /// # Safety
    ///
    /// A pointer that becomes an [`Out`] is NULL or valid for writing until the method returns.
    unsafe fn from_c(value: C) -> Self;
}

impl<C> FromC<C> for C {
    unsafe fn from_c(value: C) -> Self {
        value
    }
}

impl<T> FromC<*mut T> for Out<T> {
    unsafe fn from_c(place: *mut T) -> Self {
        Self(place)
    }
}
