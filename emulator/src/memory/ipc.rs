//! Memory sharing with other processes of the host.
//!
//! The record is a memory file that processes of the same user open through `/proc`.
//!
//! Invariants: a key contains the process, the file and a secret, so a stale key is recognised.
//! Processes that are not on the list are refused, unless the exporter disabled the list.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::base::failure::{Failure, code};
use crate::memory::pages::nameless_file;

const MAGIC: u64 = u64::from_le_bytes(*b"ascndipc");
const FIELDS: usize = 10;
const MAX_PIDS: usize = 1024;
const KEY_MARK: &str = "ascend-emulator-ipc:";
/// Length of a key with its terminator.
pub(crate) const KEY_BYTES: usize = 65;
/// A shareable handle has only 64 bits in total.
const HANDLE_SECRET_BITS: u32 = 22;
const HANDLE_FILE_BITS: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExportedMemory {
    pub(crate) file: u64,
    pub(crate) at: u64,
    /// Distance from `at` to the first shared byte.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) card: u64,
    pub(crate) granularity: u64,
}

#[derive(Debug)]
pub(crate) struct IpcRecord {
    file: File,
    name: IpcName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpcName {
    pub(crate) pid: u32,
    descriptor: u32,
    secret: u64,
}

fn invalid(what: impl Into<String>) -> Failure {
    Failure::new(code::PARAM_INVALID, what)
}

fn host(error: &io::Error) -> Failure {
    Failure::new(code::MEMORY_ALLOCATION, format!("this host cannot share memory between processes: {error}"))
}

impl IpcName {
    pub(crate) fn of_key(key: &str) -> Result<Self, Failure> {
        let parse = || {
            let rest = key.strip_prefix(KEY_MARK)?;
            let hex = |from, to| u64::from_str_radix(rest.get(from..to)?, 16).ok();
            let (pid, descriptor) = (hex(0, 8)?, hex(8, 16)?);
            Some(Self { pid: pid as u32, descriptor: descriptor as u32, secret: hex(16, 32)? })
        };
        parse().ok_or_else(|| invalid(format!("key {key:?} was not made by this emulator")))
    }

    pub(crate) fn key(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        let text = format!("{KEY_MARK}{:08x}{:08x}{:016x}", self.pid, self.descriptor, self.secret);
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// The secret of a shareable handle is shorter than in a key.
    pub(crate) fn of_handle(handle: u64) -> Self {
        let file = (handle >> HANDLE_SECRET_BITS) & ((1 << HANDLE_FILE_BITS) - 1);
        let secret = handle & ((1 << HANDLE_SECRET_BITS) - 1);
        let pid = handle >> (HANDLE_SECRET_BITS + HANDLE_FILE_BITS);
        Self { pid: pid as u32, descriptor: file as u32, secret }
    }

    pub(crate) fn handle(self) -> u64 {
        let secret = self.secret & ((1 << HANDLE_SECRET_BITS) - 1);
        u64::from(self.pid) << (HANDLE_SECRET_BITS + HANDLE_FILE_BITS)
            | u64::from(self.descriptor) << HANDLE_SECRET_BITS
            | secret
    }

    pub(crate) fn is_own(self) -> bool {
        self.pid == std::process::id()
    }

    fn path(self, descriptor: u64) -> String {
        format!("/proc/{}/fd/{descriptor}", self.pid)
    }
}

impl IpcRecord {
    /// Every process may import the memory if `validates` is false.
    pub(crate) fn new(shared: ExportedMemory, validates: bool) -> Result<Self, Failure> {
        let file = nameless_file().map_err(|error| host(&error))?;
        let descriptor = file.as_raw_fd().cast_unsigned();
        let secret = RandomState::new().build_hasher().finish();
        let record = Self { file, name: IpcName { pid: std::process::id(), descriptor, secret } };
        let ExportedMemory { file, at, offset, size, card, granularity } = shared;
        let fields = [MAGIC, secret, file, at, offset, size, card, granularity, u64::from(validates), 0];
        let bytes: Vec<u8> = fields.iter().chain([&0]).flat_map(|field| field.to_le_bytes()).collect();
        record.file.write_all_at(&bytes, 0).map_err(|error| host(&error))?;
        Ok(record)
    }

    pub(crate) fn name(&self) -> IpcName {
        self.name
    }

    pub(crate) fn admit(&self, pids: &[i32]) -> Result<(), Failure> {
        self.locked(|record| {
            let mut known = record.pids()?;
            known.extend(pids.iter().map(|pid| u64::from(pid.cast_unsigned())));
            if known.len() > MAX_PIDS {
                return Err(invalid(format!(
                    "{} processes on one list; it can have {MAX_PIDS}",
                    known.len()
                )));
            }
            let bytes: Vec<u8> =
                [known.len() as u64].iter().chain(&known).flat_map(|field| field.to_le_bytes()).collect();
            record.file.write_all_at(&bytes, (FIELDS * 8) as u64).map_err(|error| host(&error))
        })
    }

    pub(crate) fn importers(&self) -> Result<u64, Failure> {
        Ok(self.fields()?[9])
    }

    pub(crate) fn count_importer(&self, change: i64) -> Result<(), Failure> {
        self.locked(|record| {
            let importers = record.fields()?[9].saturating_add_signed(change);
            record.file.write_all_at(&importers.to_le_bytes(), 9 * 8).map_err(|error| host(&error))
        })
    }

    /// Fails if the exporter has ended or closed the export, the key is stale, or this process is
    /// not permitted.
    pub(crate) fn open(name: IpcName) -> Result<(Self, ExportedMemory, File), Failure> {
        let gone = |what: &str| {
            invalid(format!(
                "the memory is no longer shared: process {} {what}; the exporter must keep it until all importers \
                 have closed it",
                name.pid
            ))
        };
        let open = |descriptor| File::options().read(true).write(true).open(name.path(descriptor));
        let file = open(u64::from(name.descriptor))
            .map_err(|error| gone(&format!("has no such export ({error})")))?;
        let record = Self { file, name };
        let fields = record.fields().map_err(|_| gone("has closed it"))?;
        let [magic, secret, data, at, offset, size, card, granularity, validates, _] = fields;
        let mask =
            if name.secret >> HANDLE_SECRET_BITS == 0 { (1 << HANDLE_SECRET_BITS) - 1 } else { u64::MAX };
        if magic != MAGIC || secret & mask != name.secret {
            return Err(gone("has closed it"));
        }
        let own = std::process::id();
        if validates != 0 && !name.is_own() && !record.pids()?.contains(&u64::from(own)) {
            let what = format!(
                "process {own} may not import this: process {} has not put it on the list (aclrtIpcMemSetImportPid, \
                 aclrtMemSetPidToShareableHandle), nor dropped the list with its flag",
                name.pid
            );
            return Err(invalid(what));
        }
        let bytes = open(data).map_err(|error| gone(&format!("has no such memory ({error})")))?;
        Ok((record, ExportedMemory { file: data, at, offset, size, card, granularity }, bytes))
    }

    fn fields(&self) -> Result<[u64; FIELDS], Failure> {
        let mut bytes = [0; FIELDS * 8];
        self.file.read_exact_at(&mut bytes, 0).map_err(|error| host(&error))?;
        let mut fields = [0; FIELDS];
        for (field, bytes) in fields.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *field = u64::from_le_bytes(*bytes);
        }
        Ok(fields)
    }

    fn pids(&self) -> Result<Vec<u64>, Failure> {
        let at = (FIELDS * 8) as u64;
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, at).map_err(|error| host(&error))?;
        let mut bytes = vec![0; u64::from_le_bytes(word).min(MAX_PIDS as u64) as usize * 8];
        self.file.read_exact_at(&mut bytes, at + 8).map_err(|error| host(&error))?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect())
    }

    /// The record is locked against other processes.
    fn locked(&self, change: impl FnOnce(&Self) -> Result<(), Failure>) -> Result<(), Failure> {
        self.file.lock().map_err(|error| host(&error))?;
        let outcome = change(self);
        self.file.unlock().map_err(|error| host(&error))?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(data: &File) -> ExportedMemory {
        let file = u64::from(data.as_raw_fd().cast_unsigned());
        ExportedMemory { file, at: 65_536, offset: 12, size: 100, card: 3, granularity: 0 }
    }

    #[test]
    fn a_key_and_a_handle_find_the_record_and_a_stale_one_does_not() {
        let data = nameless_file().expect("a file of memory");
        let record = IpcRecord::new(shared(&data), true).expect("a record");
        let key = record.name().key();
        let text = std::str::from_utf8(&key).expect("text").trim_end_matches('\0');
        assert!(text.len() < KEY_BYTES);
        let (found, what, _) = IpcRecord::open(IpcName::of_key(text).expect("a key")).expect("own process");
        assert_eq!(what, shared(&data));
        found.count_importer(1).expect("counts");
        assert_eq!(record.importers().expect("reads"), 1);
        let (_, what, _) = IpcRecord::open(IpcName::of_handle(record.name().handle())).expect("own process");
        assert_eq!(what.card, 3);
        let name = record.name();
        drop((record, found));
        assert!(IpcRecord::open(name).expect_err("closed").message.contains("no longer shared"));
        assert!(
            IpcName::of_key("something else")
                .expect_err("no key")
                .message
                .contains("not made by this emulator")
        );
    }

    #[test]
    fn lists_grow_and_end() {
        let data = nameless_file().expect("a file of memory");
        let record = IpcRecord::new(shared(&data), true).expect("a record");
        record.admit(&[5, 6]).expect("room");
        record.admit(&[7]).expect("room");
        assert_eq!(record.pids().expect("reads"), [5, 6, 7]);
        assert!(record.admit(&[0; MAX_PIDS]).expect_err("full").message.contains("1027 processes"));
    }
}
