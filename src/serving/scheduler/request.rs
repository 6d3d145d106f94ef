//! Types that the engine exchanges with the scheduler.
//!
//! - Input: requests, and the results of steps.
//! - Output: deliveries, and counts of the load.
//! - Not here: plans (`step`).

use smallvec::SmallVec;

/// A request: a prompt, and how many tokens to generate.
#[derive(Clone, Debug)]
pub struct QueuedRequest {
    /// The ids of the prompt.
    pub prompt: Vec<u32>,
    /// Maximum number of generated tokens per sample. At 0, only the prompt is computed.
    pub max_new_tokens: u32,
    /// Number of independent samples, which share the prompt.
    pub samples: u32,
    /// Priority. A higher number is served earlier.
    pub priority: i32,
    /// Number for all other inputs of the states, the adapter included. Only requests with equal
    /// salts share prefixes.
    pub salt: u64,
    /// The adapter of all tokens, by its position in the model's set.
    pub adapter: Option<u32>,
    /// Whether logprobs of the prompt are wanted. Such a request takes no prefix hit.
    pub wants_prompt_logprobs: bool,
}

impl QueuedRequest {
    /// Creates a request for one sample.
    #[must_use]
    pub const fn new(prompt: Vec<u32>, max_new_tokens: u32) -> Self {
        Self {
            prompt,
            max_new_tokens,
            samples: 1,
            priority: 0,
            salt: 0,
            adapter: None,
            wants_prompt_logprobs: false,
        }
    }
}

/// A submitted request. The numbers grow with each submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A sample of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId {
    /// The request that the sample belongs to.
    pub request: RequestId,
    /// Number of the sample within the request, from 0.
    pub sample: u32,
}

/// A function that proposes drafts. It receives a sequence, its known tokens, and the list to fill.
/// The scheduler truncates the list to the drafts that a row can have.
pub type Drafter<'a> = dyn FnMut(SequenceId, &[u32], &mut Vec<u32>) + 'a;

/// The results of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepResult {
    /// Number of the step.
    pub number: u64,
    /// The result of the chunk, if the plan has one.
    pub chunk: Option<RowResult>,
    /// The results of the decode rows, in the order of the plan.
    pub rows: Vec<RowResult>,
}

/// The result of a row or of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowResult {
    /// New tokens: the accepted drafts and one more token. Empty if the row does not sample. Void
    /// rows can have any tokens.
    pub tokens: SmallVec<[u32; 4]>,
    /// Whether a stop condition ends the sequence with the last of these tokens.
    pub stops: bool,
}

/// New tokens of a sequence, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sequence that gets the tokens or ends.
    pub sequence: SequenceId,
    /// Number of new tokens. The row's result has their ids. Void rows have no delivery.
    pub tokens: u32,
    /// The reason of the end, or `None` if the sequence continues.
    pub end: Option<End>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sequence has the maximum number of generated tokens.
    Length,
    /// A stop condition of the engine ended the sequence.
    Stop,
}

/// Counts of sequences and blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sequences that wait for admission, preempted ones included.
    pub waiting: usize,
    /// Sequences that hold a table.
    pub running: usize,
    /// Steps that have not completed.
    pub steps_in_flight: usize,
    /// Free and idle blocks of each group.
    pub available_blocks: Vec<usize>,
    /// Free and idle recurrent states, if the model has recurrent layers.
    pub available_states: Option<usize>,
    /// Number of preemptions since the start.
    pub preemptions: u64,
    /// Number of prompt and recomputed tokens that came from prefix hits since the start.
    pub hit_tokens: u64,
    /// Number of tokens that were looked up in the prefix index since the start.
    pub query_tokens: u64,
    /// Number of drafts that were verified since the start.
    pub verified_drafts: u64,
    /// Number of drafts that were accepted since the start.
    pub accepted_drafts: u64,
}
