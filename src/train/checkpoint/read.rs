//! Reading of complete checkpoints.
//!
//! - Input: a folder, then the name of a tensor and ranges.
//! - Output: a [`Checkpoint`] or every problem of the folder, then the bytes of the ranges from all
//!   parts that have them.
//! - Invariants: opening checks the lengths of the files. The first use of a file checks its
//!   digest; later reads access only the requested data. Files stay open, so a checkpoint that is
//!   removed meanwhile remains readable.

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

/// Help if the tensors of a checkpoint do not fit a run.
const ANOTHER_RUN: &str =
    "the checkpoint is of another model, optimizer or precision: resume with the options of its run";

/// Largest gap in bytes that is read along with its neighbours. A second system call would take
/// longer.
const GAP_BYTES: usize = 16 << 10;

/// Largest number of bytes in one read of ranges with gaps.
const BATCH_BYTES: usize = 1 << 20;

/// An open checkpoint. Reads take `&self`, so the ranks of a process share one.
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
    /// Result of the digest check, after the first use of the file.
    checked: OnceLock<Result<(), Diagnostic>>,
}

impl Checkpoint {
    /// Opens the complete checkpoint with the most steps in the folder of a run. Returns `None` if
    /// there is no complete checkpoint or no folder.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`]. A damaged newest checkpoint is not skipped.
    pub fn latest(folder: &Path) -> Result<Option<Self>, Diagnostics> {
        let complete = folder::complete(folder).map_err(|error| unreadable(folder, &error))?;
        complete.last().map(|(_, path)| Self::open(path)).transpose()
    }

    /// Opens the checkpoint in a folder.
    ///
    /// # Errors
    /// The index is missing or was altered, or a file is missing or has another length. All such
    /// files are listed.
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
        // An index that was read always has a valid mesh.
        let mesh = index.mesh().ok_or_else(|| Diagnostic::new(&place, "not a mesh").found(&index.mesh))?;
        Ok(Self { path: path.to_path_buf(), index, mesh, files })
    }

    /// Opens a checkpoint, or the newest checkpoint in the folder of a run.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`], or the folder has no checkpoint.
    pub fn named(path: &Path) -> Result<Self, Diagnostics> {
        if path.join(INDEX).exists() {
            return Self::open(path);
        }
        match Self::latest(path)? {
            Some(checkpoint) => Ok(checkpoint),
            None => Self::open(path),
        }
    }

    /// Checks that a run has the tensors of this checkpoint, without reading tensor data.
    ///
    /// # Errors
    /// Every tensor that the checkpoint lacks or has with another shape or type. Also every tensor
    /// that the run lacks, unless `is_spare` returns true for its name.
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

    /// Returns the record of a tensor after checking its shape and type.
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

    /// Returns the folder of the checkpoint.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the index: step, files, tensors and the state of the run.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the mesh of the run that wrote the checkpoint.
    #[must_use]
    pub const fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the total size of all files.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.index.files.iter().map(|file| Bytes(file.bytes)).sum()
    }

    /// Reads the elements of a tensor inside `ranges`, row-major. There is one range per dim.
    /// `shape` and `dtype` describe the whole tensor. If the ranks had partial sums, the result is
    /// the whole sum.
    ///
    /// # Errors
    /// No tensor has this name, shape and type, because nothing is converted. Or a file with some
    /// of the elements was altered or cannot be read.
    pub fn read(
        &self,
        name: &str,
        shape: &Shape,
        dtype: DType,
        ranges: &[Range<usize>],
    ) -> Result<Vec<u8>, Diagnostics> {
        self.read_summand(name, shape, dtype, ranges, (0, 1))
    }

    /// Reads elements for a rank that will hold partial sum `which` of `count`. If the checkpoint
    /// has `count` partial sums, the result is partial sum `which`. Otherwise the result is an
    /// equal share of the whole sum.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::read`].
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
        // An index that was read has only layouts on its mesh.
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

    /// Reads the elements inside `ranges` of one partial sum. A tensor without partial sums has
    /// only summand 0.
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

    /// Reads a whole tensor in its stored type.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::read`].
    pub fn read_whole(&self, name: &str) -> Result<(Shape, DType, Vec<u8>), Diagnostics> {
        let tensor = self.index.tensors.get(name).and_then(|tensor| Some((tensor.shape(), tensor.dtype()?)));
        let (shape, dtype) = tensor
            .ok_or_else(|| Diagnostic::new(format!("{}: {name}", self.path.display()), "missing tensor"))?;
        let ranges: Vec<Range<usize>> = shape.iter().map(|size| 0..*size).collect();
        let bytes = self.read(name, &shape, dtype, &ranges)?;
        Ok((shape, dtype, bytes))
    }

    /// Reads and checks every byte of every file.
    ///
    /// # Errors
    /// Every file that was altered, or has a header that does not match the index.
    pub fn verify(&self) -> Result<(), Diagnostics> {
        self.verify_share(0, 1)
    }

    /// Runs [`Checkpoint::verify`] on every `count`-th file, from file `first` on.
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

    /// Checks the digest of a file. Only the first call reads the file.
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

    /// Copies the elements that a part shares with `out`. Contiguous ranges with small gaps are
    /// read at once, including the gaps.
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
