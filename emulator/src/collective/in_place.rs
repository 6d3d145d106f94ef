//! Collectives over the memory of several processes of one host, in place.
//!
//! Input: a complete meeting all of whose buffers every one of its processes reaches. Output: the results of all ranks, bit
//! for bit those `perform` gives in one process, because the tiles are the same. Method: each process takes an equal share
//! of the tiles and then tells the others; a collective of one tile is the work of one process. Invariants: nobody touches
//! memory before all ranks have reached the call, and no rank goes on before every tile is done; who waits learns of
//! failures and deaths as in any exchange. Does not: serve ranks whose memory is out of reach (see `remote`).

use crate::collective::meeting::Meeting;
use crate::collective::perform::Share;
use crate::collective::remote::{Part, Scratch, Transfer};
use crate::failure::Failure;
use crate::machine::Machine;

impl Machine {
    /// Moves this process's share of the data and waits for the others' shares.
    pub(super) fn perform_in_place(&self, meeting: &Meeting, mut part: Part<'_>) -> Result<(), Failure> {
        let processes = part.processes();
        let own = part.here[0];
        let index = processes.iter().filter(|lead| **lead < own).count();
        let share = Share { index, count: processes.len() };
        let pages = self.memory().use_pages();
        let tiles = meeting.perform_share(share, self.workers())?;
        drop(pages);
        part.await_shares(&processes, tiles)
    }
}

impl Part<'_> {
    /// The first position of each process, in order.
    fn processes(&self) -> Vec<usize> {
        let mut processes = self.leads();
        processes.push(self.here[0]);
        processes.sort_unstable();
        processes
    }

    /// Returns when every process that has a share of the tiles has done it: from each a byte goes to all others.
    fn await_shares(&mut self, processes: &[usize], tiles: usize) -> Result<(), Failure> {
        let own = self.here[0];
        let scratch = Scratch::new(processes.len())?;
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (index, lead) in processes.iter().copied().enumerate() {
            let is_empty = Share { index, count: processes.len() }.of(tiles).is_empty();
            if lead == own && !is_empty {
                let others = processes.iter().filter(|other| **other != own);
                sends = others.map(|other| self.transfer(own, *other, scratch.at(index, 1))).collect();
            } else if lead != own && !is_empty {
                receives.push(self.transfer(lead, own, scratch.at(index, 1)));
            }
        }
        let (sends, receives): (Vec<Transfer>, Vec<Transfer>) = (sends, receives);
        self.exchange.run(&sends, &receives)
    }
}
