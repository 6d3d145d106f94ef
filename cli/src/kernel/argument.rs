//! Arguments of a kernel launch.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use ascend_tp::base::Diagnostic;
use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KernelValue {
    Memory(MemoryArgument),
    /// Bytes of a scalar.
    Value(Vec<u8>),
    /// File with a structure to pass by value.
    Structure(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryArgument {
    pub(super) direction: MemoryUse,
    pub(super) element: ArgumentType,
    pub(super) count: usize,
    pub(super) source: MemorySource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    In,
    Out,
    InOut,
}

/// Source of the contents, or destination of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemorySource {
    Nothing,
    File(PathBuf),
    Random(u64),
    Expect(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentType {
    F32,
    F16,
    Bf16,
    /// Integer: size in bytes, signedness.
    Integer(usize, bool),
}

/// Memory of the largest card.
const MOST_BYTES: usize = 64 << 30;

const ELEMENTS: [(&str, ArgumentType); 11] = [
    ("f32", ArgumentType::F32),
    ("f16", ArgumentType::F16),
    ("bf16", ArgumentType::Bf16),
    ("i8", ArgumentType::Integer(1, true)),
    ("u8", ArgumentType::Integer(1, false)),
    ("i16", ArgumentType::Integer(2, true)),
    ("u16", ArgumentType::Integer(2, false)),
    ("i32", ArgumentType::Integer(4, true)),
    ("u32", ArgumentType::Integer(4, false)),
    ("i64", ArgumentType::Integer(8, true)),
    ("u64", ArgumentType::Integer(8, false)),
];

impl ArgumentType {
    fn find(name: &str) -> Result<Self, String> {
        let found = ELEMENTS.iter().find(|(known, _)| *known == name).map(|(_, element)| *element);
        let known = || ELEMENTS.map(|(name, _)| name).join(", ");
        found.ok_or_else(|| format!("unknown type `{name}`: expected one of {}", known()))
    }

    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Integer(bytes, _) => bytes,
        }
    }

    fn parse(self, text: &str) -> Result<Vec<u8>, String> {
        let wrong = |what: &str| format!("`{text}` is not a {what}");
        let float = || text.parse::<f32>().map_err(|_| wrong("number"));
        Ok(match self {
            Self::F32 => float()?.to_le_bytes().to_vec(),
            Self::F16 => f16::from_f32(float()?).to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f32(float()?).to_le_bytes().to_vec(),
            Self::Integer(bytes, has_sign) => {
                let value: i128 = text.parse().map_err(|_| wrong("whole number"))?;
                let bits = 8 * bytes as u32;
                let range = if has_sign { -(1_i128 << (bits - 1))..1 << (bits - 1) } else { 0..1 << bits };
                if !range.contains(&value) {
                    return Err(format!(
                        "{value} is out of range: expected {} to {}",
                        range.start,
                        range.end - 1
                    ));
                }
                value.to_le_bytes()[..bytes].to_vec()
            }
        })
    }

    /// Returns random floats from -1 to 1, or integers of the full range.
    fn random(self, seed: u64, count: usize) -> Vec<u8> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = Vec::with_capacity(count * self.bytes());
        for _ in 0..count {
            let unit: f32 = random.random_range(-1.0..1.0);
            match self {
                Self::F32 => bytes.extend(unit.to_le_bytes()),
                Self::F16 => bytes.extend(f16::from_f32(unit).to_le_bytes()),
                Self::Bf16 => bytes.extend(bf16::from_f32(unit).to_le_bytes()),
                Self::Integer(width, _) => bytes.extend(&random.random::<u64>().to_le_bytes()[..width]),
            }
        }
        bytes
    }
}

impl FromStr for KernelValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, rest) =
            text.split_once(':').ok_or("expected in|out|inout:TYPE:COUNT[:SOURCE] or TYPE:VALUE")?;
        let direction = match first {
            "in" => MemoryUse::In,
            "out" => MemoryUse::Out,
            "inout" => MemoryUse::InOut,
            "bytes" => return Ok(Self::Structure(rest.into())),
            other => return ArgumentType::find(other)?.parse(rest).map(Self::Value),
        };
        let mut words = rest.splitn(3, ':');
        let element = ArgumentType::find(words.next().unwrap_or_default())?;
        let count = words.next().and_then(|count| count.parse::<usize>().ok()).filter(|count| *count > 0);
        let count = count.ok_or_else(|| {
            format!("`{rest}` has no count: expected {first}:TYPE:COUNT with COUNT at least 1")
        })?;
        if count.checked_mul(element.bytes()).is_none_or(|bytes| bytes > MOST_BYTES) {
            return Err(format!("`{rest}` exceeds the {} GiB of a card", MOST_BYTES >> 30));
        }
        let source = source(direction, words.next())?;
        Ok(Self::Memory(MemoryArgument { direction, element, count, source }))
    }
}

fn source(direction: MemoryUse, text: Option<&str>) -> Result<MemorySource, String> {
    let source = match text {
        None | Some("") => MemorySource::Nothing,
        Some(text) => match text.split_once('=') {
            Some(("random", seed)) => {
                MemorySource::Random(seed.parse().map_err(|_| format!("`{seed}` is not a seed"))?)
            }
            Some(("expect", file)) => MemorySource::Expect(file.into()),
            _ => MemorySource::File(text.into()),
        },
    };
    match (direction, &source) {
        (MemoryUse::In | MemoryUse::InOut, MemorySource::Nothing | MemorySource::Expect(_)) => {
            Err("an input needs contents: expected FILE or random=SEED".to_owned())
        }
        (MemoryUse::Out, MemorySource::Random(_)) => {
            Err("`out` takes no contents: expected nothing, FILE or expect=FILE".to_owned())
        }
        _ => Ok(source),
    }
}

impl MemoryArgument {
    pub(super) fn len_bytes(&self) -> usize {
        self.element.bytes() * self.count
    }

    /// Returns the contents before the launch; `None` means arbitrary contents.
    pub(super) fn contents(&self) -> Result<Option<Vec<u8>>, Diagnostic> {
        match (&self.source, self.direction) {
            (MemorySource::Random(seed), _) => Ok(Some(self.element.random(*seed, self.count))),
            (MemorySource::File(path), MemoryUse::In | MemoryUse::InOut) => self.read(path).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the expected contents after the launch.
    pub(super) fn expected(&self) -> Result<Option<Vec<u8>>, Diagnostic> {
        match &self.source {
            MemorySource::Expect(path) => self.read(path).map(Some),
            _ => Ok(None),
        }
    }

    fn read(&self, path: &PathBuf) -> Result<Vec<u8>, Diagnostic> {
        let bytes = read(path)?;
        if bytes.len() == self.len_bytes() {
            return Ok(bytes);
        }
        Err(Diagnostic::new(format!("--arg {}", path.display()), "wrong file length")
            .expected(format!(
                "{} bytes: {} elements of {} bytes",
                self.len_bytes(),
                self.count,
                self.element.bytes()
            ))
            .found(bytes.len()))
    }
}

pub(super) fn read(path: &PathBuf) -> Result<Vec<u8>, Diagnostic> {
    fs::read(path)
        .map_err(|error| Diagnostic::new(format!("--arg {}", path.display()), "cannot be read").found(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_memory_or_values() {
        let memory = "in:bf16:24:random=7".parse::<KernelValue>().expect("memory");
        let expected = MemoryArgument {
            direction: MemoryUse::In,
            element: ArgumentType::Bf16,
            count: 24,
            source: MemorySource::Random(7),
        };
        assert_eq!(memory, KernelValue::Memory(expected));
        assert_eq!("i16:-2".parse(), Ok(KernelValue::Value(vec![0xfe, 0xff])));
        assert_eq!("f16:1".parse(), Ok(KernelValue::Value(vec![0, 0x3c])));
        for (wrong, says) in [
            ("f32", "expected in|out|inout"),
            ("f31:1", "unknown type `f31`"),
            ("u8:256", "256 is out of range: expected 0 to 255"),
            ("in:f32:0:x", "has no count"),
            ("out:f32:4611686018427387904", "exceeds the 64 GiB"),
            ("in:f32:8", "expected FILE or random=SEED"),
            ("out:f32:8:random=1", "expected nothing, FILE or expect=FILE"),
        ] {
            let said = wrong.parse::<KernelValue>().expect_err(wrong);
            assert!(said.contains(says), "{wrong}: {said}");
        }
    }
}
