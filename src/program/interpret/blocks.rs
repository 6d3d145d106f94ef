//! Host implementations of ops on caches in blocks.

use std::ops::Range;

use super::attention as over_whole_caches;
use crate::base::{DType, HostData, HostTensor, Remainder};
use crate::program::graph::Value;
use crate::program::op::Kind;

/// Returns the number of the first block of each sequence's pool.
fn first_blocks(sequences: usize, blocks: usize, pools: usize) -> Vec<usize> {
    let dealt = |pool: usize| -> Range<usize> { Remainder::Balanced.range(sequences, pools, pool) };
    (0..pools).flat_map(|pool| dealt(pool).map(move |_| blocks / pools * pool)).collect()
}

/// Returns the rows `[b,t,k,d]` of each sequence's blocks, in the order of `table[b,w]`.
pub(crate) fn rows_of_sequences(cache: &HostTensor, table: &HostTensor, pools: usize) -> HostTensor {
    let [blocks, block, heads, size] = [0, 1, 2, 3].map(|dim| cache.shape[dim]);
    let (sequences, width) = (table.shape[0], table.shape[1]);
    let elems = block * heads * size;
    let first = first_blocks(sequences, blocks, pools);
    let mut rows = Vec::with_capacity(sequences * width * elems);
    for (at, number) in table.ints().iter().enumerate() {
        let block = first[at / width] + usize::try_from(*number).unwrap_or(usize::MAX);
        rows.extend_from_slice(&cache.floats()[block * elems..(block + 1) * elems]);
    }
    HostTensor::float([sequences, width * block, heads, size], cache.dtype, rows)
}

/// Returns a cache of 8-bit integers multiplied by its scales, rounded to `dtype`.
pub(crate) fn dequantised(cache: &HostTensor, scales: &HostTensor, dtype: DType) -> HostTensor {
    let [block, heads, size] = [1, 2, 3].map(|dim| cache.shape[dim]);
    let scale = |row: usize| {
        let (at, head) = (row / heads, row % heads);
        scales.floats()[(at / block * heads + head) * block + at % block]
    };
    let numbers = cache.ints().iter().enumerate().map(|(at, number)| *number as f32 * scale(at / size));
    HostTensor::float(cache.shape.clone(), dtype, numbers.collect())
}

pub(in crate::program) fn attention(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let (Kind::BlockAttention { scale, cap, window, skipped, pools }
    | Kind::QuantBlockAttention { scale, cap, window, skipped, pools }) = *kind
    else {
        unreachable!("the row of another op")
    };
    let (q, caches, table, positions) = match *operands {
        [q, keys, values, table, positions, _] => (q, [keys.clone(), values.clone()], table, positions),
        [q, keys, of_keys, values, of_values, table, positions, _] => {
            let caches = [(keys, of_keys), (values, of_values)];
            (q, caches.map(|(cache, scales)| dequantised(cache, scales, q.dtype)), table, positions)
        }
        _ => unreachable!("attention over blocks takes q, caches, a table, positions and lengths"),
    };
    let [keys, values] = caches.map(|cache| rows_of_sequences(&cache, table, pools));
    let (sequences, tokens, length) = (q.shape[0], q.shape[1], keys.shape[1]);
    let hides = |position: i64, key: usize| {
        let key = key as i64;
        let is_skipped = key < skipped as i64 && position >= skipped as i64;
        is_skipped || key > position || window.is_some_and(|window| position - key >= window as i64)
    };
    let cells = positions.ints().iter().flat_map(|position| (0..length).map(move |key| (*position, key)));
    let hidden = cells.map(|(position, key)| i64::from(hides(position, key))).collect();
    let mask = HostTensor::int([sequences, tokens, length], DType::Bool, hidden);
    let kind = match cap {
        Some(cap) => Kind::CappedAttention { scale, cap },
        None => Kind::Attention { scale },
    };
    let results = over_whole_caches(&kind, &[q, &keys, &values, &mask]);
    let [y, largest, powers] = &results[..] else { unreachable!("attention has three results") };
    let sums = largest.floats().iter().zip(powers.floats());
    let sums = sums.map(|(largest, powers)| (f64::from(*largest) + f64::from(*powers).ln()) as f32);
    vec![y.clone(), HostTensor::float(largest.shape.clone(), DType::F32, sums.collect())]
}

pub(in crate::program) fn write_slots(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::WriteSlots { pools } = *kind else { unreachable!("the row of another op") };
    let [cache, new, slots] = operands else {
        unreachable!("write_slots takes a cache, rows and their places")
    };
    let block = cache.shape[1];
    let width: usize = cache.shape[2..].iter().product();
    let first = first_blocks(new.shape[0], cache.shape[0], pools);
    let slot = |(token, slot): (usize, &i64)| {
        first[token / new.shape[1]] * block + usize::try_from(*slot).unwrap_or(usize::MAX)
    };
    let slots: Vec<usize> = slots.ints().iter().enumerate().map(slot).collect();
    match (&cache.data, &new.data) {
        (HostData::Int(old), HostData::Int(new)) => {
            HostTensor::int(result.shape.clone(), result.dtype, with_rows(old, new, &slots, width))
        }
        _ => {
            let data = with_rows(cache.floats(), new.floats(), &slots, width);
            HostTensor::float(result.shape.clone(), result.dtype, data)
        }
    }
}

/// Returns `old` with the rows `new` at these places.
fn with_rows<T: Copy>(old: &[T], new: &[T], places: &[usize], width: usize) -> Vec<T> {
    let mut data = old.to_vec();
    for (place, row) in places.iter().zip(new.chunks(width.max(1))) {
        data[place * width..(place + 1) * width].copy_from_slice(row);
    }
    data
}

pub(in crate::program) fn write_scales(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::WriteScales { pools } = *kind else { unreachable!("the row of another op") };
    let [scales, new, slots] = operands else {
        unreachable!("write_scales takes scales, new scales and their places")
    };
    let [heads, block] = [1, 2].map(|dim| scales.shape[dim]);
    let first = first_blocks(new.shape[0], scales.shape[0], pools);
    let mut data = scales.floats().to_vec();
    for (token, slot) in slots.ints().iter().enumerate() {
        let slot = first[token / new.shape[1]] * block + usize::try_from(*slot).unwrap_or(usize::MAX);
        for head in 0..heads {
            data[(slot / block * heads + head) * block + slot % block] = new.floats()[token * heads + head];
        }
    }
    HostTensor::float(result.shape.clone(), result.dtype, data)
}

/// Returns the position of each sequence's state in all states.
fn places<'a>(states: &HostTensor, index: &'a HostTensor, pools: usize) -> impl Iterator<Item = usize> + 'a {
    let first = first_blocks(index.shape[0], states.shape[0], pools);
    index.ints().iter().zip(first).map(|(at, first)| first + usize::try_from(*at).unwrap_or(usize::MAX))
}

pub(in crate::program) fn read_states(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::ReadStates { pools } = *kind else { unreachable!("the row of another op") };
    let [states, index] = operands else { unreachable!("read_states takes states and an index") };
    let width: usize = states.shape[1..].iter().product();
    let of = |place: usize| states.floats()[place * width..(place + 1) * width].iter().copied();
    let data = places(states, index, pools).flat_map(of).collect();
    HostTensor::float(result.shape.clone(), result.dtype, data)
}

pub(in crate::program) fn write_states(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::WriteStates { pools } = *kind else { unreachable!("the row of another op") };
    let [states, new, index] = operands else { unreachable!("write_states takes states, rows and an index") };
    let width: usize = states.shape[1..].iter().product();
    let mut data = states.floats().to_vec();
    for (row, place) in places(states, index, pools).enumerate() {
        data[place * width..(place + 1) * width]
            .copy_from_slice(&new.floats()[row * width..(row + 1) * width]);
    }
    HostTensor::float(result.shape.clone(), result.dtype, data)
}
