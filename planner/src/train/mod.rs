//! What training a decoder takes: bytes of a card, seconds of a step, days of a run, and the best way to split it.
//!
//! Input → output: sizes of a model, a batch, cards and how they are joined → a prediction with its terms, or the best
//! settings and what beat the others. Invariants: pure; nothing runs and nothing is measured. Does not: train.
//!
//! | module | what |
//! |---|---|
//! | [`forms`] | published closed forms and the figures they give |
//! | [`job`] | what is trained, with what software |
//! | [`setting`] | one way to split it |
//! | [`coefficients`] | what was fitted of training |
//! | [`memory`] | bytes of a card |
//! | [`layer`] | what a layer takes |
//! | [`pipeline`] | a step of a pipeline, simulated |
//! | [`step`] | a whole step, by what takes it |
//! | [`layer_on`] | what a layer takes of the programs that `train` runs |
//! | [`grid`] | whether weights that two axes cut pay |
//! | [`ring`] | whether keys and values that go from card to card pay |
//! | [`compress`] | whether sums of gradients with fewer bytes pay |
//! | [`search`] | the best settings, and what beat the others |
//! | [`points`] | measured rows, and what is predicted for them |
//! | [`unseen`] | coefficients fitted on rows, and rows predicted without their pages |
//! | [`text`] | tables of forms |

pub mod coefficients;
pub mod compress;
pub mod forms;
pub mod grid;
pub mod job;
pub mod layer;
pub mod layer_on;
pub mod memory;
pub mod pipeline;
pub mod points;
pub mod ring;
pub mod search;
pub mod setting;
pub mod step;
pub mod text;
pub mod unseen;

pub use points::validate_rows;
