//! The tests of the crate in one program, because linking takes longer than running. `allocations`
//! is separate, because it has its own allocator.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod abi;
mod adapters;
mod c;
mod common;
mod compress;
mod context;
mod dense;
mod device;
mod engine;
mod equivalence;
mod exact;
mod exact_serving;
mod expert_parallel;
mod faults;
mod golden;
mod gradients;
mod grid;
mod hybrids;
mod joined;
mod joined_exchanges;
mod kernels;
mod lengths;
mod lora;
mod meshes;
mod mixtures;
mod mutation;
mod overlap;
mod parity;
mod pipeline;
mod prediction;
mod quantised;
mod routers;
mod serving_blocks;
mod serving_engine;
mod serving_requests;
mod serving_schedule;
mod serving_stages;
mod serving_windows;
mod session;
mod spans;
mod split_axis;
mod strict_engine;
mod training;
mod verify;
