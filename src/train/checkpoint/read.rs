//! A complete checkpoint, and any part of any of its tensors.
//!
//! Input → output: a folder → [`Checkpoint`], or every problem of it; a tensor and ranges → the
//! bytes, wherever the parts lie that have them. Invariants: files are as long as the index says,
//! which opening checks, and have the digest it says, which the first use of each checks; of the
//! data only what is wanted is read after that. Files stay open, so a checkpoint that is removed
//! meanwhile is read to the end.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::cover;
use super::folder;
use super::index::{ANOTHER, INDEX, Index, PartRecord, TensorRecord};
use super::newest::unreadable;
use super::rank_file::{digest_of, header_problem};
use super::sharding::{Sharding, add};
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};
use crate::placement::shard::runs::Runs;
use crate::placement::{Layout, Mesh};
use crate::weights::file;

/// Why tensors of a checkpoint do not fit a run.
const ANOTHER_RUN: &str =
    "the checkpoint is of another model, optimizer or precision: resume with the options of its run";

/// Bytes between two runs that are read along, because another call to the system would take
/// longer.
const GAP_BYTES: usize = 16 << 10;

/// Bytes of runs that are read at once, at most, where they do not lie together.
const BATCH_BYTES: usize = 1 << 20;

/// An opened checkpoint. Reading takes `&self`; ranks of a process share one.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    index: Index,
    mesh: Mesh,
    files: Vec<StoredFile>,
}

#[derive(Debug)]
struct StoredFile {
    file: File,
    /// Whether it is what was written, once somebody has looked.
    checked: OnceLock<Result<(), Diagnostic>>,
}

impl Checkpoint {
    /// The checkpoint with the most steps in a run's folder; none if there is no complete one, or
    /// no folder.
    ///
    /// # Errors
    /// As for [`Checkpoint::open`]: a newest one that is damaged is not passed over in silence.
    pub fn latest(folder: &Path) -> Result<Option<Self>, Diagnostics> {
        let complete = folder::complete(folder).map_err(|error| unreadable(folder, &error))?;
        complete.last().map(|(_, path)| Self::open(path)).transpose()
    }

    /// Opens one checkpoint: its folder.
    ///
    /// # Errors
    /// No index, or one that was altered; every file that is missing or not as long as the index
    /// says.
    pub fn open(path: &Path) -> Result<Self, Diagnostics> {
        let place = path.join(INDEX).display().to_string();
        let text = file::read_text(&path.join(INDEX)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Diagnostic::new(path.display().to_string(), "no checkpoint")
                .expected(format!("a folder with {INDEX}, which a complete one has"))
                .found(if path.is_dir() { "none in it" } else { "no such folder" }),
            _ => Diagnostic::new(&place, "cannot be read").found(error),
        })?;
        let index = Index::read(&place, &text)?;
        let mut problems = Diagnostics::new();
        let mut files = Vec::new();
        for record in &index.files {
            let problem = |what: &str| {
                let place = path.join(&record.name).display().to_string();
                Diagnostic::new(place, what).expected(format!("{} bytes", record.bytes)).help(ANOTHER)
            };
            match file::open(&path.join(&record.name)).and_then(|file| Ok((file.metadata()?.len(), file))) {
                Ok((length, file)) if length == record.bytes => {
                    files.push(StoredFile { file, checked: OnceLock::new() });
                }
                Ok((length, _)) => problems.push(problem("torn or altered").found(format!("{length} bytes"))),
                Err(error) => problems.push(problem("cannot be read").found(error)),
            }
        }
        problems.into_result(())?;
        // An index that was read has one.
        let mesh = index.mesh().ok_or_else(|| Diagnostic::new(&place, "not a mesh").found(&index.mesh))?;
        Ok(Self { path: path.to_path_buf(), index, mesh, files })
    }

    /// Opens what somebody names: a checkpoint, or a run's folder, whose newest it is.
    ///
    /// # Errors
    /// As for [`Checkpoint::open`], or there is none.
    pub fn named(path: &Path) -> Result<Self, Diagnostics> {
        if path.join(INDEX).exists() {
            return Self::open(path);
        }
        match Self::latest(path)? {
            Some(checkpoint) => Ok(checkpoint),
            None => Self::open(path),
        }
    }

    /// Checks that a run holds the tensors of this checkpoint, before any of them is read.
    ///
    /// # Errors
    /// Every tensor that the checkpoint lacks or has in another shape or type, and every tensor
    /// that the run does not have, unless `is_spare` says of its name that a run can do without it.
    pub fn check(&self, run: &Sharding, is_spare: impl Fn(&str) -> bool) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        for tensor in run.tensors() {
            if let Err(problem) = self.tensor(&tensor.name, &tensor.shape, tensor.dtype) {
                problems.push(problem);
            }
        }
        for (name, record) in self.index.tensors.iter().filter(|(name, _)| !run.has(name) && !is_spare(name))
        {
            let found = format!("{} {}", record.dtype, record.shape());
            let problem = Diagnostic::new(self.place(name), "unexpected tensor").expected("no such tensor");
            problems.push(problem.found(found).help(ANOTHER_RUN));
        }
        problems.into_result(())
    }

    fn place(&self, name: &str) -> String {
        format!("{}: {name}", self.path.display())
    }

    /// The record of a tensor, whose whole sizes and type are given.
    fn tensor(&self, name: &str, shape: &Shape, dtype: DType) -> Result<&TensorRecord, Diagnostic> {
        let problem = |what: &str| {
            Diagnostic::new(self.place(name), what).expected(format!("{dtype} {shape}")).help(ANOTHER_RUN)
        };
        let Some(tensor) = self.index.tensors.get(name) else {
            return Err(problem("missing tensor").found("no tensor of this name"));
        };
        if (tensor.dtype(), &tensor.shape()) != (Some(dtype), shape) {
            let found = format!("{} {}", tensor.dtype, tensor.shape());
            return Err(problem("another tensor than the program's").found(found));
        }
        Ok(tensor)
    }

    /// The folder it was opened from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All that it says about itself: step, files, tensors and the run's state.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// The mesh it was written on.
    #[must_use]
    pub const fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.index.files.iter().map(|file| Bytes(file.bytes)).sum()
    }

    /// A part of a tensor, whose whole sizes and type are given: the elements inside `ranges`, one
    /// a dim, row-major. Of a sum that ranks held parts of, the whole sum.
    ///
    /// # Errors
    /// No tensor of this name, or of other sizes or another type: nothing is converted. A file that
    /// has some of it was altered or cannot be read.
    pub fn read(
        &self,
        name: &str,
        shape: &Shape,
        dtype: DType,
        ranges: &[Range<usize>],
    ) -> Result<Vec<u8>, Diagnostics> {
        self.read_summand(name, shape, dtype, ranges, (0, 1))
    }

    /// As [`Checkpoint::read`], for a rank that is to hold part `which` of `count` of a sum: what a
    /// rank had of one that was in as many parts, else an equal share of the whole sum.
    ///
    /// # Errors
    /// As for [`Checkpoint::read`].
    pub fn read_summand(
        &self,
        name: &str,
        shape: &Shape,
        dtype: DType,
        ranges: &[Range<usize>],
        (which, count): (usize, usize),
    ) -> Result<Vec<u8>, Diagnostics> {
        let tensor = self.tensor(name, shape, dtype)?;
        if !cover::is_inside(ranges, shape) {
            let found = cover::text(ranges);
            return Err(Diagnostic::new(self.place(name), "ranges outside the tensor")
                .expected(shape)
                .found(found)
                .into());
        }
        // An index that was read has layouts on its mesh.
        let layout = Layout::parse(&tensor.layout, shape.rank(), &self.mesh.axis_names());
        let layout = layout.unwrap_or_else(|_| Layout::replicated(shape.rank()));
        let stored = layout.summands(&self.mesh);
        let of = |summand| self.read_parts(tensor, &layout, summand, (dtype, ranges));
        if stored == count {
            return of(which);
        }
        let mut sum = of(0)?;
        for summand in 1..stored {
            add(&mut sum, &of(summand)?);
        }
        for number in sum.as_chunks_mut::<4>().0 {
            *number = (f32::from_le_bytes(*number) / count as f32).to_le_bytes();
        }
        Ok(sum)
    }

    /// Of one part of a sum, or of a tensor that is none, the elements inside `ranges`.
    fn read_parts(
        &self,
        tensor: &TensorRecord,
        layout: &Layout,
        summand: usize,
        (dtype, ranges): (DType, &[Range<usize>]),
    ) -> Result<Vec<u8>, Diagnostics> {
        let mut out = vec![0; cover::volume(ranges) * dtype.size_bytes()];
        let mut problems = Diagnostics::new();
        for part in tensor.parts.iter().filter(|part| layout.summand(&self.mesh, part.file) == summand) {
            let Some(runs) = Runs::of_shared(&part.ranges(), ranges) else { continue };
            let copied = self.check_file(part.file).and_then(|()| {
                self.copy(part, runs, dtype.size_bytes(), &mut out).map_err(|error| {
                    Diagnostic::new(self.file_path(part.file), "cannot be read").found(error)
                })
            });
            if let Err(problem) = copied {
                problems.push(problem);
            }
        }
        problems.into_result(out)
    }

    /// A whole tensor, as it is stored.
    ///
    /// # Errors
    /// As for [`Checkpoint::read`].
    pub fn read_whole(&self, name: &str) -> Result<(Shape, DType, Vec<u8>), Diagnostics> {
        let tensor = self.index.tensors.get(name).and_then(|tensor| Some((tensor.shape(), tensor.dtype()?)));
        let (shape, dtype) = tensor
            .ok_or_else(|| Diagnostic::new(format!("{}: {name}", self.path.display()), "missing tensor"))?;
        let ranges: Vec<Range<usize>> = shape.iter().map(|size| 0..*size).collect();
        let bytes = self.read(name, &shape, dtype, &ranges)?;
        Ok((shape, dtype, bytes))
    }

    /// Reads every byte of every file.
    ///
    /// # Errors
    /// Every file that is not what was written, or whose own header is not of the parts that the
    /// index says it has.
    pub fn verify(&self) -> Result<(), Diagnostics> {
        self.verify_share(0, 1)
    }

    /// As [`Checkpoint::verify`], for every `count`-th file from file `first` on.
    pub(super) fn verify_share(&self, first: usize, count: usize) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        for (number, stored) in self.files.iter().enumerate().skip(first).step_by(count.max(1)) {
            let unreadable = |error| Diagnostic::new(self.file_path(number), "cannot be read").found(error);
            let checked = self.check_file(number).and_then(|()| {
                match header_problem(&stored.file, &self.index, number).map_err(unreadable)? {
                    Some(problem) => Err(Diagnostic { place: self.file_path(number), ..problem }),
                    None => Ok(()),
                }
            });
            if let Err(problem) = checked {
                problems.push(problem);
            }
        }
        problems.into_result(())
    }

    /// Whether a file is what was written; looks once.
    fn check_file(&self, number: usize) -> Result<(), Diagnostic> {
        let (stored, record) = (&self.files[number], &self.index.files[number]);
        let check = || match digest_of(&stored.file, record.bytes) {
            Ok(found) if found == record.digest => Ok(()),
            Ok(found) => Err(Diagnostic::new(self.file_path(number), "torn or altered")
                .expected(format!("digest {}", record.digest))
                .found(found)
                .help(ANOTHER)),
            Err(error) => {
                Err(Diagnostic::new(self.file_path(number), "cannot be read").found(error).help(ANOTHER))
            }
        };
        stored.checked.get_or_init(check).clone()
    }

    fn file_path(&self, number: usize) -> String {
        self.path.join(&self.index.files[number].name).display().to_string()
    }

    /// Copies what a part has of `out`. Runs that lie close together are read with what is between
    /// them.
    fn copy(&self, part: &PartRecord, [from, to]: [Runs; 2], size: usize, out: &mut [u8]) -> io::Result<()> {
        let file = &self.files[part.file].file;
        let length = from.length() * size;
        let mut places = from.zip(to).map(|(from, to)| (from * size, to * size)).peekable();
        let (mut batch, mut raw) = (Vec::new(), Vec::new());
        while let Some((first, to)) = places.next() {
            batch.clear();
            batch.push((first, to));
            let mut end = first + length;
            while let Some(next) =
                places.next_if(|(from, _)| from - end <= GAP_BYTES && from + length - first <= BATCH_BYTES)
            {
                end = next.0 + length;
                batch.push(next);
            }
            let at = part.at + first as u64;
            if let [(_, to)] = batch[..] {
                file.read_exact_at(&mut out[to..to + length], at)?;
                continue;
            }
            raw.resize(end - first, 0);
            file.read_exact_at(&mut raw, at)?;
            for (from, to) in &batch {
                out[*to..to + length].copy_from_slice(&raw[from - first..][..length]);
            }
        }
        Ok(())
    }
}
