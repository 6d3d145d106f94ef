//! Event files for TensorBoard.
//!
//! Files of earlier processes stay unchanged. A resumed run records the step from which earlier
//! events no longer count.
//!
//! A record has a length (u64), its checksum, the data and its checksum, all little-endian. A
//! checksum is CRC-32C, rotated and offset, because a plain CRC of data with embedded CRCs is
//! unreliable. The data is a protobuf `Event`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crc::{CRC_32_ISCSI, Crc};

use crate::base::Diagnostic;

/// CRC-32C, named after iSCSI in the crate.
const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

const SHIFT: u32 = 0xa282_ead8;

const VERSION: &str = "brain.Event:2";

/// Field numbers of `Event`, `Summary`, `Value` and `SessionLog`.
mod field {
    pub(super) const WALL_TIME: u64 = 1;
    pub(super) const STEP: u64 = 2;
    pub(super) const FILE_VERSION: u64 = 3;
    pub(super) const SUMMARY: u64 = 5;
    pub(super) const SESSION_LOG: u64 = 7;
    pub(super) const VALUE: u64 = 1;
    pub(super) const TAG: u64 = 1;
    pub(super) const SIMPLE_VALUE: u64 = 2;
    pub(super) const STATUS: u64 = 1;
}

/// `SessionLog.START`: later steps in earlier files no longer count.
const START: u64 = 1;

/// Event file of one process.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: File,
}

impl EventLog {
    /// Creates a file in `folder` for a run that begins at step `first`. `wall_seconds` counts from
    /// 1970.
    ///
    /// # Errors
    /// The folder or the file cannot be written.
    pub fn begin(folder: &Path, first: u64, wall_seconds: f64) -> Result<Self, Diagnostic> {
        let refused = |error: io::Error| {
            Diagnostic::new(folder.display().to_string(), "cannot be written").found(error)
        };
        fs::create_dir_all(folder).map_err(refused)?;
        // Readers recognize this prefix and order files by the rest of the name.
        let name = format!(
            "events.out.tfevents.{:010}.ascend-tp.{}.{first}",
            wall_seconds as u64,
            std::process::id()
        );
        let path = folder.join(name);
        let file = File::create(&path).map_err(refused)?;
        let mut log = Self { path, file };
        let mut version = ProtobufMessage::of_event(wall_seconds, 0);
        version.bytes(field::FILE_VERSION, VERSION.as_bytes());
        log.record(&version)?;
        if first > 0 {
            let mut session = ProtobufMessage::default();
            session.varint(field::STATUS, START);
            let mut start = ProtobufMessage::of_event(wall_seconds, first);
            start.bytes(field::SESSION_LOG, &session.0);
            log.record(&start)?;
        }
        Ok(log)
    }

    /// Writes the numbers of a step, each with its tag.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, step: u64, wall_seconds: f64, numbers: &[(&str, f64)]) -> Result<(), Diagnostic> {
        let mut summary = ProtobufMessage::default();
        for (tag, number) in numbers {
            let mut value = ProtobufMessage::default();
            value.bytes(field::TAG, tag.as_bytes());
            value.float(field::SIMPLE_VALUE, *number as f32);
            summary.bytes(field::VALUE, &value.0);
        }
        let mut event = ProtobufMessage::of_event(wall_seconds, step);
        event.bytes(field::SUMMARY, &summary.0);
        self.record(&event)
    }

    fn record(&mut self, ProtobufMessage(data): &ProtobufMessage) -> Result<(), Diagnostic> {
        let length = (data.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked_checksum(&length).to_le_bytes());
        record.extend(data);
        record.extend(masked_checksum(data).to_le_bytes());
        self.file.write_all(&record).map_err(|error| {
            Diagnostic::new(self.path.display().to_string(), "cannot be written").found(error)
        })
    }
}

fn masked_checksum(bytes: &[u8]) -> u32 {
    CHECKSUM.checksum(bytes).rotate_right(15).wrapping_add(SHIFT)
}

#[derive(Debug, Default)]
struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn of_event(wall_seconds: f64, step: u64) -> Self {
        let mut event = Self::default();
        event.key(field::WALL_TIME, 1);
        event.0.extend(wall_seconds.to_le_bytes());
        event.varint(field::STEP, step);
        event
    }

    fn key(&mut self, field: u64, form: u64) {
        self.number((field << 3) | form);
    }

    fn number(&mut self, mut value: u64) {
        while value >= 1 << 7 {
            self.0.push(value as u8 | (1 << 7));
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn varint(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.number(value);
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.key(field, 2);
        self.number(value.len() as u64);
        self.0.extend(value);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the checksum bit by bit, from the polynomial.
    fn checksum(bytes: &[u8]) -> u32 {
        let byte = |sum: u32, byte: &u8| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
                if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 }
            })
        };
        let sum = !bytes.iter().fold(u32::MAX, byte);
        sum.rotate_right(15).wrapping_add(0xa282_ead8)
    }

    fn take<'a>(from: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (head, tail) = from.split_at(count);
        *from = tail;
        head
    }

    fn varint(from: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = take(from, 1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    /// Returns number and bytes of each field.
    fn fields(mut from: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        while !from.is_empty() {
            let key = varint(&mut from);
            let value = match key & 7 {
                0 => varint(&mut from).to_le_bytes().to_vec(),
                1 => take(&mut from, 8).to_vec(),
                5 => take(&mut from, 4).to_vec(),
                _ => {
                    let length = varint(&mut from);
                    take(&mut from, usize::try_from(length).unwrap()).to_vec()
                }
            };
            found.push((key >> 3, value));
        }
        found
    }

    fn records(path: &Path) -> Vec<Vec<(u64, Vec<u8>)>> {
        let bytes = fs::read(path).unwrap();
        let (mut from, mut found) = (bytes.as_slice(), Vec::new());
        while !from.is_empty() {
            let length = take(&mut from, 8);
            assert_eq!(take(&mut from, 4), checksum(length).to_le_bytes());
            let data =
                take(&mut from, usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap());
            assert_eq!(take(&mut from, 4), checksum(data).to_le_bytes());
            found.push(fields(data));
        }
        found
    }

    #[test]
    fn another_decoder_reads_what_was_written() {
        assert_eq!(masked_checksum(b"123456789"), checksum(b"123456789"));
        assert_eq!(CHECKSUM.checksum(b"123456789"), 0xe306_9283, "the published check value");
        let folder = tempfile::tempdir().unwrap();
        let mut log = EventLog::begin(&folder.path().join("runs"), 300, 1.5e9).unwrap();
        log.write(300, 1.5e9 + 0.25, &[("loss", 2.5), ("lr", 1e-3)]).unwrap();
        log.write(1 << 40, 1.5e9 + 1.0, &[]).unwrap();
        let wall = |seconds: f64| (1, seconds.to_le_bytes().to_vec());
        let step = |step: u64| (2, step.to_le_bytes().to_vec());
        let number = |tag: &str, number: f32| {
            let mut value = vec![0x0a, tag.len() as u8];
            value.extend(tag.as_bytes());
            value.push(0x15);
            value.extend(number.to_le_bytes());
            value
        };
        let records = records(&log.path);
        assert_eq!(records[0], [wall(1.5e9), step(0), (3, b"brain.Event:2".to_vec())]);
        assert_eq!(records[1], [wall(1.5e9), step(300), (7, vec![0x08, 1])]);
        assert_eq!(records[2][..2], [wall(1.5e9 + 0.25), step(300)]);
        assert_eq!(fields(&records[2][2].1), [(1, number("loss", 2.5)), (1, number("lr", 1e-3))]);
        assert_eq!(records[3], [wall(1.5e9 + 1.0), step(1 << 40), (5, Vec::new())]);
    }

    #[test]
    fn each_process_has_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let one = EventLog::begin(folder.path(), 0, 1.7e9).unwrap();
        let other = EventLog::begin(folder.path(), 50, 1.7e9).unwrap();
        assert_ne!(one.path, other.path);
        assert!(one.path.display().to_string().contains("events.out.tfevents.1700000000.ascend-tp."));
        assert_eq!((records(&one.path).len(), records(&other.path).len()), (1, 2));
        let message = EventLog::begin(&one.path, 0, 0.0).unwrap_err().to_string();
        assert!(message.contains("cannot be written"), "{message}");
    }
}
