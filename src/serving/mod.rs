//! Serving: many requests at once, on caches in blocks.
//!
//! - Input: requests as token ids, and the sampled ids of finished steps.
//! - Output: [`StepPlan`]s, which are plain data for all ranks, and deliveries of new tokens.
//! - Invariants: the scheduler is pure. The same calls in the same order give the same plans. A
//!   block with one owner is written by that sequence alone, and a shared block is never written. A
//!   prefix hit compares the tokens themselves. `cached ≤ computed ≤ scheduled ≤ known + ahead`
//!   holds for the lengths of each sequence ([`Lengths`]).
//! - Not here: clocks, threads, IO, text, sampling, stop conditions other than the length, and the
//!   caches themselves. Programs, host lists and device memory belong to the session.
//!
//! # Parts
//! | file | content |
//! |---|---|
//! | `blocks` | block pools of groups of paged states, slots of recurrent states, prefix index |
//! | `scheduler` | requests and completions → the next step |
//! | `step` | the plan of one step, its bytes, and the block tables that receivers keep |
//!
//! # Form of a token
//! A token is computed in the form of its position in the request: prompt or generated. A chunk has
//! tokens of one form. Decode rows always have the generated form. Generated tokens that a
//! preemption dropped run again as decode rows, up to `drafts + 1` tokens in a row. If both forms
//! of a model give the same bits, [`Forms::Same`] recomputes long generated ranges in chunks too.
//!
//! # Steps in flight
//! A step can be planned before the steps ahead of it have ended. The lengths count tokens in
//! flight. The id of such a token is [`Token::Result`]. A sequence that ended in step `n` has a void
//! row in step `n + 1`, and its blocks are released when step `n + 1` has completed.

mod blocks;
mod scheduler;
mod step;

pub use blocks::{BlockId, BlockPool, Chain, Content, Forms, Group, SlotId, SlotPool, SnapshotId, States};
pub use scheduler::{
    Config, Delivery, Drafter, End, GroupConfig, Lengths, Load, Overlap, Request, RequestId, RowResult,
    Scheduler, SequenceId, SlotConfig, StepResult,
};
pub use step::{
    Change, Chunk, DecodeError, DecodeRun, Form, ResultRef, ResultRow, Row, SlotCopy, StepPlan, Table,
    TableId, Tables, Token,
};
