//! Spans for subscribers of an application.

use std::sync::{Arc, Mutex};

use ascend_tp::base::DType;
use ascend_tp::program::Builder;
use ascend_tp::schedule::Target;
use ascend_tp::{Mesh, Pins, compile};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the names of all spans, in order.
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl Subscriber for Names {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut names = self.0.lock().unwrap();
        names.push(span.metadata().name());
        Id::from_u64(names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_sees_the_passes_of_a_compilation_in_order() {
    let mut build = Builder::new("linear");
    let x = build.input("x", [2, 4], DType::F32);
    let w = build.param("w", [3, 4], DType::F32);
    let y = build.matmul("bi,oi->bo", x, w);
    build.output("y", y);
    let (program, mesh) = (build.finish().unwrap(), Mesh::new(&[("tp", 2)]).unwrap());
    let names = Arc::default();
    let subscriber = Names(Arc::clone(&names));
    // Passes run on the threads of a pool. A pool of one thread has one subscriber.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        tracing::subscriber::with_default(subscriber, || {
            compile(&program, &mesh, &Pins::default().split_axis("w", 1), Target::ANY).unwrap()
        })
    });
    assert_eq!(
        *names.lock().unwrap(),
        [
            "parallelize",
            "place",
            "insert_reshards",
            "verify_placed",
            "lower",
            "fuse",
            "share",
            "verify_placed",
            "emit",
            "order",
            "assign_memory",
            "verify_plans"
        ]
    );
}
