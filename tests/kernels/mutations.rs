//! Mutations of the kernels' source, by rules and from a list.
//!
//! A mutation replaces a statement or expression by another of the same type. The mutated source
//! contains both, selected at run time, so line numbers stay the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// A replacement. `«` and `»` mark the replaced part of a text that occurs once in the file.
struct Mutation {
    /// File name without extension; shared files are `.h`.
    file: &'static str,
    at: &'static str,
    instead: &'static str,
}

const fn mutation(file: &'static str, at: &'static str, instead: &'static str) -> Mutation {
    Mutation { file, at, instead }
}

/// Shared headers, each with a kernel that uses the whole header.
pub(crate) const SHARED: [(&str, &str); 4] = [
    ("feedback.h", "sign_compress"),
    ("part.h", "ordered_sum"),
    ("tile.h", "vocab_ce"),
    ("topk.h", "topk_threshold"),
];

/// Mutations that no rule finds: strides, offsets, buffer sizes, swapped queues.
const MUTATIONS: &[Mutation] = &[
    mutation("part", "perBlock = «32» / bytes", "16"),
    mutation("part", "(«(uint64_t)address % 32») / bytes", "0"),
    mutation("part", "each = («blocks + cores - 1») / cores", "blocks"),
    mutation("part", "begin = «each * GetBlockIdx()»", "each * GetBlockIdx() + 1"),
    mutation("part", "end = «begin + each»", "begin + each + 1"),
    mutation("ordered_sum", "source[«uint64_t(chunk) * n + at»]", "uint64_t(chunk) * n + at + 1"),
    mutation("ordered_sum", "sums[«level * ORDERED_SUM_TILE»];", "level * ORDERED_SUM_TILE + 1"),
    mutation("ordered_sum", "sums[«below * ORDERED_SUM_TILE»]", "(below + 1) * ORDERED_SUM_TILE"),
    mutation("ordered_sum", "target[«at»]", "at + 1"),
    mutation("ordered_sum", "at += «ORDERED_SUM_TILE») {", "2 * ORDERED_SUM_TILE"),
    mutation("ordered_sum", "? part.to - at : «ORDERED_SUM_TILE»;", "2 * ORDERED_SUM_TILE"),
    mutation("grad_stats", "Fetch(in, gradient[«at»]", "at + 1"),
    mutation("grad_stats", "Store(out, tile, gradient[«at»]", "at + 1"),
    mutation("grad_stats", "records[«GetBlockIdx() * GRAD_STATS_RECORD»]", "GetBlockIdx() * 8"),
    mutation("grad_stats", "records[GetBlockIdx() * GRAD_STATS_RECORD], «GRAD_STATS_RECORD»", "8"),
    mutation("grad_stats", "flaws = rows[«2 * GRAD_STATS_LANES»]", "GRAD_STATS_LANES"),
    mutation("grad_stats", "Duplicate(rows, 0.0f, «3» * GRAD_STATS_LANES)", "2"),
    mutation("grad_stats", "Muls(result[«16»], flaws", "12"),
    mutation("grad_stats", "Muls(result[8], low, 1.0f, «8»)", "4"),
    mutation("vocab_ce", "rowData[uint64_t(row) * VOCAB_CE_RECORD], «VOCAB_CE_RECORD»", "4"),
    mutation("vocab_ce", "from = «each * GetBlockIdx()»", "0"),
    mutation("vocab_ce", "? «from + each» : rows", "from + each + 1"),
    mutation("vocab_ce", "logits[«uint64_t(row) * vocab + column»]", "uint64_t(row + 1) * vocab + column"),
    mutation("vocab_ce", "work.Get<float>(), «count», true)", "count + 1"),
    mutation("vocab_ce", "Adds(values, values, -maximum, «VOCAB_CE_TILE»)", "2 * VOCAB_CE_TILE"),
    mutation(
        "vocab_ce",
        "WholeReduceSum(record[1], lanes.Get<float>(), «VOCAB_CE_LANES»",
        "VOCAB_CE_LANES + 1",
    ),
    mutation("vocab_ce", "record, rowData[«uint64_t(row) * VOCAB_CE_RECORD»]", "uint64_t(row) * 4"),
    mutation(
        "vocab_ce",
        "const uint64_t scale = «uint64_t(row) * VOCAB_CE_RECORD»",
        "uint64_t(row + 1) * VOCAB_CE_RECORD",
    ),
    mutation("vocab_ce", "Store(out, result, logits[«at»]", "at + 1"),
    mutation("cache_write", "token += «GetBlockNum()»", "1"),
    mutation("cache_write", "Fetch(«in», keys", "angles"),
    mutation("cache_write", "byAngle{1, 1, 1, next, «next», 0}", "uint8_t(next + 1)"),
    mutation("cache_write", "both{1, 1, 1, next, next, «next»}", "uint8_t(8)"),
    mutation("cache_write", "DataCopyPad(angle[«CACHE_WRITE_MAX_HALF»]", "CACHE_WRITE_MAX_HALF / 2"),
    mutation("cache_write", "sine = angle[«CACHE_WRITE_MAX_HALF + at»]", "at"),
    mutation("cache_write", "half - at : «64»;", "72"),
    mutation("cache_write", "MAX_HALF], sines[«uint64_t(token) * half»]", "uint64_t(token + 1) * half"),
    mutation("cache_write", "to = (row * heads + head) * «dim»", "(dim - 8)"),
    mutation("cache_write", "sequence = token / «shape.each»", "(shape.each + 1)"),
    mutation("cache_write", "+ start + «token % shape.each»", "0"),
    mutation("cache_write", "uint64_t(sequence) * «shape.rows» + start", "(shape.rows + 1)"),
    mutation("cache_write", "uint64_t(token) * «shape.keyStride»", "(heads * dim)"),
    mutation("cache_write", "uint64_t(token) * «shape.valueStride»", "(heads * dim)"),
    mutation(
        "cache_write",
        "if (most > CACHE_WRITE_MAX_HEADS) most = «CACHE_WRITE_MAX_HEADS»",
        "(2 * CACHE_WRITE_MAX_HEADS)",
    ),
    mutation("cache_write", "most = «CACHE_WRITE_TILE / dim»", "2 * CACHE_WRITE_TILE / dim"),
    mutation("sign_compress", "record < count; record += «GetBlockNum()»", "1"),
    mutation("sign_compress", "elements; record += «GetBlockNum()»", "1"),
    mutation("sign_compress", "share + record) * SIGN_BYTES], «SIGN_BYTES»", "SIGN_BYTES - 32"),
    mutation(
        "sign_compress",
        "said, records[uint64_t(record) * SIGN_BYTES], «SIGN_BYTES»",
        "SIGN_BYTES - 32",
    ),
    mutation("sign_compress", "Store(«out», rest", "outRecord"),
    mutation("sign_compress", "Store(«outRecord», said", "out"),
    mutation(
        "sign_compress",
        "said, records[«uint64_t(record) * SIGN_BYTES»]",
        "uint64_t(record) * (SIGN_BYTES - 16)",
    ),
    mutation(
        "sign_compress",
        "records[«(uint64_t(card) * share + record) * SIGN_BYTES»]",
        "card * SIGN_BYTES + 16",
    ),
    mutation("sign_compress", "CompareScalar(said[«from / 8»]", "from / 16"),
    mutation("sign_compress", "CMPMODE::GE, «SIGN_TILE»)", "some"),
    mutation("sign_compress", "Select(sign, record[from / 8], «ones.Get<float>()»", "ones.Get<float>()[8]"),
    mutation("sign_compress", "Brcb(scale, record[«SIGN_SCALES»]", "SIGN_SCALES - 32"),
    mutation(
        "sign_compress",
        "byScale = «BinaryRepeatParams{1, 1, 0, 8, 8, 0}»",
        "BinaryRepeatParams{1, 1, 1, 8, 8, 0}",
    ),
    mutation(
        "sign_compress",
        "byScale = «BinaryRepeatParams{1, 1, 0, 8, 8, 0}»",
        "BinaryRepeatParams{1, 1, 0, 8, 8, 1}",
    ),
    mutation("sign_compress", "0.0f, «SIGN_ROWS»);\n            for", "4"),
    mutation("sign_compress", "WholeReduceSum(lanes, magnitude, «64», SIGN_TILE", "65"),
    mutation("sign_compress", "feedback.kept[«at»], some", "at + 1"),
    mutation("sign_compress", "hear.Tile(sum[«from»], said", "0"),
    mutation("feedback", "Fetch(«inX», x", "inKept"),
    mutation("feedback", "Fetch(«inWhole», whole", "inX"),
    mutation("feedback", "Fetch(«inKept», kept", "inX"),
    mutation("feedback", "Fetch(inX, x[«at»]", "at + 1"),
    mutation("feedback", "Fetch(inWhole, whole[«at»]", "at + 1"),
    mutation("feedback", "Fetch(inKept, kept[«at»]", "at + 1"),
    mutation("feedback", "Duplicate(u, 0.0f, «tile»)", "tile / 2"),
    mutation("topk", "feedback.Begin(«next», Count(next))", "next + 1"),
    mutation("topk", "GatherMask(to, from, bits.Get<uint32_t>(), true, «TILE»", "2 * TILE"),
    mutation("topk", "Fetch(in, round, «size»)", "size - TOPK_WIDTH"),
    mutation("topk", "size = «(cores + 1) * TOPK_WIDTH»", "cores * TOPK_WIDTH"),
    mutation("topk_threshold", "(above + more + «7») / 8 * 8", "0"),
    mutation("topk_threshold", "more = «between < left ? between : left»", "between"),
    mutation("topk_threshold", "after[«row * TOPK_WIDTH»]", "row * 4"),
    mutation("topk_threshold", "Write(«cores», range)", "cores + 1"),
    mutation("topk_threshold", "Write(«GetBlockIdx()», found)", "0"),
    mutation("topk_threshold", "after[row * TOPK_WIDTH], «TOPK_WIDTH»", "4"),
    mutation("topk_threshold", "Store(«outValues», value", "outIndices"),
    mutation("topk_threshold", "Store(«outIndices», index", "outValues"),
    mutation("topk_threshold", "feedback.kept[«at»], Count", "at + 1"),
];

const DROPPED: [&str; 8] =
    [".EnQue(", ".FreeTensor(", "PipeBarrier<", "SetFlag<", "WaitFlag<", "Fetch(", "Store(", "Await<"];
const REPEATED: [&str; 6] = [".EnQue(", ".FreeTensor(", "SetFlag<", "WaitFlag<", "Fetch(", "Store("];

const REPLACED: [(&str, &str); 3] =
    [("DeQue<", "AllocTensor<"), (", count);", ", count + 1);"), (", count);", ", count - 1);")];

pub(crate) struct Mutated {
    pub(crate) text: String,
    pub(crate) mutations: Vec<String>,
}

/// Inserts all mutations of a file, numbered from `before + 1`.
pub(crate) fn mutate(file: &str, source: &str, before: usize) -> Mutated {
    // By position: length of the replaced text, and the replacements.
    let mut places: BTreeMap<usize, (usize, Vec<String>)> = BTreeMap::new();
    let mut add = |at: usize, length: usize, instead: String| {
        let (found, all) = places.entry(at).or_insert((length, Vec::new()));
        assert_eq!(*found, length, "{file}: two mutations overlap at {:?}", &source[at..at + length]);
        all.push(instead);
    };
    by_rule(source, &mut add);
    let name = Path::new(file).file_stem().expect("a name");
    for mutation in MUTATIONS.iter().filter(|mutation| name == mutation.file) {
        let (head, rest) = mutation.at.split_once('«').expect("a mutation marks its place");
        let (target, tail) = rest.split_once('»').expect("a mutation marks its place");
        let places: Vec<usize> =
            source.match_indices(&format!("{head}{target}{tail}")).map(|(at, _)| at).collect();
        assert_eq!(places.len(), 1, "{file}: {:?} must be there once", mutation.at);
        add(places[0] + head.len(), target.len(), mutation.instead.to_owned());
    }
    write_all(file, source, places, before)
}

/// Adds mutations by rule, as position, length and replacement. Dropped and duplicated statements
/// have length 0.
fn by_rule(source: &str, add: &mut impl FnMut(usize, usize, String)) {
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let code = line.split("//").next().expect("a line has a beginning");
        let is_definition = code.contains("__aicore__ inline");
        if let Some(pattern) = DROPPED.iter().find(|pattern| code.contains(**pattern) && !is_definition) {
            let statement = code.trim();
            let from = ["{ ", ") "]
                .iter()
                .filter_map(|open| statement[..statement.find(pattern).expect("found")].rfind(open))
                .max();
            let statement = from.map_or(statement, |from| &statement[from + 2..]);
            let end = statement.find(';').expect("a statement ends in its line") + 1;
            let at = start + code.find(statement).expect("a part of it");
            add(at, 0, format!("{} not", &statement[..end]));
            if REPEATED.contains(pattern) {
                add(at, 0, format!("{} twice", &statement[..end]));
            }
        }
        if let Some((_, arguments)) = code
            .split_once("pipe.InitBuffer(")
            .and_then(|(head, rest)| Some((head, rest.split_once(");")?.0)))
        {
            let size = last_argument(arguments);
            add(
                start + code.find(arguments).expect("found") + arguments.len() - size.len(),
                size.len(),
                format!("{size} - 32"),
            );
        }
        for (expression, instead) in REPLACED {
            for (at, _) in code.match_indices(expression) {
                if expression.starts_with("DeQue") {
                    let begin = code[..at].rfind("= ").expect("the result is used") + 2;
                    let end = at + code[at..].find("()").expect("a call") + 2;
                    add(start + begin, end - begin, code[begin..end].replace(expression, instead));
                } else {
                    // The text between the comma and the parenthesis.
                    add(start + at + 2, expression.len() - 4, instead[2..instead.len() - 2].to_owned());
                }
            }
        }
        start += line.len();
    }
}

fn last_argument(arguments: &str) -> &str {
    let is_whole = |text: &str| text.matches('(').count() == text.matches(')').count();
    let mut rests = arguments.rmatch_indices(", ").map(|(at, _)| &arguments[at + 2..]);
    rests.find(|rest| is_whole(rest)).expect("a buffer has a size")
}

fn write_all(
    file: &str,
    source: &str,
    places: BTreeMap<usize, (usize, Vec<String>)>,
    before: usize,
) -> Mutated {
    let (mut text, mut mutations, mut done) = (String::new(), Vec::new(), 0);
    for (at, (length, all)) in places {
        assert!(done <= at, "{file}: two mutations overlap at {:?}", &source[at..at + length]);
        let original = &source[at..at + length];
        text.push_str(&source[done..at]);
        let mut closing = String::new();
        for instead in all {
            let line = source[..at].lines().count();
            let number = before + mutations.len() + 1;
            let written = if length == 0 {
                let times = if instead.ends_with("twice") { "2 : 1" } else { "0 : 1" };
                mutations.push(format!("{file}:{line}: {instead}"));
                write!(
                    text,
                    "for (int times = ::ascend_host::mutant == {number} ? {times}; times > 0; --times) "
                )
            } else {
                mutations.push(format!("{file}:{line}: {original} -> {instead}"));
                closing.push(')');
                write!(text, "(::ascend_host::mutant == {number} ? {instead} : ")
            };
            written.expect("a String takes everything");
        }
        text.push_str(original);
        text.push_str(&closing);
        done = at + length;
    }
    text.push_str(&source[done..]);
    Mutated { text, mutations }
}
