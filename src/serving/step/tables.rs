//! The block tables that a receiver of plans keeps.
//!
//! - Input: the changes of each step, in order.
//! - Output: the rows of block tables that programs read.
//! - Invariants: after each step the tables equal the scheduler's.
//! - Not here: which block belongs to which sequence. The scheduler decides.

use super::{Change, StepPlan, TableId, len};
use crate::base::{Diagnostic, Id as _};
use crate::serving::blocks::BlockId;

/// The blocks of one sequence in one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    first: u32,
    blocks: Vec<BlockId>,
}

impl BlockTable {
    /// Returns the number of the first block. Earlier blocks are outside the window.
    #[must_use]
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// Returns the number of the block after the last one.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.first + len(&self.blocks)
    }

    /// Returns the blocks from [`Self::first`].
    #[must_use]
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Returns the block with this number, counted from the start of the sequence.
    #[must_use]
    pub fn block(&self, number: u32) -> Option<BlockId> {
        self.blocks.get(number.checked_sub(self.first)? as usize).copied()
    }

    pub(in crate::serving) fn push(&mut self, block: BlockId) {
        self.blocks.push(block);
    }

    /// Advances the start by `dropped` blocks. Returns the blocks that leave the table.
    pub(in crate::serving) fn advance(&mut self, dropped: u32) -> impl Iterator<Item = BlockId> + '_ {
        self.first += dropped;
        let held = self.blocks.len().min(dropped as usize);
        self.blocks.drain(..held)
    }
}

#[derive(Clone, Debug)]
struct Entry {
    prompt: u32,
    adapter: Option<u32>,
    groups: Vec<BlockTable>,
}

/// The tables of all running sequences, as a receiver of plans keeps them.
#[derive(Clone, Debug)]
pub struct Tables {
    groups: usize,
    entries: Vec<Option<Entry>>,
}

impl Tables {
    /// Creates the tables of at most `sequences` running sequences in `groups` groups.
    #[must_use]
    pub fn new(groups: usize, sequences: usize) -> Self {
        Self { groups, entries: vec![None; sequences] }
    }

    /// Applies the changes of the next step.
    ///
    /// # Errors
    /// A change disagrees with the tables: plans were lost, or came from another scheduler.
    pub fn apply(&mut self, step: &StepPlan) -> Result<(), Diagnostic> {
        for change in &step.changes {
            self.change(change).map_err(|message| {
                let place = format!("step {}", step.number);
                Diagnostic::new(place, message)
                    .found(format!("{change:?}"))
                    .help("apply every plan of one scheduler once, in order")
            })?;
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Result<(), &'static str> {
        match change {
            Change::Release { table } => {
                let entry = self.entries.get_mut(table.index()).ok_or("unknown table")?;
                entry.take().ok_or("released table is free")?;
            }
            Change::Admit { table, prompt, adapter } => {
                let entry = self.entries.get_mut(table.index()).ok_or("unknown table")?;
                if entry.is_some() {
                    return Err("admitted table is not free");
                }
                let groups = vec![BlockTable::default(); self.groups];
                *entry = Some(Entry { prompt: *prompt, adapter: *adapter, groups });
            }
            Change::Extend { table, group, dropped, appended } => {
                let entry = self.entries.get_mut(table.index()).ok_or("unknown table")?;
                let entry = entry.as_mut().ok_or("extended table is free")?;
                let table = entry.groups.get_mut(*group as usize).ok_or("unknown group")?;
                let longest = len(&table.blocks).saturating_add(len(appended));
                let first = table.first.checked_add(*dropped);
                first.and_then(|first| first.checked_add(longest)).ok_or("table is too long")?;
                drop(table.advance(*dropped));
                table.blocks.extend_from_slice(appended);
            }
        }
        Ok(())
    }

    /// Returns the table of a running sequence in one group.
    #[must_use]
    pub fn get(&self, table: TableId, group: usize) -> Option<&BlockTable> {
        self.entries.get(table.index())?.as_ref()?.groups.get(group)
    }

    /// Returns the tables of a running sequence in all groups.
    #[must_use]
    pub fn groups(&self, table: TableId) -> &[BlockTable] {
        self.entries.get(table.index()).and_then(Option::as_ref).map_or(&[], |entry| &entry.groups)
    }

    /// Returns the length of a running sequence's prompt.
    #[must_use]
    pub fn prompt(&self, table: TableId) -> Option<u32> {
        Some(self.entries.get(table.index())?.as_ref()?.prompt)
    }

    /// Returns the adapter of a running sequence, if it has one.
    #[must_use]
    pub fn adapter(&self, table: TableId) -> Option<u32> {
        self.entries.get(table.index())?.as_ref()?.adapter
    }
}
