//! Splits a tensor and gathers it again. Needs no card.
//!
//! `cargo run --example 04_split_axis`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use ascend_tp::{Remainder, TensorView, gather, split_axis};

fn main() -> anyhow::Result<()> {
    let data: Vec<i32> = (0..20).collect();
    let tensor = TensorView::contiguous(&data, [2, 10])?;
    for remainder in [Remainder::Last, Remainder::Balanced, Remainder::ZeroPadded] {
        let shards = split_axis(&tensor, 1, 4, remainder)?;
        let rows: Vec<String> = shards.iter().map(|shard| format!("{:?}", shard.to_vec())).collect();
        println!("10 columns over 4 cards, {remainder}: {}", rows.join(" "));
        let whole = gather(&shards, 1, 10, remainder)?;
        anyhow::ensure!(whole.data() == data, "gather is the inverse");
    }
    for (axis, world) in [(2, 4), (1, 0)] {
        let error = split_axis(&tensor, axis, world, Remainder::Last).err();
        println!("axis {axis}, world {world}: {}", error.map(|error| error.to_string()).unwrap_or_default());
    }
    Ok(())
}
