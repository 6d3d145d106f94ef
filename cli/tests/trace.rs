//! Checks of the trace event format, as viewers require it.

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) struct Checked {
    pub(crate) threads: BTreeMap<(u64, u64), String>,
    /// Sorted slices in microseconds.
    pub(crate) slices: BTreeMap<(u64, u64), Vec<(f64, f64)>>,
    pub(crate) arrows: usize,
}

impl Checked {
    /// Counts the slices of the threads with a name.
    pub(crate) fn of(&self, thread: &str) -> usize {
        let own = self.slices.iter().filter(|(place, _)| self.threads[place] == thread);
        own.map(|(_, slices)| slices.len()).sum()
    }
}

/// Checks that every slice has a named thread without overlaps, and that arrows start and end in
/// slices.
pub(crate) fn check(text: &str) -> Checked {
    let trace: Value = serde_json::from_str(text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let place = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    let mut threads: BTreeMap<(u64, u64), String> = BTreeMap::new();
    let mut slices: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for event in events {
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => {
                let name = event["args"]["name"].as_str().unwrap().to_owned();
                assert_eq!(threads.insert(place(event), name), None, "{event}");
            }
            "M" => assert!(event["args"].is_object(), "{event}"),
            "X" => {
                let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                assert!(ts >= 0.0 && dur >= 0.0 && !event["name"].as_str().unwrap().is_empty(), "{event}");
                slices.entry(place(event)).or_default().push((ts, ts + dur));
            }
            "s" | "f" => arrows.entry(event["id"].as_u64().unwrap()).or_default().push(event),
            other => panic!("{other}: {event}"),
        }
    }
    for (thread, slices) in &mut slices {
        assert!(threads.contains_key(thread), "{thread:?} has a name");
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        let overlap = slices.windows(2).find(|pair| pair[1].0 < pair[0].1 - 1e-3);
        assert_eq!(overlap, None, "{thread:?}: {}", threads[thread]);
    }
    for arrow in arrows.values() {
        assert_eq!((arrow.len(), &arrow[0]["ph"], &arrow[1]["ph"]), (2, &"s".into(), &"f".into()));
        assert_eq!(arrow[1]["bp"], "e");
        for end in arrow {
            let ts = end["ts"].as_f64().unwrap();
            let inside = slices[&place(end)].iter().any(|slice| slice.0 - 1e-3 <= ts && ts <= slice.1 + 1e-3);
            assert!(inside, "{end} is in a slice");
        }
    }
    Checked { threads, slices, arrows: arrows.len() }
}
