//! `split_axis` and `gather` are inverse for any rank, axis, world size, remainder and strides.
//! Also tests all refusals.

use ascend_tp::base::DType;
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::shard::{
    GatherError, Remainder, Shard, SplitError, Tensor, TensorView, gather, part, part_size, partition,
};
use ascend_tp::split_axis;
use proptest::prelude::*;

const REMAINDERS: [Remainder; 3] = [Remainder::Last, Remainder::Balanced, Remainder::ZeroPadded];

/// Arguments of a strided view. Values are positions plus one, so none equals a padding zero.
#[derive(Clone, Debug)]
struct Layout {
    data: Vec<u64>,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl Layout {
    fn view(&self) -> TensorView<'_, u64> {
        TensorView::strided(&self.data, self.shape.clone(), self.strides.clone(), self.offset)
            .expect("within the data")
    }
}

/// Draws dims in any order, with gaps (stride step 2 or 3), an offset, or repetition (step 0).
fn layout(rank: usize) -> impl Strategy<Value = Layout> {
    let shape = prop::collection::vec(0usize..6, rank);
    let steps =
        prop::collection::vec(prop_oneof![6 => Just(1usize), 2 => 2usize..4, 1 => Just(0usize)], rank);
    let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
    let row_major = any::<bool>();
    (shape, steps, order, row_major, 0usize..4).prop_map(|(shape, steps, order, row_major, offset)| {
        let rank = shape.len();
        let mut strides = vec![0; rank];
        let mut extent = 1;
        for place in (0..rank).rev() {
            let dim = if row_major { place } else { order[place] };
            let step = if row_major { 1 } else { steps[dim] };
            strides[dim] = extent * step;
            extent *= (shape[dim] * step).max(1);
        }
        let data = (1..).take(offset + extent).collect();
        Layout { data, shape, strides, offset }
    })
}

fn split() -> impl Strategy<Value = (Layout, usize, usize, Remainder)> {
    (1usize..=5)
        .prop_flat_map(|rank| (layout(rank), 0..rank, 1usize..=9, prop::sample::select(&REMAINDERS[..])))
}

fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |indices, size| {
        indices.iter().flat_map(|index| (0..*size).map(move |last| [&index[..], &[last]].concat())).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn gather_is_the_inverse_of_split_axis((layout, axis, world, remainder) in split()) {
        let view = layout.view();
        let shards = split_axis(&view, axis, world, remainder).expect("a legal split");
        let whole = gather(&shards, axis, layout.shape[axis], remainder).expect("parts of one split");
        prop_assert_eq!(whole.shape(), view.shape());
        prop_assert_eq!(whole.data(), view.to_vec());
    }

    #[test]
    fn gather_reads_received_buffers((layout, axis, world, remainder) in split()) {
        let view = layout.view();
        let shards = split_axis(&view, axis, world, remainder).expect("a legal split");
        let received: Vec<Tensor<u64>> = shards
            .iter()
            .map(|shard| Tensor::new(shard.to_vec(), shard.shape().clone()).expect("its own shape"))
            .collect();
        let received: Vec<_> = received.iter().map(|tensor| Shard::View(tensor.view())).collect();
        let whole = gather(&received, axis, layout.shape[axis], remainder).expect("parts of one split");
        prop_assert_eq!(whole.data(), view.to_vec());
    }

    /// Compares elements with the definition, without the copying code.
    #[test]
    fn a_shard_is_its_range_and_zeros((layout, axis, world, remainder) in split()) {
        let view = layout.view();
        let size = layout.shape[axis];
        for (rank, shard) in split_axis(&view, axis, world, remainder).expect("a legal split").iter().enumerate() {
            let owned = part(size, world, rank, remainder).expect("a rank of the world");
            let stored = part_size(size, world, rank, remainder).expect("a rank of the world");
            prop_assert_eq!(shard.shape(), &view.shape().with(axis, stored));
            for mut index in indices(shard.shape()) {
                let found = *shard.view().get(&index).expect("an index of the shard");
                let is_real = index[axis] < owned.len();
                index[axis] += owned.start;
                let expected = if is_real { *view.get(&index).expect("an index of the tensor") } else { 0 };
                prop_assert_eq!(found, expected, "rank {} at {:?}", rank, index);
            }
        }
    }

    #[test]
    fn views_are_not_copied((layout, axis, world, remainder) in split()) {
        let view = layout.view();
        let size = layout.shape[axis];
        for (rank, shard) in split_axis(&view, axis, world, remainder).expect("a legal split").iter().enumerate() {
            let owned = part(size, world, rank, remainder).expect("a rank of the world");
            let stored = part_size(size, world, rank, remainder).expect("a rank of the world");
            prop_assert_eq!(matches!(shard, Shard::Padded(_)), stored > owned.len());
            let memory = layout.data.as_ptr_range();
            let is_inside = shard.view().runs().all(|run| memory.contains(&run.as_ptr()));
            prop_assert!(matches!(shard, Shard::Padded(_)) || is_inside);
        }
    }

    #[test]
    fn parts_of_any_size_tile_it(size in any::<usize>(), parts in 1usize..=300, remainder in prop::sample::select(&REMAINDERS[..])) {
        let ranges = partition(size, parts, remainder).expect("parts is not 0");
        prop_assert_eq!(ranges.len(), parts);
        prop_assert_eq!(ranges[0].start, 0);
        prop_assert_eq!(ranges[parts - 1].end, size);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].start <= pair[0].end));
        let lengths: Vec<_> = ranges.iter().map(ExactSizeIterator::len).collect();
        match remainder {
            Remainder::Last => prop_assert!(lengths[..parts - 1].iter().all(|length| *length == size / parts)),
            Remainder::Balanced => prop_assert!(lengths.iter().all(|length| length - size / parts <= 1)),
            Remainder::ZeroPadded => prop_assert!(lengths.iter().all(|length| *length <= size.div_ceil(parts))),
        }
    }

    #[test]
    fn gather_names_the_part_that_does_not_fit((layout, axis, world, remainder) in split(), victim in any::<prop::sample::Index>()) {
        let view = layout.view();
        let mut shards = split_axis(&view, axis, world, remainder).expect("a legal split");
        let victim = victim.index(world);
        let longer = shards[victim].shape().with(axis, shards[victim].shape()[axis] + 1);
        let longer = Tensor::new(vec![0; longer.elems()], longer).expect("its own shape");
        shards[victim] = Shard::View(longer.view());
        let error = gather(&shards, axis, layout.shape[axis], remainder).expect_err("a part that is too long");
        let GatherError::Parts(problems) = &error else { panic!("{error}") };
        prop_assert_eq!(problems.items().len(), 1);
        prop_assert_eq!(&problems.items()[0].place, &format!("part {victim} of {world}"));
    }
}

#[test]
fn every_small_split_comes_together_again() {
    for size in 0..=10 {
        let data: Vec<usize> = (1..=2 * size * 3).collect();
        let view = TensorView::contiguous(&data, [2, size, 3]).expect("its own shape");
        for world in 1..=12 {
            for remainder in REMAINDERS {
                let shards = split_axis(&view, 1, world, remainder).expect("a legal split");
                assert_eq!(shards.len(), world);
                let whole = gather(&shards, 1, size, remainder).expect("parts of one split");
                assert_eq!(
                    (whole.data(), whole.shape()),
                    (&data[..], view.shape()),
                    "{size} in {world}, {remainder}"
                );
            }
        }
    }
}

#[test]
fn element_types_need_no_arithmetic() {
    let halves = [[0x00u8, 0x3c], [0x00, 0x40], [0x00, 0x42]];
    let view = TensorView::contiguous(&halves, [3]).expect("its own shape");
    let shards = split_axis(&view, 0, 2, Remainder::ZeroPadded).expect("a legal split");
    assert_eq!(shards[1].to_vec(), [[0x00, 0x42], [0, 0]]);
    let words = ["in".to_owned(), "the".to_owned(), "beginning".to_owned()];
    let view = TensorView::contiguous(&words, [3]).expect("its own shape");
    let shards = split_axis(&view, 0, 3, Remainder::Last).expect("a legal split");
    assert_eq!(gather(&shards, 0, 3, Remainder::Last).expect("parts of one split").into_data(), words);
}

#[test]
fn an_axis_out_of_bounds_is_refused_with_axis_and_rank() {
    let data = [0.0f32; 6];
    let view = TensorView::contiguous(&data, [2, 3]).expect("its own shape");
    for axis in [2, 3, usize::MAX] {
        let error = split_axis(&view, axis, 2, Remainder::Last).expect_err("no such axis");
        assert!(matches!(error, SplitError::AxisOutOfBounds { rank: 2, .. }));
        assert_eq!(
            error.to_string(),
            format!(
                "split_axis: axis {axis} is out of bounds for rank 2 (shape [2,3]): expected an axis from 0 to 1"
            )
        );
    }
}

#[test]
fn world_zero_is_refused_with_axis_and_rank() {
    let data = [0.0f32; 6];
    let view = TensorView::contiguous(&data, [2, 3]).expect("its own shape");
    for remainder in REMAINDERS {
        let error = split_axis(&view, 1, 0, remainder).expect_err("no rank");
        assert_eq!(
            error.to_string(),
            "split_axis: world 0 along axis 1 of rank 2 (shape [2,3]): expected at least 1 rank"
        );
    }
}

#[test]
fn a_scalar_is_refused() {
    let view = TensorView::contiguous(&[1.5f32], []).expect("one element");
    for remainder in REMAINDERS {
        let error = split_axis(&view, 0, 4, remainder).expect_err("no axis");
        assert_eq!(
            error.to_string(),
            "split_axis: axis 0 is out of bounds for rank 0: a scalar has no axis to split; replicate it"
        );
        let error = gather(&[Shard::View(view.clone())], 0, 1, remainder).expect_err("no axis");
        assert!(
            error.to_string().starts_with("gather: axis 0 is out of bounds for rank 0 (shape [] of part 0)")
        );
    }
}

#[test]
fn gather_needs_shards_and_an_axis() {
    let error = gather::<f32>(&[], 0, 0, Remainder::Last).expect_err("no shards");
    assert_eq!(error, GatherError::NoShards { axis: 0 });
    let data = [0; 4];
    let view = TensorView::contiguous(&data, [4]).expect("its own shape");
    let error = gather(&[Shard::View(view)], 1, 4, Remainder::Last).expect_err("no such axis");
    assert_eq!(
        error.to_string(),
        "gather: axis 1 is out of bounds for rank 1 (shape [4] of part 0): expected shards with more than 1 dims"
    );
}

#[test]
fn gather_lists_all_parts_that_do_not_fit() {
    let data = [0; 6];
    let shard = |shape: &[usize]| {
        let elems: usize = shape.iter().product();
        Shard::View(TensorView::contiguous(&data[..elems], shape).expect("its own shape"))
    };
    let shards = [shard(&[2, 1]), shard(&[3, 1]), shard(&[2, 1]), shard(&[2])];
    let error = gather(&shards, 1, 5, Remainder::Last).expect_err("two parts differ");
    assert_eq!(
        error.to_string(),
        "gather: the parts do not fit together:\n\
         part 1 of 4: wrong shape: expected [2,1], found [3,1]; axis 1 of size 5 in 4 parts (remainder last) gives this \
         part 1, and the other dims must equal part 0\n\
         part 3 of 4: wrong shape: expected [2,2], found [2]; axis 1 of size 5 in 4 parts (remainder last) gives this \
         part 2, and the other dims must equal part 0"
    );
}

#[test]
fn gather_refuses_another_remainder_or_size() {
    let data = [1, 2, 3, 4, 5];
    let view = TensorView::contiguous(&data, [5]).expect("its own shape");
    let shards = split_axis(&view, 0, 3, Remainder::Last).expect("a legal split");
    assert!(matches!(gather(&shards, 0, 5, Remainder::Balanced), Err(GatherError::Parts(_))));
    assert!(matches!(gather(&shards, 0, 6, Remainder::Last), Err(GatherError::Parts(_))));
}

#[test]
fn gather_refuses_more_elements_than_can_be_counted() {
    let half = usize::MAX / 2 + 1;
    let view = TensorView::strided(&[1u8], [half, 1], [0, 0], 0).expect("one element, repeated");
    let shards = [Shard::View(view.clone()), Shard::View(view)];
    assert!(matches!(gather(&shards, 1, 2, Remainder::Last), Err(GatherError::TooLarge { .. })));
}

/// The shards in plans equal repeated `split_axis` with the balanced remainder.
#[test]
fn plans_cut_weights_as_split_axis_does() {
    let config = ModelConfig { layers: 1, ..ModelConfig::from_json(ModelConfig::SHIPPED).unwrap() };
    let deployment = Deployment {
        precision: DType::F32.into(),
        longest_prompt: 4,
        context: 8,
        ..Deployment::of(&config, 3)
    };
    let plans = deployment.compile(&config).unwrap().prefill;
    let mut uneven = 0;
    for at in 0..plans[0].params.len() {
        let (name, shape) = (&plans[0].params[at].name, &plans[0].params[at].shape);
        let whole: Vec<u32> = (0..).take(shape.elems()).collect();
        let bytes: Vec<u8> = whole.iter().flat_map(|number| number.to_le_bytes()).collect();
        let parts: Vec<Vec<u8>> = plans.iter().map(|plan| plan.params[at].cut(&bytes).into_owned()).collect();
        let held = |rank: usize, dim: usize| plans[rank].params[at].ranges[dim].clone();
        let Some(dim) = (0..shape.rank()).find(|dim| held(0, *dim).len() < shape[*dim]) else {
            assert!(parts.iter().all(|part| *part == bytes), "{name} is whole on all ranks");
            continue;
        };
        let view = TensorView::contiguous(&whole, shape.clone()).unwrap();
        let shards = split_axis(&view, dim, plans.len(), Remainder::Balanced).unwrap();
        for (rank, (shard, part)) in shards.iter().zip(&parts).enumerate() {
            let expected: Vec<u8> = shard.to_vec().iter().flat_map(|number| number.to_le_bytes()).collect();
            assert_eq!(*part, expected, "{name} on rank {rank}");
        }
        uneven += usize::from(shape[dim] % plans.len() != 0);
    }
    assert!(uneven > 0, "three cards divide every weight");
}
