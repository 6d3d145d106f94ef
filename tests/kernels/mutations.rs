//! Mutations of the kernels' text: those that rules find, and a list of others.
//!
//! A mutation replaces a statement or an expression by another of the same type. In the mutated text both stand, behind a test of
//! which mutation is switched on, so lines keep their numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A place in a file, between `«` and `»` in a text that is there once, and what is to stand there instead.
struct Mutation {
    kernel: &'static str,
    /// It is in `part.h`, which the kernel shares with others.
    is_shared: bool,
    at: &'static str,
    instead: &'static str,
}

const fn mutation(kernel: &'static str, at: &'static str, instead: &'static str) -> Mutation {
    Mutation { kernel, is_shared: false, at, instead }
}

/// Of `part.h`, under the first kernel that uses all of it.
const fn in_part(at: &'static str, instead: &'static str) -> Mutation {
    Mutation { kernel: "ordered_sum", is_shared: true, at, instead }
}

/// Mutations that no rule finds: strides, offsets, sizes of buffers, queues that are swapped.
const MUTATIONS: &[Mutation] = &[
    in_part("perBlock = «32» / bytes", "16"),
    in_part("(«(uint64_t)address % 32») / bytes", "0"),
    in_part("each = («blocks + cores - 1») / cores", "blocks"),
    in_part("begin = «each * GetBlockIdx()»", "each * GetBlockIdx() + 1"),
    in_part("end = «begin + each»", "begin + each + 1"),
    mutation("ordered_sum", "source[«uint64_t(chunk) * n + at»]", "uint64_t(chunk) * n + at + 1"),
    mutation("ordered_sum", "sums[«level * ORDERED_SUM_TILE»];", "level * ORDERED_SUM_TILE + 1"),
    mutation("ordered_sum", "sums[«below * ORDERED_SUM_TILE»]", "(below + 1) * ORDERED_SUM_TILE"),
    mutation("ordered_sum", "target[«at»]", "at + 1"),
    mutation("ordered_sum", "at += «ORDERED_SUM_TILE») {", "2 * ORDERED_SUM_TILE"),
    mutation("ordered_sum", "? part.to - at : «ORDERED_SUM_TILE»;", "2 * ORDERED_SUM_TILE"),
    mutation("grad_stats", "gradient[«at»], DataCopy", "at + 1"),
    mutation("grad_stats", "gradient[«at»], tile", "at + 1"),
    mutation("grad_stats", "records[«GetBlockIdx() * GRAD_STATS_RECORD»]", "GetBlockIdx() * 8"),
    mutation("grad_stats", "flaws = rows[«2 * GRAD_STATS_LANES»]", "GRAD_STATS_LANES"),
    mutation("grad_stats", "Duplicate(rows, 0.0f, «3» * GRAD_STATS_LANES)", "2"),
    mutation("grad_stats", "Muls(result[«16»], flaws", "12"),
    mutation("grad_stats", "Muls(result[8], low, 1.0f, «8»)", "4"),
    mutation("vocab_ce", "«BinaryRepeatParams{1, 1, 1, 8, 8, 0}»", "BinaryRepeatParams{1, 1, 1, 8, 8, 1}"),
    mutation("vocab_ce", "«BinaryRepeatParams{1, 1, 1, 8, 8, 0}»", "BinaryRepeatParams{1, 1, 1, 8, 9, 0}"),
    mutation("vocab_ce", "Sub(values, values, next, «VOCAB_CE_LANES», VOCAB_CE_TILE", "VOCAB_CE_LANES + 1"),
    mutation("vocab_ce", "best.Get<float>()[«2 * tile»], values", "2 * tile + 1"),
    mutation("vocab_ce", "if (hasLabel) Pick(«uint64_t(row) * vocab + label»)", "uint64_t(row + 1) * vocab + label"),
    mutation("vocab_ce", "records[«uint64_t(row) * VOCAB_CE_RECORD»]", "uint64_t(row) * 4"),
    mutation(
        "vocab_ce",
        "const uint64_t scale = «uint64_t(row) * VOCAB_CE_RECORD»",
        "uint64_t(row + 1) * VOCAB_CE_RECORD",
    ),
    mutation("vocab_ce", "DataCopyPad(logits[«at»], result", "at + 1"),
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
    mutation("sign_compress", "records[«uint64_t(chunk) * SIGN_RECORD»]", "uint64_t(chunk) * (SIGN_RECORD - 16)"),
    mutation("sign_compress", "records[«number * SIGN_RECORD»]", "number * SIGN_RECORD + 16"),
    mutation("sign_compress", "CompareScalar(record[«SIGN_HEADER»]", "SIGN_HEADER / 2"),
    mutation("sign_compress", "CMPMODE::GE, «SIGN_CHUNK»)", "count"),
    mutation("sign_compress", "Select(step, record[SIGN_HEADER], «step», -scale", "step[8]"),
    mutation("sign_compress", "WholeReduceSum(sum, magnitude, «64», 1", "65"),
    mutation(
        "sign_compress",
        "DataCopy(records[uint64_t(chunk) * SIGN_RECORD], record, «SIGN_RECORD»)",
        "SIGN_RECORD - 8",
    ),
    mutation("sign_compress", "Duplicate(record.ReinterpretCast<float>(), scale, «SIGN_HEADER / sizeof(float)»)", "4"),
    mutation("topk_threshold", "if (part.to - at > count) CopyIn(«at + count»)", "at + count + 1"),
    mutation("topk_threshold", "«TOPK_TILE - ((uint64_t)error.GetPhyAddr(at) % 32) / sizeof(float)»", "TOPK_TILE"),
    mutation("topk_threshold", "(above + more + «7») / 8 * 8", "0"),
    mutation("topk_threshold", "more = «between < left ? between : left»", "between"),
    mutation("topk_threshold", "counts[«GetBlockIdx() * TOPK_WIDTH»]", "GetBlockIdx() * 4"),
    mutation(
        "topk_threshold",
        "GatherMask(packed.Get<float>(), magnitude, bits.Get<uint32_t>(), true, «TOPK_TILE»",
        "2 * TOPK_TILE",
    ),
    mutation("topk_threshold", "DataCopy(each, counts, «cores * TOPK_WIDTH»)", "cores * TOPK_WIDTH - 4"),
    mutation("topk_threshold", "Add(sum, sum, each[«core * TOPK_WIDTH»]", "(core + 1) * TOPK_WIDTH"),
    mutation("topk_threshold", "DataCopyPad(indices[«to»]", "to + 8"),
    mutation("topk_threshold", "tiles.error[«at»], rest", "at + 1"),
    mutation("topk_threshold", "end = GetBlockIdx() + 1 == GetBlockNum() ? «capacity» : (to", "capacity + 8"),
];

/// Statements of which each is left out in turn.
const DROPPED: [&str; 5] = [".EnQue(", ".FreeTensor(", "PipeBarrier<", "SetFlag<", "WaitFlag<"];

/// Expressions, and what each is replaced by in turn.
const REPLACED: [(&str, &str); 3] =
    [("DeQue<", "AllocTensor<"), (", count);", ", count + 1);"), (", count);", ", count - 1);")];

/// A kernel's text with all mutations in it, and what each is.
pub(crate) struct Mutated {
    pub(crate) text: String,
    pub(crate) mutations: Vec<String>,
}

/// Puts all mutations of a file into it; the first is number `before + 1`.
pub(crate) fn mutate(kernel: &str, file: &str, source: &str, before: usize) -> Mutated {
    // By their place: how long what is replaced is, and what by.
    let mut places: BTreeMap<usize, (usize, Vec<String>)> = BTreeMap::new();
    let mut add = |at: usize, length: usize, instead: String| {
        let (found, all) = places.entry(at).or_insert((length, Vec::new()));
        assert_eq!(*found, length, "{file}: two mutations overlap at {:?}", &source[at..at + length]);
        all.push(instead);
    };
    let own = format!("{kernel}.cpp");
    if file == own {
        by_rule(source, &mut add);
    }
    for mutation in MUTATIONS.iter().filter(|mutation| mutation.kernel == kernel && mutation.is_shared == (file != own))
    {
        let (head, rest) = mutation.at.split_once('«').expect("a mutation marks its place");
        let (target, tail) = rest.split_once('»').expect("a mutation marks its place");
        let places: Vec<usize> = source.match_indices(&format!("{head}{target}{tail}")).map(|(at, _)| at).collect();
        assert_eq!(places.len(), 1, "{file}: {:?} must be there once", mutation.at);
        add(places[0] + head.len(), target.len(), mutation.instead.to_owned());
    }
    write_all(file, source, places, before)
}

/// The mutations that rules find, each as place, length and what instead.
fn by_rule(source: &str, add: &mut impl FnMut(usize, usize, String)) {
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let code = line.split("//").next().expect("a line has a beginning");
        if let Some(pattern) = DROPPED.iter().find(|pattern| code.contains(**pattern)) {
            let statement = code.trim();
            let from = ["{ ", ") "]
                .iter()
                .filter_map(|open| statement[..statement.find(pattern).expect("found")].rfind(open))
                .max();
            let statement = from.map_or(statement, |from| &statement[from + 2..]);
            let end = statement.find(';').expect("a statement ends in its line") + 1;
            add(start + code.find(statement).expect("a part of it"), end, String::new());
        }
        if let Some((_, arguments)) =
            code.split_once("pipe.InitBuffer(").and_then(|(head, rest)| Some((head, rest.split_once(");")?.0)))
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
                    // Between the comma and the parenthesis.
                    add(start + at + 2, expression.len() - 4, instead[2..instead.len() - 2].to_owned());
                }
            }
        }
        start += line.len();
    }
}

/// What follows the last comma outside parentheses.
fn last_argument(arguments: &str) -> &str {
    let is_whole = |text: &str| text.matches('(').count() == text.matches(')').count();
    let mut rests = arguments.rmatch_indices(", ").map(|(at, _)| &arguments[at + 2..]);
    rests.find(|rest| is_whole(rest)).expect("a buffer has a size")
}

fn write_all(file: &str, source: &str, places: BTreeMap<usize, (usize, Vec<String>)>, before: usize) -> Mutated {
    let (mut text, mut mutations, mut done) = (String::new(), Vec::new(), 0);
    for (at, (length, all)) in places {
        assert!(done <= at, "{file}: two mutations overlap at {:?}", &source[at..at + length]);
        let original = &source[at..at + length];
        text.push_str(&source[done..at]);
        let is_statement = original.ends_with(';');
        let mut closing = String::new();
        for instead in all {
            mutations.push(format!("{file}:{}: {original} -> {instead}", source[..at].lines().count()));
            let number = before + mutations.len();
            let written = if is_statement {
                write!(text, "if (::ascend_host::mutant == {number}) {{ {instead} }} else ")
            } else {
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
