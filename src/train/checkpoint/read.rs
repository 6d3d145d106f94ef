//! Reading of complete checkpoints.
//!
//! Opening checks the lengths of the files, and the first use of a file checks its digest. Later
//! reads access only the requested data. Files stay open, so a checkpoint that is removed meanwhile
//! remains readable.

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
use super::sharding::{Sharding, Summand, add};
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};
use crate::placement::shard::runs::Runs;
use crate::placement::{Layout, Mesh};
use crate::weights::file;

const ANOTHER_RUN: &str =
    "the checkpoint is of another model, optimizer or precision: resume with the options of the saved run";

/// Largest gap that is read too: another system call would take longer.
const GAP_BYTES: usize = 16 << 10;

/// Largest read with gaps, in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Open checkpoint, which the ranks of a process share.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # use ascend_tp::{Cann, ModelConfig, ProcessGroup, World};
/// use ascend_tp::train::{Batch, Checkpoint, Layout, Recipe, Trainer, Writer, Zero};
///
/// # let cann = Cann::new(Emulator::new(Config::with_cards(2))?.table())?;
/// # let config = std::fs::read_to_string("models/tiny-qwen2/config.json")?;
/// # let config = ModelConfig::from_json(&config)?;
/// # let recipe = Recipe { steps: 2, global_batch: 2, seq: 8, ..Recipe::default() };
/// # let folder = tempfile::tempdir()?;
/// # let mut trainer = Trainer::of_seed(&cann, &config, 7).recipe(recipe.clone()).start()?;
/// # trainer.step(&Batch::scattered(0, 2, 8, 512))?;
/// # let group = std::sync::Arc::new(ProcessGroup::join(&World::alone())?);
/// # let mut writer = Writer::new(folder.path(), None, trainer.sharding().clone(), group)?;
/// # let state = serde_json::to_value(trainer.progress())?;
/// # writer.begin(1, state, trainer.checkpoint_parts()?)?;
/// # writer.finish()?;
/// # let progress = trainer.progress();
/// # drop(trainer);
/// // `folder` has the checkpoint of a run on one card. The run continues on two.
/// let checkpoint = Checkpoint::latest(folder.path())?.expect("a checkpoint");
/// let layout = Layout { data: 2, zero: Zero::Moments, ..Layout::ONE };
/// let builder = Trainer::of_seed(&cann, &config, 7).recipe(recipe).layout(layout);
/// let mut trainer = builder.resume(&checkpoint, progress).start()?;
/// trainer.step(&Batch::scattered(1, 2, 8, 512))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// Result of the digest check.
    checked: OnceLock<Result<(), Diagnostic>>,
}

impl Checkpoint {
    /// Opens the newest complete checkpoint of a run, if there is any.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`]. A damaged checkpoint is not skipped.
    pub fn latest(folder: &Path) -> Result<Option<Self>, Diagnostics> {
        let complete = folder::complete(folder).map_err(|error| unreadable(folder, &error))?;
        complete.last().map(|(_, path)| Self::open(path)).transpose()
    }

    /// Opens the checkpoint in a folder.
    ///
    /// # Errors
    /// The index is missing or altered, or files are missing or have other lengths.
    pub fn open(path: &Path) -> Result<Self, Diagnostics> {
        let place = path.join(INDEX).display().to_string();
        let text = file::read_text(&path.join(INDEX)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Diagnostic::new(path.display().to_string(), "no checkpoint")
                .expected(format!("a folder with {INDEX}, as in a complete checkpoint"))
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
        let mesh = index.mesh().ok_or_else(|| Diagnostic::new(&place, "not a mesh").found(&index.mesh))?;
        Ok(Self { path: path.to_path_buf(), index, mesh, files })
    }

    /// Opens a checkpoint, or the newest one of a run's folder.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`], or the folder has none.
    #[doc(hidden)]
    pub fn named(path: &Path) -> Result<Self, Diagnostics> {
        if path.join(INDEX).exists() {
            return Self::open(path);
        }
        match Self::latest(path)? {
            Some(checkpoint) => Ok(checkpoint),
            None => Self::open(path),
        }
    }

    /// Checks that a run has the tensors of this checkpoint, without reading data.
    ///
    /// # Errors
    /// Every tensor that is missing or differs in shape or type, and every tensor that the run
    /// lacks, unless `is_spare` allows it.
    #[doc(hidden)]
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

    /// Returns the record of a tensor with this shape and type.
    fn tensor(&self, name: &str, shape: &Shape, dtype: DType) -> Result<&TensorRecord, Diagnostic> {
        let problem = |what: &str| {
            Diagnostic::new(self.place(name), what).expected(format!("{dtype} {shape}")).help(ANOTHER_RUN)
        };
        let Some(tensor) = self.index.tensors.get(name) else {
            return Err(problem("missing tensor").found("no tensor of this name"));
        };
        if (tensor.dtype(), &tensor.shape()) != (Some(dtype), shape) {
            let found = format!("{} {}", tensor.dtype, tensor.shape());
            return Err(problem("a different tensor than in the program").found(found));
        }
        Ok(tensor)
    }

    /// Returns the folder of the checkpoint.
    #[must_use]
    #[doc(hidden)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the index of the checkpoint.
    #[must_use]
    #[doc(hidden)]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the mesh of the writing run.
    #[must_use]
    #[doc(hidden)]
    pub const fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the total size of all files.
    #[must_use]
    #[doc(hidden)]
    pub fn bytes(&self) -> Bytes {
        self.index.files.iter().map(|file| Bytes(file.bytes)).sum()
    }

    /// Reads elements inside `ranges`, row-major, of a tensor with this whole shape and type.
    /// Partial sums are added.
    ///
    /// # Errors
    /// No tensor has this name, shape and type, or a file was altered or cannot be read.
    #[doc(hidden)]
    pub fn read(
        &self,
        name: &str,
        shape: &Shape,
        dtype: DType,
        ranges: &[Range<usize>],
    ) -> Result<Vec<u8>, Diagnostics> {
        self.read_summand(name, shape, dtype, ranges, Summand::WHOLE)
    }

    /// Reads one partial sum of a tensor. If the checkpoint has another number of partial sums,
    /// the result is an equal share of the whole sum.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::read`].
    #[doc(hidden)]
    pub fn read_summand(
        &self,
        name: &str,
        shape: &Shape,
        dtype: DType,
        ranges: &[Range<usize>],
        summand: Summand,
    ) -> Result<Vec<u8>, Diagnostics> {
        let tensor = self.tensor(name, shape, dtype)?;
        if !cover::is_inside(ranges, shape) {
            let found = cover::text(ranges);
            return Err(Diagnostic::new(self.place(name), "ranges outside the tensor")
                .expected(shape)
                .found(found)
                .into());
        }
        let layout = Layout::parse(&tensor.layout, shape.rank(), &self.mesh.axis_names());
        let layout = layout.unwrap_or_else(|_| Layout::replicated(shape.rank()));
        let stored = layout.summands(&self.mesh);
        let of = |index| self.read_parts(tensor, &layout, index, dtype, ranges);
        if stored == summand.count {
            return of(summand.index);
        }
        let mut sum = of(0)?;
        for index in 1..stored {
            add(&mut sum, &of(index)?);
        }
        for number in sum.as_chunks_mut::<4>().0 {
            *number = (f32::from_le_bytes(*number) / summand.count as f32).to_le_bytes();
        }
        Ok(sum)
    }

    /// Reads elements of one partial sum, number 0 for ordinary tensors.
    fn read_parts(
        &self,
        tensor: &TensorRecord,
        layout: &Layout,
        summand: usize,
        dtype: DType,
        ranges: &[Range<usize>],
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
    #[doc(hidden)]
    pub fn read_whole(&self, name: &str) -> Result<(Shape, DType, Vec<u8>), Diagnostics> {
        let (shape, dtype) = self.typed(name)?;
        let ranges: Vec<Range<usize>> = shape.iter().map(|size| 0..*size).collect();
        let bytes = self.read(name, &shape, dtype, &ranges)?;
        Ok((shape, dtype, bytes))
    }

    /// Reads elements inside `ranges`, row-major, in the stored type.
    pub(super) fn read_stored(
        &self,
        name: &str,
        ranges: &[Range<usize>],
    ) -> Result<(DType, Vec<u8>), Diagnostics> {
        let (shape, dtype) = self.typed(name)?;
        Ok((dtype, self.read(name, &shape, dtype, ranges)?))
    }

    /// Returns the shape and the stored type of a tensor.
    fn typed(&self, name: &str) -> Result<(Shape, DType), Diagnostic> {
        let tensor = self.index.tensors.get(name).and_then(|tensor| Some((tensor.shape(), tensor.dtype()?)));
        tensor.ok_or_else(|| Diagnostic::new(self.place(name), "missing tensor"))
    }

    /// Checks every byte of every file.
    ///
    /// # Errors
    /// Every file that was altered or does not match the index.
    #[doc(hidden)]
    pub fn verify(&self) -> Result<(), Diagnostics> {
        self.verify_share(0, 1)
    }

    /// Checks every `count`-th file from `first` on.
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

    /// Checks the digest of a file once.
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

    /// Copies the elements of a part into `out`. Ranges with small gaps are read together.
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
