//! Places of the C caller for results.
//!
//! Input: the pointer a C function was given. Output: the result written there, or a refusal that names the argument. Invariant:
//! only [`FromC::from_c`], which the C functions of the table call, makes one, so what the declaration demands of the pointer
//! holds for as long as the call. Does not: keep a place beyond the call.

use crate::base::failure::Failure;

/// A place for one `T`: NULL, or valid for writing while the call runs.
#[derive(Debug)]
pub(super) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Whether the caller wants no result, or has forgotten its place.
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes a result; `argument` is what the declaration calls the place.
    ///
    /// # Errors
    /// The place is NULL.
    pub(super) fn set(self, argument: &str, value: T) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::null(argument));
        }
        // SAFETY: not NULL, so valid for writing, as `from_c` demands and the running call keeps.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// What the place holds, where the declaration says that it is read too.
    ///
    /// # Safety
    /// The place is NULL or holds a `T`.
    ///
    /// # Errors
    /// The place is NULL.
    pub(super) unsafe fn get(self, argument: &str) -> Result<T, Failure> {
        if self.0.is_null() {
            return Err(Failure::null(argument));
        }
        // SAFETY: not NULL, so it holds a value by this function's contract.
        Ok(unsafe { self.0.read() })
    }

    /// The same place as one for a `U`.
    ///
    /// # Safety
    /// The place is NULL or valid for writing a `U`, as the declaration demands.
    pub(super) unsafe fn of<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// An argument as the method that models a C function takes it.
pub(super) trait FromC<C> {
    /// The same argument.
    ///
    /// # Safety
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
