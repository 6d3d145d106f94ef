//! Benchmarks all passes of both serving programs for all ranks. The time should grow no faster
//! than layers × ranks.

use ascend_tp::base::DType;
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::program::models::Head;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn compile(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compile qwen-72b");
    group.sample_size(10);
    for (cards, layers) in [(1, 8), (1, 80), (8, 8), (8, 80), (64, 8), (64, 80)] {
        let Some(config) = ModelConfig::preset("qwen-72b") else { return };
        let config = ModelConfig { layers, ..config };
        let deployment = Deployment {
            precision: DType::BF16.into(),
            longest_prompt: 512,
            context: 1024,
            head: Head::LastToken,
            ..Deployment::of(&config, cards)
        };
        group.throughput(Throughput::Elements((cards * layers) as u64));
        group.bench_function(
            BenchmarkId::from_parameter(format!("{cards} cards, {layers} layers")),
            |bencher| {
                bencher.iter(|| deployment.compile(&config).map(|programs| programs.decode.len()));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, compile);
criterion_main!(benches);
