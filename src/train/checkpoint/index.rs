//! Contents of a checkpoint, stored in `index.json`.
//!
//! The text has a digest of itself. In an index that was read, every part is inside its tensor and
//! its file, and the parts of a tensor have every element once.
//!
//! XXH3 digests of 128 bits detect torn writes, flipped bits and files of another run, at memory
//! speed. They do not protect against deliberate forgery.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twox_hash::xxhash3_128::Hasher;

use super::cover;
use super::sharding::{NOT_THE_SOURCE, is_saved};
use crate::base::{DType, Diagnostic, Diagnostics, Shape};
use crate::placement::{Layout, Mesh};
use crate::program::{Form, Source};

pub(super) const INDEX: &str = "index.json";

pub(super) const FORMAT: u32 = 1;

/// Placeholder while the digest of the index is computed.
const UNSEALED: &str = "00000000000000000000000000000000";

/// Description of a checkpoint, the contents of `index.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// Version of the index format.
    pub format: u32,
    /// XXH3-128 of this text, with zeros for the digest.
    digest: String,
    /// Number of completed steps of the run.
    pub step: u64,
    /// Mesh of the writing run, such as `mesh dp=2, tp=4`.
    pub mesh: String,
    /// Number of ranks of the mesh.
    pub world: usize,
    /// Files of all ranks, in rank order.
    pub files: Vec<FileRecord>,
    /// Tensors by their names in the run.
    pub tensors: BTreeMap<String, TensorRecord>,
    /// Further state of the run, in its own format.
    pub state: Value,
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Name within the checkpoint folder.
    pub name: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// XXH3-128 in hexadecimal digits.
    pub digest: String,
}

/// One tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorRecord {
    /// Shape of the whole tensor.
    pub shape: Vec<usize>,
    /// Element type, from [`DType::name`].
    pub dtype: String,
    /// Layout of the tensor on the mesh.
    pub layout: String,
    /// Source in the model's files, for weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRecord>,
    /// Parts of the tensor by file.
    pub parts: Vec<PartRecord>,
}

/// Position of a tensor in the model's files, or of a stack of tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    /// Name of the tensor in the model's files, or the pattern of a stack; see
    /// [`TensorNames`](crate::program::TensorNames).
    pub tensor: String,
    /// First element within each tensor.
    pub element_offset: usize,
    /// Order of the dims in the tensor, if it differs, such as `dims/0,21,3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
}

impl SourceRecord {
    /// Returns the record of a source.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        let Source { tensor, element_offset, form } = source;
        let form = (*form != Form::Numbers).then(|| form.to_string());
        Self { tensor: tensor.clone(), element_offset: *element_offset, form }
    }
}

/// Stored part of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRecord {
    /// Index of the file with the part.
    pub file: usize,
    /// Byte offset in the file.
    pub at: u64,
    /// Start and end of the part by dim.
    pub ranges: Vec<(usize, usize)>,
}

impl TensorRecord {
    /// Returns the whole tensor's shape.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape::from(self.shape.as_slice())
    }

    /// Returns the element type, if known.
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        self.dtype.parse().ok()
    }

    /// Returns the position in the model's files. `None` if there is none, or if its form is not
    /// known, which the reader of an index refuses.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        let SourceRecord { tensor, element_offset, form } = self.source.clone()?;
        let form = form.map_or(Some(Form::Numbers), |form| Form::parse(&form))?;
        Some(Source { tensor, element_offset, form })
    }
}

impl PartRecord {
    /// Returns the ranges within the tensor.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<usize>> {
        self.ranges.iter().map(|(start, end)| *start..*end).collect()
    }
}

impl Index {
    pub(super) fn new(
        step: u64,
        mesh: &Mesh,
        files: Vec<FileRecord>,
        tensors: BTreeMap<String, TensorRecord>,
        state: Value,
    ) -> Self {
        let (mesh, world) = (mesh.to_string(), mesh.cards());
        Self { format: FORMAT, digest: UNSEALED.to_owned(), step, mesh, world, files, tensors, state }
    }

    pub(super) fn mesh(&self) -> Option<Mesh> {
        Mesh::parse(&self.mesh).ok()
    }

    /// Returns the text with its digest.
    pub(super) fn sealed(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string(&Self { digest: UNSEALED.to_owned(), ..self.clone() })?;
        Ok(text.replacen(UNSEALED, &digest(text.as_bytes()), 1))
    }

    /// Parses an index. `place` names the file in messages.
    pub(super) fn read(place: &str, text: &str) -> Result<Self, Diagnostics> {
        #[derive(Deserialize)]
        struct FormatVersion {
            format: u32,
        }
        let unreadable = |error: serde_json::Error| {
            Diagnostic::new(place, "not the index of a checkpoint, or incomplete").found(error)
        };
        let FormatVersion { format } = serde_json::from_str(text).map_err(unreadable)?;
        if format != FORMAT {
            return Err(Diagnostic::new(place, "another version of the format")
                .expected(FORMAT)
                .found(format)
                .help("read it with the program version that wrote it")
                .into());
        }
        let index: Self = serde_json::from_str(text).map_err(unreadable)?;
        let found = digest(text.replacen(&index.digest, UNSEALED, 1).as_bytes());
        if found != index.digest {
            return Err(Diagnostic::new(place, "altered since it was written")
                .expected(format!("digest {}", index.digest))
                .found(found)
                .help(ANOTHER)
                .into());
        }
        let mut problems = Diagnostics::new();
        index.check(place, &mut problems);
        problems.into_result(index)
    }

    fn check(&self, place: &str, problems: &mut Diagnostics) {
        let mesh = match Mesh::parse(&self.mesh) {
            Ok(mesh) if mesh.cards() == self.world && self.files.len() == self.world => mesh,
            Ok(mesh) => {
                let found = format!("world {} and {} files", self.world, self.files.len());
                let expected = format!("{} of each, the cards of {}", mesh.cards(), self.mesh);
                problems.push(
                    Diagnostic::new(place, "the number of ranks is not the number of cards")
                        .expected(expected)
                        .found(found),
                );
                return;
            }
            Err(error) => {
                problems.push(Diagnostic::new(place, "not a mesh").found(error));
                return;
            }
        };
        for file in &self.files {
            if std::path::Path::new(&file.name).file_name().is_none_or(|name| name != file.name.as_str()) {
                problems.push(
                    Diagnostic::new(place, "not the name of a file in the same folder").found(&file.name),
                );
            }
        }
        for (name, tensor) in &self.tensors {
            if let Err(problem) = self.check_tensor(tensor, &mesh) {
                problems.push(Diagnostic { place: format!("{place}: {name}"), ..problem });
            }
        }
    }

    fn check_tensor(&self, tensor: &TensorRecord, mesh: &Mesh) -> Result<(), Diagnostic> {
        let problem = |what: &str| Diagnostic::new("", what);
        let dtype: DType =
            tensor.dtype.parse().map_err(|error| problem("not an element type").found(error))?;
        let shape = tensor.shape();
        let elems = shape.iter().try_fold(dtype.size_bytes(), |bytes, size| bytes.checked_mul(*size));
        if elems.is_none() {
            return Err(problem("more elements than a machine can count").found(&shape));
        }
        let layout = Layout::parse(&tensor.layout, shape.rank(), &mesh.axis_names())
            .map_err(|error| problem("not a layout on the mesh").found(error))?;
        if !is_saved(&layout, dtype) {
            let found = format!("`{}` of {dtype}", tensor.layout);
            return Err(problem("parts of a reduction that cannot be joined")
                .expected("parts of a sum of f32")
                .found(found));
        }
        match (&tensor.source, tensor.source()) {
            (Some(SourceRecord { form: Some(form), .. }), None) => {
                return Err(problem("not a form of a weight in the model's files").found(form));
            }
            (_, Some(source)) => {
                source.stack(&shape).map_err(|reason| problem(NOT_THE_SOURCE).found(reason))?;
            }
            (_, None) => {}
        }
        let parts: Vec<Vec<Range<usize>>> = tensor.parts.iter().map(PartRecord::ranges).collect();
        for (part, ranges) in tensor.parts.iter().zip(&parts) {
            if !cover::is_inside(ranges, &shape) {
                return Err(problem("a part outside the tensor").expected(&shape).found(cover::text(ranges)));
            }
            let bytes = (cover::volume(ranges) * dtype.size_bytes()) as u64;
            let file = self.files.get(part.file);
            if file.is_none_or(|file| part.at.checked_add(bytes).is_none_or(|end| end > file.bytes)) {
                let found = format!("{bytes} bytes from {} on in file {}", part.at, part.file);
                return Err(problem("a part outside its file").found(found));
            }
        }
        for summand in 0..layout.summands(mesh) {
            let is_of = |part: &PartRecord| layout.summand(mesh, part.file) == summand;
            let parts = tensor.parts.iter().zip(&parts).filter(|(part, _)| is_of(part));
            if let Some((expected, found)) =
                cover::problem(&shape, &parts.map(|(_, ranges)| ranges.as_slice()).collect::<Vec<_>>())
            {
                return Err(problem("the parts are not the whole tensor").expected(expected).found(found));
            }
        }
        Ok(())
    }
}

pub(super) const ANOTHER: &str =
    "restore a copy, or continue from an earlier checkpoint (train --resume --skip-damaged)";

/// Returns XXH3-128 in the form of `xxh128sum`.
pub(super) fn digest(bytes: &[u8]) -> String {
    let mut hasher = Hasher::new();
    hasher.write(bytes);
    digits(&hasher)
}

pub(super) fn digits(hasher: &Hasher) -> String {
    format!("{:032x}", hasher.finish_128())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn index() -> Index {
        let mesh = Mesh::new(&[("tp", 2)]).unwrap();
        let file = |rank: usize| FileRecord { name: format!("rank-{rank}"), bytes: 100, digest: digest(&[]) };
        let part = |file, at, rows| PartRecord { file, at, ranges: vec![rows, (0, 3)] };
        let tensor = TensorRecord {
            shape: vec![4, 3],
            dtype: "f32".into(),
            layout: "tp,_".into(),
            source: Some(SourceRecord { tensor: "w".into(), element_offset: 12, form: None }),
            parts: vec![part(0, 64, (0, 2)), part(1, 64, (2, 4))],
        };
        let state = json!({"scale": 65536.0, "seed": u64::MAX, "loss": 0.1 + 0.2, "digest": UNSEALED});
        Index::new(7, &mesh, vec![file(0), file(1)], [("a".to_owned(), tensor)].into(), state)
    }

    fn refused(change: impl FnOnce(&mut Index)) -> String {
        let mut changed = index();
        change(&mut changed);
        Index::read("index.json", &changed.sealed().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let text = index().sealed().unwrap();
        let read = Index::read("index.json", &text).unwrap();
        assert_eq!(read.sealed().unwrap(), text);
        assert_eq!((read.step, &read.tensors, &read.state), (7, &index().tensors, &index().state));
        assert_eq!(read.tensors["a"].source().unwrap().to_string(), "from \"w\"+12");
        // Published digest of no bytes.
        assert_eq!(digest(b""), "99aa06d3014798d86001c324468d497f");
    }

    #[test]
    fn a_text_that_was_altered_anywhere_is_refused() {
        let text = index().sealed().unwrap();
        for at in 0..text.len() {
            for with in *b"1\" " {
                let mut altered = text.clone().into_bytes();
                if altered[at] == with {
                    continue;
                }
                altered[at] = with;
                let altered = String::from_utf8(altered).unwrap();
                let error = Index::read("index.json", &altered).unwrap_err().to_string();
                let is_located = error
                    .starts_with("index.json: altered since it was written: expected digest")
                    || error.starts_with("index.json: not the index of a checkpoint, or incomplete: found")
                    || error.starts_with("index.json: another version of the format: expected 1, found");
                assert!(is_located, "{at}: {error}");
            }
            assert!(Index::read("index.json", &text[..at]).is_err());
        }
    }

    #[test]
    fn parts_that_are_no_whole_are_refused() {
        let tensor =
            |index: &mut Index, change: fn(&mut TensorRecord)| change(index.tensors.get_mut("a").unwrap());
        for (change, expected) in [
            (
                (|tensor| tensor.parts.truncate(1)) as fn(&mut TensorRecord),
                "index.json: a: the parts are not the whole tensor: expected parts that have all 12 elements, found 6 elements",
            ),
            (
                |tensor| tensor.parts[1].ranges[0].0 = 1,
                "a: the parts are not the whole tensor: expected parts that share no",
            ),
            (
                |tensor| tensor.parts[1].ranges[0].1 = 5,
                "a: a part outside the tensor: expected [4,3], found 2..5,0..3",
            ),
            (
                |tensor| tensor.parts[0].file = 2,
                "a: a part outside its file: found 24 bytes from 64 on in file 2",
            ),
            (
                |tensor| tensor.parts[0].at = 77,
                "a: a part outside its file: found 24 bytes from 77 on in file 0",
            ),
            (|tensor| tensor.parts[0].at = u64::MAX, "a: a part outside its file"),
            (|tensor| tensor.shape[0] = usize::MAX, "a: more elements than a machine can count"),
            (|tensor| tensor.dtype = "f8".into(), "a: not an element type: found `f8`"),
            (
                |tensor| tensor.layout = "dp,_".into(),
                "a: not a layout on the mesh: found the mesh has no axis `dp`",
            ),
        ] {
            let message = refused(|index| tensor(index, change));
            assert!(message.contains(expected), "{message}");
        }
        let message = refused(|index| index.world = 3);
        assert!(
            message.contains(
                "the number of ranks is not the number of cards: expected 2 of each, the cards of mesh tp=2"
            ),
            "{message}"
        );
        assert!(refused(|index| index.mesh = "tp".into()).contains("not a mesh: found `tp` is not a mesh"));
        assert!(refused(|index| index.files[0].name = "../x".into()).contains("not the name of a file"));
        assert!(
            refused(|index| index.format = 2).contains("another version of the format: expected 1, found 2")
        );
    }
}
