//! Attention reads keys in blocks; surplus keys are hidden and add nothing.

use std::ops::ControlFlow;
use std::path::Path;

use ascend_tp::Cann;
use ascend_tp::base::{DType, Id};
use ascend_tp::call::{BufferId, Call, View};
use ascend_tp::device::{Buffer, Device, Stream, Tensor, operator};
use ascend_tp::emulator::{Config, Emulator, Mode};
use ascend_tp::exec::{EngineOptions, KEY_BLOCK, Launching, prepare};
use ascend_tp::generate::{Model, Request, RequestEvent, Session};

/// Returns the logits of two sequences: the longer one crosses a block, the shorter one ends
/// before. `context` is the cache capacity.
fn logits(context: usize, launching: Launching) -> Vec<(usize, Vec<f32>)> {
    let model = Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2")).unwrap();
    let cann = Cann::new(Emulator::new(Config::with_cards(2)).unwrap().table()).unwrap();
    let engine = EngineOptions { launching, ..EngineOptions::default() };
    let builder = Session::builder(&cann, &model).cards(2).batch(2).precision(DType::BF16).engine(engine);
    let mut session = builder.context(context).longest_prompt(KEY_BLOCK).start().unwrap();
    let request = |tokens: usize, new: usize| {
        let ids: Vec<u32> = (0..tokens).map(|at| (at * 37 % 4000) as u32 + 3).collect();
        Request { stop_ids: Some(Vec::new()), max_new_tokens: Some(new), logits: true, ..Request::new(ids) }
    };
    let mut found = Vec::new();
    session
        .generate(&[request(KEY_BLOCK - 6, 12), request(11, 5)], &mut |event| {
            if let RequestEvent::Token(token) = event {
                found.push((token.request, token.logits.unwrap().to_vec()));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(found.len(), 17);
    found
}

#[test]
fn room_for_more_keys_changes_no_bit_and_neither_does_a_graph() {
    // The capacity is less than one more block, so all keys are read.
    let all = logits(KEY_BLOCK + 10, Launching::Eager);
    for launching in [Launching::Eager, Launching::Captured] {
        assert_eq!(logits(5 * KEY_BLOCK, launching), all, "{launching:?}");
    }
}

/// Returns the strict-mode reports of attention over two sequences with four keys each, while
/// another stream writes the last key of the first sequence.
fn reports(keys: Option<&[i64]>) -> Vec<String> {
    let emulator = Emulator::new(Config { mode: Mode::Strict { seed: 3 }, ..Config::with_cards(1) }).unwrap();
    let device = Device::open(&Cann::new(emulator.table()).unwrap(), 0).unwrap();
    let [attending, writing] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let shapes = [[2, 1, 1, 16], [2, 4, 1, 16], [2, 4, 1, 16], [2, 1, 1, 4], [2, 1, 1, 16]];
    let dtypes = [DType::F16, DType::F16, DType::F16, DType::Bool, DType::F16];
    let filled = |(shape, dtype): (&[usize; 4], DType)| {
        let bytes = shape.iter().product::<usize>() * dtype.size_bytes();
        let buffer = Buffer::new(&device, bytes).unwrap();
        buffer.write(0, &vec![0; bytes]).unwrap();
        Tensor::contiguous(&buffer.whole(), dtype, *shape).unwrap()
    };
    let tensors: Vec<Tensor> = shapes.iter().zip(dtypes).map(filled).collect();
    let view = |at: usize| View::contiguous(BufferId::from_index(at), dtypes[at], shapes[at].into());
    let [q, k, v, mask, out] = [0, 1, 2, 3, 4].map(view);
    let call = Call::FusedAttention { q, k, v, mask, out, heads: 1, kv_heads: 1, scale: 1.0 };
    let mut attention = prepare(&call, &|view| Ok(tensors[view.buffer.index()].clone()), keys).unwrap();
    let workspace = Buffer::new(&device, attention.workspace_bytes()).unwrap();
    let row =
        Tensor::contiguous(&tensors[1].slice().slice(3 * 32..4 * 32).unwrap(), DType::F16, [16]).unwrap();
    let mut write = operator::prepare("aclnnInplaceZero", [(&row).into()]).unwrap();
    attention.enqueue(&attending, Some(&workspace.whole())).unwrap();
    write.enqueue(&writing, None).unwrap();
    [attending, writing].iter().for_each(|stream| stream.synchronize().unwrap());
    emulator.reports().iter().map(ToString::to_string).collect()
}

#[test]
fn keys_behind_the_length_are_not_read() {
    assert_eq!(reports(Some(&[3, 4])), Vec::<String>::new());
    for reading in [None, Some(&[4, 1][..])] {
        let found = reports(reading);
        assert!(found.len() == 1 && found[0].starts_with("race: bytes 96 to 127"), "{reading:?}: {found:?}");
    }
}
