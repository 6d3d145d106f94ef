//! Time of summing gradients over copies, with and without compression.
//!
//! Nothing hides the sum.

use ascend_tp::program::compress::{Compression, Dealt};
use ascend_tp_machine::launch::Access;
use ascend_tp_machine::{Element, Exchange, Launch, LaunchOperand, OperatorCost, Work};

use super::job::Job;
use super::setting::JobSplit;
use super::step::{copies, copies_us};

/// One way to sum gradients over the copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summed {
    /// Compression, or `None` for uncompressed f32.
    pub by: Option<Compression>,
    /// `train` uses this way for as many copies.
    pub is_taken: bool,
    /// Bytes that a card sends.
    pub sent_bytes: f64,
    /// Time of collectives, in microseconds.
    pub exchange_us: f64,
    /// Time of compression and addition.
    pub operators_us: f64,
}

impl Summed {
    /// Returns the total time.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.exchange_us + self.operators_us
    }

    /// Returns the uncompressed sum and each of `ways`. Empty without copies, or if cards share
    /// experts.
    #[must_use]
    pub fn all(job: &Job, setting: &JobSplit, ways: &[Compression]) -> Vec<Self> {
        let cards = copies(setting);
        // `train` does not compress the gradients of shared experts.
        if cards < 2 || setting.ep > 1 {
            return Vec::new();
        }
        let parameters = job.decoder.parameters() as f64 / (setting.tp * setting.pp) as f64;
        let bytes = 4.0 * parameters;
        let whole = Self {
            by: None,
            is_taken: true,
            sent_bytes: 2.0 * bytes * (cards - 1) as f64 / cards as f64,
            exchange_us: copies_us(job, setting, Exchange::AllReduce, bytes),
            operators_us: 0.0,
        };
        std::iter::once(whole)
            .chain(ways.iter().map(|by| Self::by(job, setting, parameters as usize, *by)))
            .collect()
    }

    fn by(job: &Job, setting: &JobSplit, elems: usize, by: Compression) -> Self {
        let cards = copies(setting);
        let sent_bytes = by.wire_bytes(elems, cards) as f64;
        let said = sent_bytes * cards as f64 / (cards - 1) as f64;
        let (exchange_us, operators_us) = match by {
            Compression::OneBit => {
                let halves = [Exchange::AllToAll, Exchange::AllGather];
                let exchange_us =
                    halves.map(|exchange| copies_us(job, setting, exchange, said / 2.0)).iter().sum();
                // Passes over all elements: add the residual; pack and unpack signs; compute, sum,
                // scale and subtract magnitudes; unpack, scale and sum other ranks' signs; the same
                // for the result; two copies.
                let share = Dealt::new(elems, cards).share() as f64 / elems as f64;
                (exchange_us, (14.0 + 6.0 * share) * pass_us(job, "aclnnMul", elems))
            }
            Compression::TopK { share } => {
                let kept = Compression::kept(share, elems);
                let exchange_us = copies_us(job, setting, Exchange::AllGather, said);
                let all = 4.0 * pass_us(job, "aclnnMul", elems) + pass_us(job, "aclnnTopk", elems);
                (exchange_us, all + (cards + 2) as f64 * pass_us(job, "aclnnScatterAdd", kept))
            }
        };
        Self { by: Some(by), is_taken: by.compresses(cards), sent_bytes, exchange_us, operators_us }
    }
}

fn pass_us(job: &Job, operator: &'static str, elems: usize) -> f64 {
    let operand = |access| LaunchOperand::dense(Element::F32, [elems.max(1)], access);
    let launch = Launch {
        operator,
        operands: vec![operand(Access::Read), operand(Access::Read), operand(Access::Write)],
    };
    OperatorCost::of(&job.profile, &Work::of(&launch)).duration_us
}
