//! Functions `libnnopbase.so` exports and the table does not have, by what they return.

crate::export::refuse_all! {
    NnopBase:
    status {
        aclDumpOpTensors
    }
}
