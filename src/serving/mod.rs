//! Serving: many requests at once, on caches in blocks.
//!
//! - Input: requests as token ids, and the sampled ids of finished steps.
//! - Output: [`StepPlan`]s, which are plain data, and deliveries of new tokens.
//! - Invariants: the scheduler is pure. The same calls in the same order give the same plans. A
//!   block with one owner is written by that sequence alone, and a shared block is never written,
//!   except that a prediction layer can write its last row again, with the same content. A prefix
//!   hit compares the tokens themselves. `cached ≤ computed ≤ scheduled ≤ known + ahead`
//!   holds for the lengths of each sequence ([`SequenceLengths`]).
//! - Not here: clocks, threads, IO, text, sampling, stop conditions other than the length, and the
//!   caches themselves. Programs, host lists and device memory belong to the session.
//!
//! # Parts
//! | file | content |
//! |---|---|
//! | `blocks` | block pools of groups of paged states, the pool of recurrent states, prefix index |
//! | `scheduler` | requests and completions → the next step |
//! | `step` | the plan of one step, and the block tables that receivers keep |
//!
//! # Form of a token
//! The position of a token in its request decides its form: prompt or generated. A chunk has tokens
//! of one form. Decode rows have the generated form. Generated tokens that a preemption dropped run
//! again as decode rows of up to `drafts + 1` tokens. If both forms of a model give the same bits,
//! [`Forms::Same`] recomputes long generated ranges in chunks too.
//!
//! # Steps in flight
//! A step can be planned before earlier steps have ended. [`SequenceLengths`] count tokens in
//! flight, and [`StepToken::Result`] stands for their ids. A sequence that ends in step `n` may
//! have rows in later planned steps. These rows are void. Its blocks are released when the last of
//! these steps has completed.

mod blocks;
mod scheduler;
mod step;

pub use blocks::{BlockId, BlockPool, Chain, Content, Forms, Group, States};
pub use scheduler::{
    Delivery, DraftPlace, Drafter, End, GroupConfig, Load, Overlap, QueuedRequest, RequestId, RowResult,
    Scheduler, SchedulerConfig, SequenceId, SequenceLengths, StepResult,
};
pub use step::{
    BlockTable, Change, Chunk, DecodeRow, DecodeRun, ResultRef, ResultRow, StateStep, StepPlan, StepToken,
    TableId, Tables, TokenForm,
};
