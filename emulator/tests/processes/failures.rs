//! What goes wrong between processes is an error that names who.
