//! Runs step plans on cards.
//!
//! - Input: a [`StepPlan`] for each pool of cache blocks, and the ids that the last step chose.
//! - Output: the candidates, logits or tokens of each row.
//! - Invariants: a step is at most two runs, of programs that were prepared at the start. The
//!   inputs of a step can be built before the last step has ended, except for its new ids. The
//!   logits behind candidates stay on the cards until the next step starts.
//! - Not here: which tokens run, and which ones are chosen.

use std::borrow::Cow;
use std::ops::Range;

use crate::base::{Diagnostic, Diagnostics, Id};
use crate::compile::ServingShape;
use crate::exec::{self, Elements, Engine, NamedTensors, ProgramId, Timed};
use crate::program::HostTensor;
use crate::program::models::{CandidateSizes, Head, PredictionPart, SequenceBlocks, StateRow, input};
use crate::serving::{
    BlockTable, Chunk, DecodeRow, ResultRef, ResultRow, StateStep, StepPlan, StepToken, Tables,
};

use super::candidates::CandidateRows;
use super::inputs::{InputBuilder, InputRow, SequenceInput, padded_ids};
use super::sequence::RowOutput;

/// The cards of a session, and the block tables of the running sequences.
#[derive(Debug)]
pub(super) struct StepRunner {
    pub(super) engine: Engine,
    shapes: Vec<ServingShape>,
    /// Row counts per pool of the programs that return kept logits. They follow the shapes.
    logit_rows: Vec<usize>,
    heads: Heads,
    vocabulary: usize,
    inputs: InputBuilder,
    /// One entry per pool of cache blocks.
    tables: Vec<Tables>,
}

/// Outputs of the last position of a row, and of all positions.
#[derive(Clone, Copy, Debug)]
struct Heads {
    last: Head,
    all: Head,
}

/// Ids that a step chose, by pool.
#[derive(Clone, Debug, Default)]
pub(super) struct StepIds(pub(super) Vec<PoolIds>);

/// Ids that a step chose in one pool. Rows without a choice have any id.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolIds {
    pub(super) chunk: u32,
    pub(super) rows: Vec<u32>,
}

impl StepIds {
    fn get(&self, pool: usize, source: ResultRef) -> Option<u32> {
        let ids = self.0.get(pool)?;
        match source.row {
            ResultRow::Chunk => Some(ids.chunk),
            ResultRow::Decode(row) => ids.rows.get(row as usize).copied(),
        }
    }
}

/// A step with its inputs. Before it starts, it waits for ids.
#[derive(Debug)]
pub(super) struct PreparedStep {
    /// The plan of each pool.
    pub(super) plans: Vec<Option<StepPlan>>,
    chunk: Option<PreparedRun>,
    decode: Option<PreparedRun>,
}

impl PreparedStep {
    pub(super) const fn has_chunk(&self) -> bool {
        self.chunk.is_some()
    }
}

#[derive(Debug)]
struct PreparedRun {
    program: ProgramId,
    /// All inputs but the ids.
    inputs: NamedTensors,
    ids: Vec<i64>,
    open: Vec<OpenId>,
    rows_of_pool: usize,
    /// Place of the first row among the kept logits of a pool.
    first_place: usize,
}

/// A place among the ids of a run, for a token that another step chooses.
#[derive(Debug)]
struct OpenId {
    place: usize,
    pool: usize,
    source: ResultRef,
}

/// Outputs of a step.
#[derive(Debug)]
pub(super) struct StepOutputs {
    chunk: Option<RunOutputs>,
    decode: Option<RunOutputs>,
    vocabulary: usize,
}

#[derive(Debug)]
struct RunOutputs {
    tensor: HostTensor,
    candidates: Option<CandidateSizes>,
    /// Place of the first row among the kept logits of a pool.
    first_place: usize,
    /// The draft of each row, if the run proposed them.
    drafts: Vec<u32>,
    /// Positions per row that have outputs.
    width: usize,
    rows_of_pool: usize,
}

impl StepOutputs {
    /// Returns the outputs of a chunk, from its last token.
    pub(super) fn chunk(&self, pool: usize, chunk: &Chunk) -> Option<RowOutput<'_>> {
        Some(self.chunk.as_ref()?.row(pool, 0, chunk.tokens.len() - 1, self.vocabulary))
    }

    /// Returns the logits of all tokens of a chunk, padding included.
    pub(super) fn chunk_logits(&self, pool: usize) -> Option<&[f32]> {
        match self.chunk.as_ref()?.row(pool, 0, 0, self.vocabulary) {
            RowOutput::Logits(logits) => Some(logits),
            RowOutput::Token(_) | RowOutput::Candidates(_) => None,
        }
    }

    /// Returns the outputs of a decode row, from the position that samples first.
    pub(super) fn row(&self, pool: usize, index: usize, row: &DecodeRow) -> Option<RowOutput<'_>> {
        Some(self.decode.as_ref()?.row(pool, index, row.known.len(), self.vocabulary))
    }

    /// Returns the drafts of a decode row, from its plan or from the run.
    pub(super) fn drafts<'a>(&'a self, pool: usize, index: usize, row: &'a DecodeRow) -> &'a [u32] {
        let proposed = self
            .decode
            .as_ref()
            .and_then(|run| run.drafts.get(pool * run.rows_of_pool + index).map(std::slice::from_ref));
        proposed.filter(|_| !row.drafts.is_empty()).unwrap_or(&row.drafts)
    }
}

impl RunOutputs {
    fn row(&self, pool: usize, index: usize, position: usize, vocabulary: usize) -> RowOutput<'_> {
        let row = pool * self.rows_of_pool + index;
        if !self.tensor.dtype.is_float() {
            return RowOutput::Token(self.tensor.ints()[row]);
        }
        let position = position.min(self.width - 1);
        let first = row * self.width + position;
        let values = |each: usize| &self.tensor.floats()[first * each..(row + 1) * self.width * each];
        match self.candidates {
            None => RowOutput::Logits(values(vocabulary)),
            Some(sizes) => RowOutput::Candidates(CandidateRows {
                values: values(sizes.parts * sizes.columns()),
                sizes,
                vocabulary,
                pool,
                place: self.first_place + index * self.width + position,
            }),
        }
    }
}

/// Logits that a step kept on the cards.
#[derive(Debug)]
pub(super) struct KeptLogits {
    tensor: HostTensor,
    rows_of_pool: usize,
    vocabulary: usize,
}

impl KeptLogits {
    /// Returns the logits of consecutive wanted places of a pool.
    pub(super) fn rows(&self, pool: usize, rows: Range<usize>) -> &[f32] {
        let first = pool * self.rows_of_pool;
        &self.tensor.floats()[(first + rows.start) * self.vocabulary..(first + rows.end) * self.vocabulary]
    }
}

/// Rows of one run: a row for each sequence, and padding.
struct RunRows<'a> {
    rows: Vec<RunRow<'a>>,
    rows_of_pool: usize,
    width: usize,
    head: Head,
    /// Whether the rows are chunks. A chunk keeps the logits of one position, at the last place of
    /// its pool.
    is_chunk: bool,
}

impl RunRows<'_> {
    /// Returns the place of the first row among the kept logits of a pool.
    const fn first_place(&self, sizes: CandidateSizes) -> usize {
        if self.is_chunk { sizes.kept - 1 } else { 0 }
    }
}

struct RunRow<'a> {
    ids: Cow<'a, [u32]>,
    /// The token before the ids, if it is known.
    before: Option<u32>,
    start: usize,
    prompt_length: usize,
    /// Tables of the sequence in each group of caches. Empty in a row without a sequence.
    tables: &'a [BlockTable],
    state: Option<StateRow>,
    adapter: Option<u32>,
    open: Option<(usize, ResultRef)>,
}

impl RunRow<'_> {
    const PADDING: Self = Self {
        ids: Cow::Borrowed(&[]),
        before: None,
        start: 0,
        prompt_length: SequenceInput::NONE.prompt_length,
        tables: &[],
        state: None,
        adapter: None,
        open: None,
    };

    /// Returns the blocks of the sequence in a group.
    fn blocks(&self, group: usize) -> SequenceBlocks<impl Iterator<Item = usize> + Clone> {
        let table = self.tables.get(group);
        let blocks = table.map_or(&[][..], BlockTable::blocks).iter().map(|block| block.index());
        SequenceBlocks { first: table.map_or(0, |table| table.first() as usize), blocks }
    }
}

impl StepRunner {
    /// Creates a runner of the programs of `shapes` and `logit_rows`, which the engine has in this
    /// order, for at most `sequences` running sequences in each of `pools` pools.
    pub(super) fn new(
        engine: Engine,
        shapes: Vec<ServingShape>,
        logit_rows: Vec<usize>,
        inputs: InputBuilder,
        [pools, sequences]: [usize; 2],
        vocabulary: usize,
    ) -> Self {
        let last = shapes[0].head;
        let all = last.candidates().map_or(Head::AllLogits, Head::AllCandidates);
        let groups = shapes[0].run.groups().count();
        let tables = vec![Tables::new(groups, sequences); pools];
        Self { engine, shapes, logit_rows, heads: Heads { last, all }, vocabulary, inputs, tables }
    }

    /// Runs each program without sequences until its graph is recorded.
    pub(super) fn record_graphs(&mut self) -> Result<(), exec::Error> {
        for (program, ServingShape { run, head, prediction }) in self.shapes.iter().copied().enumerate() {
            let none = || SequenceBlocks { first: 0, blocks: std::iter::empty() };
            let groups = run.groups().map(|_| none()).collect();
            let row = InputRow { tokens: SequenceInput::NONE, groups, state: None, adapter: None };
            let rows = vec![row; run.batch];
            let ids = padded_ids(run.sequence, rows.iter().map(|row| row.tokens.ids));
            let mut inputs = self.inputs.inputs(run, head, &rows).with(input::IDS, ids);
            if let Some(part) = prediction {
                self.inputs.add_prediction(&mut inputs, run, part, &rows);
            }
            if head.candidates().is_some() {
                let outputs = if head.is_of_all() { run.batch * run.sequence } else { run.batch };
                set_places(&mut inputs, vec![0; outputs]);
            }
            // The first run is eager. The second one records the graph and replays it.
            for _ in 0..2 {
                self.engine.run(ProgramId(program), &inputs)?;
            }
        }
        for rows in self.logit_rows.clone() {
            for _ in 0..2 {
                self.kept_logits(&vec![vec![0; rows]; self.tables.len()])?;
            }
        }
        Ok(())
    }

    /// Returns the logits at the wanted places of each pool, as the last step kept them.
    pub(super) fn kept_logits(&mut self, wanted: &[Vec<usize>]) -> Result<KeptLogits, exec::Error> {
        let most = wanted.iter().map(Vec::len).max().unwrap_or(0);
        let Some(program) = self.logit_rows.iter().position(|rows| *rows >= most.max(1)) else {
            unreachable!("the last program returns all rows that a step keeps")
        };
        let rows = self.logit_rows[program];
        let padded = |places: &Vec<usize>| {
            let mut places: Vec<i64> = places.iter().map(|place| *place as i64).collect();
            places.resize(rows, 0);
            places
        };
        let mut inputs = NamedTensors::new();
        set_places(&mut inputs, wanted.iter().flat_map(padded).collect());
        let outputs = self.engine.run(ProgramId(self.shapes.len() + program), &inputs)?;
        Ok(KeptLogits { tensor: outputs.only()?, rows_of_pool: rows, vocabulary: self.vocabulary })
    }

    /// Builds the inputs of the next step.
    pub(super) fn prepare(&mut self, plans: Vec<Option<StepPlan>>) -> Result<PreparedStep, Diagnostics> {
        for (tables, plan) in self.tables.iter_mut().zip(&plans) {
            plan.as_ref().map_or(Ok(()), |plan| tables.apply(plan))?;
        }
        let chunks = plans.iter().map(|plan| plan.as_ref().and_then(|plan| plan.chunk.as_ref()));
        let scores = chunks.clone().flatten().any(|chunk| chunk.scores);
        let widest = chunks.clone().flatten().map(|chunk| chunk.padded as usize).max();
        let chunk = widest.map(|width| {
            let rows = chunks.enumerate().map(|(pool, chunk)| {
                chunk.map_or(RunRow::PADDING, |chunk| chunk_row(&self.tables[pool], chunk))
            });
            let rows = RunRows {
                rows: rows.collect(),
                rows_of_pool: 1,
                width,
                head: if scores { Head::AllLogits } else { self.heads.last },
                is_chunk: true,
            };
            build(&self.shapes, &mut self.inputs, rows)
        });
        let decodes = plans.iter().map(|plan| plan.as_ref().and_then(|plan| plan.decode.as_ref()));
        let sizes = decodes.clone().flatten().map(|run| [run.padded as usize, run.width as usize]);
        let largest = sizes.reduce(|a, b| [a[0].max(b[0]), a[1].max(b[1])]);
        let decode = largest.map(|[rows_of_pool, width]| {
            let rows = decodes.enumerate().flat_map(|(pool, run)| {
                let own = run.into_iter().flat_map(|run| &run.rows);
                let own = own.map(|row| decode_row(&self.tables[pool], pool, row));
                own.chain(std::iter::repeat_with(|| RunRow::PADDING)).take(rows_of_pool).collect::<Vec<_>>()
            });
            let head = if width > 1 { self.heads.all } else { self.heads.last };
            let rows = RunRows { rows: rows.collect(), rows_of_pool, width, head, is_chunk: false };
            build(&self.shapes, &mut self.inputs, rows)
        });
        Ok(PreparedStep { chunk: chunk.transpose()?, decode: decode.transpose()?, plans })
    }

    /// Starts a step on the cards with the ids that the last step chose.
    pub(super) fn start(
        &mut self,
        step: &mut PreparedStep,
        last: &StepIds,
        timed: Timed,
    ) -> Result<(), exec::Error> {
        for run in step.chunk.iter_mut().chain(&mut step.decode) {
            for open in &run.open {
                // A step refers to the step before it, and `last` has the ids of that step.
                let id = last.get(open.pool, open.source).unwrap_or(0);
                run.ids[open.place] = i64::from(id);
            }
            let inputs = &mut run.inputs;
            inputs.set(input::IDS, std::mem::take(&mut run.ids));
            self.engine.enqueue(run.program, inputs, timed)?;
        }
        Ok(())
    }

    /// Waits for the end of the oldest step.
    pub(super) fn finish(&mut self, running: &PreparedStep) -> Result<StepOutputs, exec::Error> {
        let mut wait = |run: &PreparedRun| {
            let shape = self.shapes[run.program.0];
            let outputs = self.engine.wait()?;
            let (tensor, drafts) = match shape.prediction {
                None => (outputs.only()?, Vec::new()),
                Some(_) => {
                    // A draft is an id of the vocabulary.
                    let drafts = outputs.get("draft")?.ints().iter().map(|draft| *draft as u32).collect();
                    (outputs.get(shape.head.output())?, drafts)
                }
            };
            let width = if shape.head.is_of_all() { shape.run.sequence } else { 1 };
            let PreparedRun { rows_of_pool, first_place, .. } = *run;
            let candidates = shape.head.candidates();
            Ok::<_, exec::Error>(RunOutputs { tensor, candidates, first_place, drafts, width, rows_of_pool })
        };
        let chunk = running.chunk.as_ref().map(&mut wait).transpose()?;
        let decode = running.decode.as_ref().map(&mut wait).transpose()?;
        Ok(StepOutputs { chunk, decode, vocabulary: self.vocabulary })
    }

    /// Returns the programs and inputs of a step, in the order of the runs.
    pub(super) fn runs(running: &PreparedStep) -> impl Iterator<Item = (ProgramId, &NamedTensors)> {
        let PreparedStep { chunk, decode, .. } = running;
        chunk.iter().chain(decode).map(|run| (run.program, &run.inputs))
    }
}

fn chunk_row<'a>(tables: &'a Tables, chunk: &'a Chunk) -> RunRow<'a> {
    RunRow {
        ids: chunk.tokens.as_slice().into(),
        before: None,
        start: chunk.start as usize,
        prompt_length: tables.prompt(chunk.table).unwrap_or(0) as usize,
        tables: tables.groups(chunk.table),
        state: chunk.state.map(state_row),
        adapter: tables.adapter(chunk.table),
        open: None,
    }
}

fn decode_row<'a>(tables: &'a Tables, pool: usize, row: &'a DecodeRow) -> RunRow<'a> {
    let (first, open) = match row.first {
        StepToken::Id(id) => (id, None),
        StepToken::Result(source) => (0, Some((pool, source))),
    };
    RunRow {
        ids: std::iter::once(first).chain(row.known.iter().chain(&row.drafts).copied()).collect(),
        before: row.before,
        start: row.position as usize,
        prompt_length: tables.prompt(row.table).unwrap_or(0) as usize,
        tables: tables.groups(row.table),
        state: row.state.map(state_row),
        adapter: tables.adapter(row.table),
        open,
    }
}

fn state_row(step: StateStep) -> StateRow {
    StateRow { from: step.from.map(Id::index), to: step.to.index() }
}

fn build(
    shapes: &[ServingShape],
    inputs: &mut InputBuilder,
    rows: RunRows<'_>,
) -> Result<PreparedRun, Diagnostics> {
    let first_place = rows.head.candidates().map_or(0, |sizes| rows.first_place(sizes));
    let RunRows { rows, rows_of_pool, width, head, .. } = rows;
    let starts = rows.iter().map(|row| row.start);
    let Some(index) = ServingShape::find(shapes, [rows.len(), width], head, &starts) else {
        let longest = starts.max().unwrap_or(0) + width;
        let found = format!("{} rows of {width} tokens, {longest} tokens of cache", rows.len());
        return Err(Diagnostic::new("serving", "no program of this shape was prepared").found(found).into());
    };
    let shape = shapes[index];
    let input_rows = rows.iter().map(|row| InputRow {
        tokens: SequenceInput { ids: &row.ids, start: row.start, prompt_length: row.prompt_length },
        groups: shape.run.groups().enumerate().map(|(group, _)| row.blocks(group)).collect(),
        state: row.state,
        adapter: row.adapter.map(|adapter| adapter as usize),
    });
    let input_rows: Vec<_> = input_rows.collect();
    let mut tensors = inputs.inputs(shape.run, head, &input_rows);
    if let Some(part) = shape.prediction {
        inputs.add_prediction(&mut tensors, shape.run, part, &input_rows);
    }
    if head.candidates().is_some() {
        let of_pool = if head.is_of_all() { rows_of_pool * width } else { rows_of_pool };
        let places = (0..rows.len() / rows_of_pool).flat_map(|_| first_place..first_place + of_pool);
        set_places(&mut tensors, places.map(|place| place as i64).collect());
    }
    let proposes = shape.prediction == Some(PredictionPart::Proposes);
    let ids = if proposes {
        // The run computes the draft behind the last known token.
        let known = |row: &RunRow<'_>| [row.before.unwrap_or(0), row.ids.first().copied().unwrap_or(0)];
        rows.iter().flat_map(known).map(i64::from).collect()
    } else {
        padded_ids(width, rows.iter().map(|row| row.ids.as_ref()))
    };
    let open = rows.iter().enumerate().filter_map(|(at, row)| {
        let (pool, source) = row.open?;
        Some(OpenId { place: at * width + usize::from(proposes), pool, source })
    });
    let (program, open) = (ProgramId(index), open.collect());
    Ok(PreparedRun { program, inputs: tensors, ids, open, rows_of_pool, first_place })
}

fn set_places(tensors: &mut NamedTensors, places: Vec<i64>) {
    tensors.set(input::LOGIT_PLACES, Elements::of_i64([places.len()], places));
}
