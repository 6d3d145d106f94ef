//! Sharding rules: the relation between dims of operands and dims of results.
//!
//! A rule is a text like an einsum: `bsi,oi->bso`. Each letter is a dim with one size. A lowercase
//! letter can be sharded, an uppercase letter must stay whole, and `1` is a broadcast dim of size
//! 1. Letters that a result lacks are reduced; sharding them makes the result a partial sum.
//!
//! After `~`, a dim of a tensor has a separate size. It is sharded like its letter, but has another
//! number of elements. The blocks of a cache are sharded like the sequences that own them: `~bTkd`.

use std::fmt;

use smallvec::SmallVec;

use crate::base::{Reduce, Shape, WORD};

/// The rule of one dim of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factor {
    /// The dim of this lowercase letter, which can be sharded.
    Letter(u8),
    /// The dim of this uppercase letter, which must stay whole.
    Whole(u8),
    /// A broadcast dim of size 1, never sharded.
    One,
}

/// A dim of an operand with a separate size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSize {
    /// Index of the operand.
    pub operand: usize,
    /// Index of the dim.
    pub dim: usize,
}

/// The sharding rule of one op instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Factors of each operand, outermost dim first.
    pub operands: SmallVec<[SmallVec<[Factor; 6]>; 4]>,
    /// Factors of each result, outermost dim first.
    pub results: SmallVec<[SmallVec<[Factor; 6]>; 1]>,
    /// Reduction over sharded letters that a result lacks.
    pub reduce: Reduce,
    /// Dims of operands with a separate size.
    pub own_size: SmallVec<[OwnSize; 2]>,
    /// Number of equal, indivisible parts of such a dim. Each shard has the same number of parts.
    pub pools: usize,
    /// Whether the first dim of the first result has that size.
    pub is_own_result: bool,
    /// Sizes of dims of results that no operand has, by letter.
    pub given: SmallVec<[(u8, usize); 1]>,
}

impl Rule {
    /// Parses a rule such as `bsi,oi->bso`.
    ///
    /// # Errors
    /// A sentence about the invalid character or part.
    pub fn parse(text: &str, reduce: Reduce) -> Result<Self, String> {
        let (operands, results) =
            text.split_once("->").ok_or_else(|| format!("rule `{text}` has no `->`"))?;
        // Returns the factors of a tensor, and the dim after `~`.
        let factors = |dims: &str| {
            let mut factors: SmallVec<[Factor; 6]> = SmallVec::new();
            let own = dims.find('~');
            for letter in dims.bytes().filter(|letter| *letter != b'~') {
                factors.push(match letter {
                    b'1' => Factor::One,
                    b'a'..=b'z' => Factor::Letter(letter),
                    b'A'..=b'Z' => Factor::Whole(letter),
                    other => return Err(format!("rule `{text}`: `{}` is no dim", other as char)),
                });
            }
            Ok((factors, own))
        };
        let mut rule = Self::of(SmallVec::new(), SmallVec::new(), reduce);
        for (operand, dims) in operands.split(',').enumerate() {
            let (factors, own) = factors(dims)?;
            rule.own_size.extend(own.map(|dim| OwnSize { operand, dim }));
            rule.operands.push(factors);
        }
        for dims in results.split(',') {
            let (factors, own) = factors(dims)?;
            if own.is_some_and(|dim| dim > 0) {
                return Err(format!("rule `{text}`: only the first dim of a result has a separate size"));
            }
            rule.is_own_result |= own.is_some();
            rule.results.push(factors);
        }
        Ok(rule)
    }

    /// Returns a rule with one size per letter.
    #[must_use]
    pub fn of(
        operands: SmallVec<[SmallVec<[Factor; 6]>; 4]>,
        results: SmallVec<[SmallVec<[Factor; 6]>; 1]>,
        reduce: Reduce,
    ) -> Self {
        let (own_size, given) = (SmallVec::new(), SmallVec::new());
        Self { operands, results, reduce, own_size, pools: 1, is_own_result: false, given }
    }

    /// Sets the size of a dim that no operand has.
    #[must_use]
    pub fn with_size(mut self, letter: u8, size: usize) -> Self {
        self.given.push((letter, size));
        self
    }

    /// Returns the shapes of the results.
    ///
    /// # Errors
    /// A sentence about a wrong rank, or a letter with two sizes.
    pub fn result_shapes(&self, operands: &[&Shape]) -> Result<SmallVec<[Shape; 2]>, String> {
        let mut sizes: SmallVec<[(u8, usize); 8]> = self.given.iter().copied().collect();
        for (index, (factors, shape)) in self.operands.iter().zip(operands).enumerate() {
            if factors.len() != shape.rank() {
                return Err(format!("operand {index} has {} dims, expected {}", shape.rank(), factors.len()));
            }
            for (dim, (factor, size)) in factors.iter().zip(shape.iter()).enumerate() {
                if self.own_size.contains(&OwnSize { operand: index, dim }) {
                    continue;
                }
                let (Factor::Letter(letter) | Factor::Whole(letter)) = *factor else { continue };
                match sizes.iter().find(|(known, _)| *known == letter) {
                    Some((_, known)) if known != size => {
                        return Err(format!("dims `{}` differ, {known} and {size}", letter as char));
                    }
                    Some(_) => {}
                    None => sizes.push((letter, *size)),
                }
            }
        }
        let size = |factor: &Factor| match factor {
            Factor::One => Ok(1),
            Factor::Letter(letter) | Factor::Whole(letter) => sizes
                .iter()
                .find(|(known, _)| known == letter)
                .map(|(_, size)| *size)
                .ok_or_else(|| format!("the result's dim `{}` is not in any operand", *letter as char)),
        };
        self.results
            .iter()
            .enumerate()
            .map(|(index, factors)| {
                let own = (index == 0 && self.is_own_result).then(|| self.own_size.first()).flatten();
                let own = own.and_then(|own| operands[own.operand].get(own.dim).copied());
                let skipped = usize::from(own.is_some());
                own.map(Ok).into_iter().chain(factors.iter().skip(skipped).map(size)).collect()
            })
            .collect()
    }

    /// Returns the dim of an operand with this letter.
    #[must_use]
    pub fn operand_dim(&self, operand: usize, letter: u8) -> Option<usize> {
        self.operands[operand].iter().position(|factor| *factor == Factor::Letter(letter))
    }

    /// Returns the dim of a result with this letter, or `None` if the letter is reduced.
    #[must_use]
    pub fn result_dim(&self, result: usize, letter: u8) -> Option<usize> {
        self.results[result].iter().position(|factor| *factor == Factor::Letter(letter))
    }
}

/// The dims of a packed weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedDims {
    /// Number of summed dims that can be sharded. Words and groups replace the other ones.
    pub sharded: usize,
    /// Number of inputs per scale.
    pub group: usize,
}

/// A product in einsum form, such as `bsi,oi->bso`, with one lowercase letter per dim. Letters in
/// both operands but not in the result are summed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Einsum {
    x: String,
    w: String,
    result: String,
}

impl Einsum {
    /// Returns the dims of the first operand.
    #[must_use]
    pub fn x(&self) -> &str {
        &self.x
    }

    /// Returns the dims of the second operand.
    #[must_use]
    pub fn w(&self) -> &str {
        &self.w
    }

    /// Returns the dims of the result.
    #[must_use]
    pub fn result(&self) -> &str {
        &self.result
    }

    /// Returns the summed dims, in the order of the first operand.
    #[must_use]
    pub fn summed(&self) -> String {
        without(&self.x, &self.result)
    }

    /// Returns the summed dims that [`Kind::TreeMatMul`](super::Kind::TreeMatMul) sums in tree
    /// order. The letters have the meanings of [`models`](super::models). If sequences are summed,
    /// the result is only their letter. Otherwise the result contains key heads, query heads, the
    /// intermediate size and the vocabulary. Other dims, such as the head size, are never sharded.
    #[must_use]
    pub fn halved(&self) -> String {
        let summed = self.summed();
        if self.sums_sequences() {
            SEQUENCES.to_string()
        } else {
            summed.chars().filter(|letter| "kgfv".contains(*letter)).collect()
        }
    }

    /// Returns whether sequences are summed.
    #[must_use]
    pub fn sums_sequences(&self) -> bool {
        self.summed().contains(SEQUENCES)
    }

    /// Returns the rule of a sum in tree order; see [`Einsum::rule`].
    #[must_use]
    pub fn tree_rule(&self) -> Rule {
        let (summed, halved) = (self.summed(), self.halved());
        let factor = |letter: char| match summed.contains(letter) && !halved.contains(letter) {
            true => Factor::Whole(letter as u8),
            false => Factor::Letter(letter as u8),
        };
        let factors = |dims: &str| dims.chars().map(factor).collect();
        Rule::of(
            [factors(&self.x), factors(&self.w)].into_iter().collect(),
            std::iter::once(factors(&self.result)).collect(),
            Reduce::Tree,
        )
    }

    /// Returns the rule of a product that is added to a tensor: the dims of the result, then both
    /// factors. A sum over shards would add the tensor several times.
    #[must_use]
    pub fn added_rule(&self) -> Rule {
        let factor = |letter: char| match self.result.contains(letter) {
            true => Factor::Letter(letter as u8),
            false => Factor::Whole(letter.to_ascii_uppercase() as u8),
        };
        let factors = |dims: &str| dims.chars().map(factor).collect();
        Rule::of(
            [&self.result, &self.x, &self.w].into_iter().map(|dims| factors(dims)).collect(),
            std::iter::once(factors(&self.result)).collect(),
            Reduce::Sum,
        )
    }

    /// Returns the dims of the result that both operands have.
    #[must_use]
    pub fn batch(&self) -> String {
        self.result.chars().filter(|letter| self.x.contains(*letter) && self.w.contains(*letter)).collect()
    }

    /// Returns the dims of the result that only the first operand has.
    #[must_use]
    pub fn rows(&self) -> String {
        without(&self.result, &self.w)
    }

    /// Returns the dims of the result that only the second operand has.
    #[must_use]
    pub fn columns(&self) -> String {
        without(&self.result, &self.x)
    }

    /// Returns the dims of a scale per row of the second operand: its dims that are not summed.
    #[must_use]
    pub fn scale(&self) -> String {
        without(&self.w, &self.summed())
    }

    /// Returns whether this is a linear layer. Both operands must end with the summed dims, and the
    /// result must be the rows of `x`, then the rows of the weight.
    #[must_use]
    pub fn is_linear_layer(&self) -> bool {
        let (rows, columns, summed) = (self.rows(), self.columns(), self.summed());
        self.x == format!("{rows}{summed}")
            && self.w == format!("{columns}{summed}")
            && self.result == rows + &columns
    }

    /// Returns the cotangent of the first operand: the result's cotangent times the second operand.
    #[must_use]
    pub fn grad_x(&self) -> Self {
        Self { x: self.result.clone(), w: self.w.clone(), result: self.x.clone() }
    }

    /// Returns the cotangent of the second operand: the result's cotangent times the first operand.
    #[must_use]
    pub fn grad_w(&self) -> Self {
        Self { x: self.result.clone(), w: self.x.clone(), result: self.w.clone() }
    }

    /// Splits a product into two products with the factors `[rank, inputs]` and `[outputs, rank]`
    /// of the second operand. The letter of the rank has no other meaning in the product.
    #[must_use]
    pub fn factorised(&self) -> [Self; 2] {
        let (summed, outputs) = (without(&self.w, &self.scale()), self.scale());
        let is_free = |letter: &char| !self.x.contains(*letter) && !self.w.contains(*letter);
        // Latent attention has products with `r` outputs. No product has all of these letters.
        let letter = ['r', 'q', 'p', 'n', 'm'].into_iter().find(is_free).unwrap_or('r');
        let narrow = format!("{}{letter}", without(&self.x, &summed));
        [
            Self { x: self.x.clone(), w: format!("{letter}{summed}"), result: narrow.clone() },
            Self { x: narrow, w: format!("{outputs}{letter}"), result: self.result.clone() },
        ]
    }

    /// Returns the sharding rule of the product.
    #[must_use]
    pub fn rule(&self) -> Rule {
        let factors = |dims: &str| dims.bytes().map(Factor::Letter).collect();
        Rule::of(
            [factors(&self.x), factors(&self.w)].into_iter().collect(),
            std::iter::once(factors(&self.result)).collect(),
            Reduce::Sum,
        )
    }

    /// Returns the dims of a scale per row of the first operand: its dims that are not summed.
    #[must_use]
    pub fn row_scale(&self) -> String {
        without(&self.x, &self.summed())
    }

    /// Returns the rule of a product with scales. The operands are the first operand, its scales
    /// with dims [`row_scale`](Self::row_scale), the second operand, and its scales with dims
    /// [`scale`](Self::scale).
    ///
    /// # Errors
    /// A dim of both operands is also in the result.
    pub fn scaled_rule(&self) -> Result<Rule, String> {
        let mut rule = self.rule_without_batch()?;
        let factors = |dims: String| dims.bytes().map(Factor::Letter).collect();
        rule.operands.insert(1, factors(self.row_scale()));
        rule.operands.push(factors(self.scale()));
        Ok(rule)
    }

    /// Returns the rule with a scale and a bias for each row of `w`.
    ///
    /// # Errors
    /// A sentence, if both operands and the result have a common dim.
    pub fn biased_rule(&self) -> Result<Rule, String> {
        let mut rule = self.rule_without_batch()?;
        for _ in 0..2 {
            rule.operands.push(self.scale().bytes().map(Factor::Letter).collect());
        }
        Ok(rule)
    }

    /// Returns the rule of a linear layer with a packed weight. The first summed dims can be
    /// sharded. The other summed dims are one dim of words in the second operand, and one dim of
    /// groups in each operand after it. They stay whole.
    ///
    /// # Errors
    /// The product is no linear layer, or the words and groups do not fit.
    pub fn packed_rule(&self, dims: PackedDims, shapes: &[&Shape]) -> Result<Rule, String> {
        const WORDS: u8 = b'Y';
        const GROUPS: u8 = b'Z';
        let (PackedDims { sharded, group }, summed) = (dims, self.summed());
        if !self.is_linear_layer() || sharded >= summed.len() {
            return Err(format!("`{self}` is no linear layer with {sharded} summed dims before its words"));
        }
        let last = |shape: &Shape| shape.last().copied().unwrap_or_default();
        let sizes = shapes[0].iter().rev().take(summed.len() - sharded);
        let (inputs, words, groups) = (sizes.product::<usize>(), last(shapes[1]), last(shapes[2]));
        let is_split = group > 0 && (sharded == 0 || inputs.is_multiple_of(group));
        if !is_split || words * WORD != inputs || groups != inputs.div_ceil(group) {
            return Err(format!("{inputs} inputs are not {words} words in {groups} groups of {group}"));
        }
        let (kept, whole) = summed.split_at(sharded);
        let letters = |dims: &str| dims.bytes().map(Factor::Letter).collect::<SmallVec<[Factor; 6]>>();
        let inputs = letters(&format!("{}{kept}", self.rows()))
            .into_iter()
            .chain(whole.bytes().map(|letter| Factor::Whole(letter.to_ascii_uppercase())));
        let packed = |last: u8| {
            let dims = letters(&format!("{}{kept}", self.columns()));
            dims.into_iter().chain([Factor::Whole(last)]).collect::<SmallVec<[Factor; 6]>>()
        };
        let params = (2..shapes.len()).map(|_| packed(GROUPS));
        let operands = [inputs.collect(), packed(WORDS)].into_iter().chain(params).collect();
        Ok(Rule::of(operands, std::iter::once(letters(&self.result)).collect(), Reduce::Sum))
    }

    fn rule_without_batch(&self) -> Result<Rule, String> {
        match self.batch().chars().next() {
            Some(letter) => Err(format!("`{self}` keeps `{letter}`, which both operands have")),
            None => Ok(self.rule()),
        }
    }
}

/// Letter of sequences in model products.
const SEQUENCES: char = 'b';

fn without(all: &str, others: &str) -> String {
    all.chars().filter(|letter| !others.contains(*letter)).collect()
}

impl fmt::Display for Einsum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}->{}", self.x, self.w, self.result)
    }
}

impl std::str::FromStr for Einsum {
    type Err = String;

    /// Parses a product. The error is a sentence about the invalid letter or part.
    fn from_str(text: &str) -> Result<Self, String> {
        let (operands, results) = text.split_once("->").ok_or_else(|| format!("`{text}` has no `->`"))?;
        let (operands, results): (Vec<&str>, Vec<&str>) =
            (operands.split(',').collect(), results.split(',').collect());
        let [x, w] = operands[..] else {
            return Err(format!("`{text}` has {} operands, expected 2", operands.len()));
        };
        let [result] = results[..] else {
            return Err(format!("`{text}` has {} results, expected 1", results.len()));
        };
        for dims in [x, w, result] {
            for (index, letter) in dims.char_indices() {
                if !letter.is_ascii_lowercase() {
                    return Err(format!("`{text}`: the dims of a product are small letters"));
                }
                if dims[..index].contains(letter) {
                    return Err(format!("`{text}` has `{letter}` twice in one tensor"));
                }
                let is_in_both = x.contains(letter) && w.contains(letter);
                if !is_in_both && !result.contains(letter) {
                    return Err(format!("`{text}` sums over `{letter}`, which only one operand has"));
                }
            }
        }
        Ok(Self { x: x.to_owned(), w: w.to_owned(), result: result.to_owned() })
    }
}

/// Returns the letters `a`, `b`, … of a tensor of `rank` dims, for ops of any rank.
#[must_use]
pub fn any_rank(rank: usize) -> String {
    (b'a'..=b'z').take(rank).map(char::from).collect()
}

pub(super) fn letters(rank: usize) -> impl Iterator<Item = Factor> {
    (b'a'..=b'z').take(rank).map(Factor::Letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_sums_only_what_both_operands_have() {
        assert_eq!("bsi,oi->bso".parse::<Einsum>().unwrap().to_string(), "bsi,oi->bso");
        for (spec, expected) in [
            ("ab,bc->c", "sums over `a`"),
            ("ab,cd->abd", "sums over `c`"),
            ("aa,ab->ab", "`a` twice"),
            ("ab,bc->acc", "`c` twice"),
            ("ab->a", "1 operands"),
            ("ab,bc->ac,a", "2 results"),
            ("aB,Bc->ac", "small letters"),
            ("a1,c->ac", "small letters"),
            ("ab,bc", "no `->`"),
        ] {
            let error = spec.parse::<Einsum>().unwrap_err();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }

    #[test]
    fn the_rank_of_factors_has_a_letter_of_its_own() {
        let factors = |text: &str| text.parse::<Einsum>().unwrap().factorised().map(|spec| spec.to_string());
        assert_eq!(factors("bsh,fh->bsf"), ["bsh,rh->bsr", "bsr,fr->bsf"]);
        assert_eq!(factors("bsi,ri->bsr"), ["bsi,qi->bsq", "bsq,rq->bsr"]);
    }

    #[test]
    fn a_dim_of_its_own_size_is_sharded_like_its_letter() {
        let rule = Rule::parse("~bTk,bSk,bS->~bTk", Reduce::Sum).unwrap();
        let shapes = [[7, 16, 2].into(), [3, 4, 2].into(), [3, 4].into()];
        let shapes: Vec<&Shape> = shapes.iter().collect();
        assert_eq!(rule.result_shapes(&shapes).unwrap()[0], Shape::from([7, 16, 2]));
        assert_eq!((rule.operand_dim(0, b'b'), rule.operand_dim(1, b'b')), (Some(0), Some(0)));
        let others = [[7, 16, 2].into(), [3, 4, 2].into(), [4, 4].into()];
        let others: Vec<&Shape> = others.iter().collect();
        assert_eq!(rule.result_shapes(&others).unwrap_err(), "dims `b` differ, 3 and 4");
        // A given size of the result.
        let rule = Rule::parse("a~z->azJ", Reduce::Sum).unwrap().with_size(b'z', 4).with_size(b'J', 5);
        assert_eq!(rule.result_shapes(&[&[3, 12].into()]).unwrap()[0], Shape::from([3, 4, 5]));
        assert!(Rule::parse("az->a~z", Reduce::Sum).unwrap_err().contains("first dim of a result"));
    }

    #[test]
    fn scales_have_the_rows_of_their_operands() {
        let rule = |text: &str| text.parse::<Einsum>().unwrap().scaled_rule();
        assert_eq!(rule("bsi,kgdi->bskgd"), Rule::parse("bsi,bs,kgdi,kgd->bskgd", Reduce::Sum));
        assert_eq!(rule("bskgd,okgd->bso"), Rule::parse("bskgd,bs,okgd,o->bso", Reduce::Sum));
        assert!(rule("abi,aoi->abo").unwrap_err().contains("keeps `a`"));
    }

    #[test]
    fn words_and_groups_stay_whole() {
        let rule = |text: &str, sharded, shapes: [&[usize]; 3]| {
            let shapes = shapes.map(Shape::from);
            let dims = PackedDims { sharded, group: 32 };
            text.parse::<Einsum>().unwrap().packed_rule(dims, &shapes.iter().collect::<Vec<_>>())
        };
        let column: [&[usize]; 3] = [&[1, 2, 40], &[3, 2, 4, 5], &[3, 2, 4, 2]];
        assert_eq!(rule("bsi,kgdi->bskgd", 0, column), Rule::parse("bsI,kgdY,kgdZ->bskgd", Reduce::Sum));
        let row: [&[usize]; 3] = [&[1, 2, 3, 2, 32], &[5, 3, 8], &[5, 3, 2]];
        assert_eq!(rule("bskgd,okgd->bso", 1, row), Rule::parse("bskGD,okY,okZ->bso", Reduce::Sum));
        let whole: [&[usize]; 3] = [&[1, 2, 40], &[3, 5], &[3, 2]];
        for (spec, sharded, shapes, expected) in [
            ("bsi,oi->bso", 1, whole, "no linear layer"),
            ("bsi,io->bso", 0, whole, "no linear layer"),
            ("bsi,oi->bso", 0, [whole[0], &[3, 4], whole[2]], "40 inputs are not 4 words"),
            ("bsi,oi->bso", 0, [whole[0], whole[1], &[3, 1]], "in 1 groups of 32"),
            ("bsfj,ofj->bso", 1, [&[1, 2, 2, 40], &[3, 2, 5], &[3, 2, 2]], "40 inputs are not"),
        ] {
            let error = rule(spec, sharded, shapes).unwrap_err();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }
}
