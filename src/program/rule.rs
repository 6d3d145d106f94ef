//! Sharding rules: which dim of an operand is which dim of the result.
//!
//! A rule is an einsum-like text, `bsi,oi->bso`. A letter is a dim; the same letter is the same dim
//! everywhere and has one size. A small letter may be sharded, a capital must stay whole, `1` is a
//! dim of size 1 that broadcasts. Letters that a result lacks are reduced, and sharding them leaves
//! it partial.

use std::fmt;

use smallvec::SmallVec;

use crate::base::{Reduce, Shape};

/// What a rule says of one dim of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factor {
    /// The dim of this letter; may be sharded.
    Letter(u8),
    /// The dim of this (capital) letter; must stay whole.
    Whole(u8),
    /// Size 1, broadcast; never sharded.
    One,
}

/// The sharding rule of one op instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// One list of factors an operand, outermost dim first.
    pub operands: SmallVec<[SmallVec<[Factor; 6]>; 4]>,
    /// One list of factors a result.
    pub results: SmallVec<[SmallVec<[Factor; 6]>; 1]>,
    /// How a sharded letter that a result lacks combines.
    pub reduce: Reduce,
}

impl Rule {
    /// Parses `bsi,oi->bso`.
    ///
    /// # Errors
    /// A sentence that says which character or part is wrong.
    pub fn parse(text: &str, reduce: Reduce) -> Result<Self, String> {
        let (operands, results) =
            text.split_once("->").ok_or_else(|| format!("rule `{text}` has no `->`"))?;
        let factors = |dims: &str| {
            let mut found: SmallVec<[Factor; 6]> = SmallVec::new();
            for letter in dims.bytes() {
                found.push(match letter {
                    b'1' => Factor::One,
                    b'a'..=b'z' => Factor::Letter(letter),
                    b'A'..=b'Z' => Factor::Whole(letter),
                    other => return Err(format!("rule `{text}`: `{}` is no dim", other as char)),
                });
            }
            Ok(found)
        };
        let mut rule = Self { operands: SmallVec::new(), results: SmallVec::new(), reduce };
        for dims in operands.split(',') {
            rule.operands.push(factors(dims)?);
        }
        for dims in results.split(',') {
            rule.results.push(factors(dims)?);
        }
        Ok(rule)
    }

    /// The results' shapes.
    ///
    /// # Errors
    /// A sentence naming a rank that does not fit, or a letter with two sizes.
    pub fn result_shapes(&self, operands: &[&Shape]) -> Result<SmallVec<[Shape; 2]>, String> {
        let mut sizes: SmallVec<[(u8, usize); 8]> = SmallVec::new();
        for (index, (factors, shape)) in self.operands.iter().zip(operands).enumerate() {
            if factors.len() != shape.rank() {
                return Err(format!("operand {index} has {} dims, expected {}", shape.rank(), factors.len()));
            }
            for (factor, size) in factors.iter().zip(shape.iter()) {
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
        self.results.iter().map(|factors| factors.iter().map(size).collect()).collect()
    }

    /// The dim of operand `operand` that carries `letter`.
    #[must_use]
    pub fn operand_dim(&self, operand: usize, letter: u8) -> Option<usize> {
        self.operands[operand].iter().position(|factor| *factor == Factor::Letter(letter))
    }

    /// The dim of result `result` that carries `letter`; `None` if it is reduced.
    #[must_use]
    pub fn result_dim(&self, result: usize, letter: u8) -> Option<usize> {
        self.results[result].iter().position(|factor| *factor == Factor::Letter(letter))
    }
}

/// A product in einsum form, `bsi,oi->bso`: the dims of two operands and of the result, a small
/// letter each. What both operands have and the result lacks is summed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Einsum {
    x: String,
    w: String,
    result: String,
}

impl Einsum {
    /// Dims of the first operand.
    #[must_use]
    pub fn x(&self) -> &str {
        &self.x
    }

    /// Dims of the second operand.
    #[must_use]
    pub fn w(&self) -> &str {
        &self.w
    }

    /// Dims of the result.
    #[must_use]
    pub fn result(&self) -> &str {
        &self.result
    }

    /// Dims that are summed, in the order of the first operand.
    #[must_use]
    pub fn summed(&self) -> String {
        without(&self.x, &self.result)
    }

    /// Of the dims that are summed, those that [`Kind::TreeMatMul`](super::Kind::TreeMatMul) sums
    /// as a tree, by what their letters say in [`models`](super::models): sequences, else key
    /// heads, query heads of one, the intermediate size and the vocabulary. Nothing cuts the
    /// others: a head stays whole.
    #[must_use]
    pub fn halved(&self) -> String {
        let summed = self.summed();
        if self.sums_sequences() {
            SEQUENCES.to_string()
        } else {
            summed.chars().filter(|letter| "kgfv".contains(*letter)).collect()
        }
    }

    /// Whether what is summed are sequences.
    #[must_use]
    pub fn sums_sequences(&self) -> bool {
        self.summed().contains(SEQUENCES)
    }

    /// As [`Einsum::rule`], of a sum in the order of a tree.
    #[must_use]
    pub fn tree_rule(&self) -> Rule {
        let (summed, halved) = (self.summed(), self.halved());
        let factor = |letter: char| match summed.contains(letter) && !halved.contains(letter) {
            true => Factor::Whole(letter as u8),
            false => Factor::Letter(letter as u8),
        };
        let factors = |dims: &str| dims.chars().map(factor).collect();
        Rule {
            operands: [factors(&self.x), factors(&self.w)].into_iter().collect(),
            results: std::iter::once(factors(&self.result)).collect(),
            reduce: Reduce::Tree,
        }
    }

    /// Dims of the result that both operands have.
    #[must_use]
    pub fn batch(&self) -> String {
        self.result.chars().filter(|letter| self.x.contains(*letter) && self.w.contains(*letter)).collect()
    }

    /// Dims of the result that the first operand alone has.
    #[must_use]
    pub fn rows(&self) -> String {
        without(&self.result, &self.w)
    }

    /// Dims of the result that the second operand alone has.
    #[must_use]
    pub fn columns(&self) -> String {
        without(&self.result, &self.x)
    }

    /// Dims of a scale for each row of the second operand: those of its dims that are not summed.
    #[must_use]
    pub fn scale(&self) -> String {
        without(&self.w, &self.summed())
    }

    /// Whether it is that of a linear layer, row for row: `x` ends with what is summed, and so does
    /// the second operand; the result has the rows of `x`, then those of the second operand.
    #[must_use]
    pub fn is_linear_layer(&self) -> bool {
        let (rows, columns, summed) = (self.rows(), self.columns(), self.summed());
        self.x == format!("{rows}{summed}")
            && self.w == format!("{columns}{summed}")
            && self.result == rows + &columns
    }

    /// The cotangent of the first operand, as a product of the result's with the second operand.
    #[must_use]
    pub fn grad_x(&self) -> Self {
        Self { x: self.result.clone(), w: self.w.clone(), result: self.x.clone() }
    }

    /// The cotangent of the second operand, as a product of the result's with the first operand.
    #[must_use]
    pub fn grad_w(&self) -> Self {
        Self { x: self.result.clone(), w: self.x.clone(), result: self.w.clone() }
    }

    /// The product as two of a factorised second operand: `x` with the factor `[rank, inputs]`, and
    /// that with `[outputs, rank]`; the rank is `letter`, which is no dim of the product.
    #[must_use]
    pub fn factorised(&self, letter: char) -> [Self; 2] {
        let (summed, outputs) = (without(&self.w, &self.scale()), self.scale());
        let narrow = format!("{}{letter}", without(&self.x, &summed));
        [
            Self { x: self.x.clone(), w: format!("{letter}{summed}"), result: narrow.clone() },
            Self { x: narrow, w: format!("{outputs}{letter}"), result: self.result.clone() },
        ]
    }

    /// The product's sharding rule.
    #[must_use]
    pub fn rule(&self) -> Rule {
        let factors = |dims: &str| dims.bytes().map(Factor::Letter).collect();
        Rule {
            operands: [factors(&self.x), factors(&self.w)].into_iter().collect(),
            results: std::iter::once(factors(&self.result)).collect(),
            reduce: Reduce::Sum,
        }
    }

    /// Dims of a scale for each row of the first operand: those of its dims that are not summed.
    #[must_use]
    pub fn row_scale(&self) -> String {
        without(&self.x, &self.summed())
    }

    /// The rule of the product of rows with scales. Its operands are the first operand, its scales
    /// with the dims [`row_scale`](Self::row_scale), the second operand, and its scales with the
    /// dims [`scale`](Self::scale).
    ///
    /// # Errors
    /// A dim that both operands have stays.
    pub fn scaled_rule(&self) -> Result<Rule, String> {
        if let Some(letter) = self.batch().chars().next() {
            return Err(format!("`{self}` keeps `{letter}`, which both operands have"));
        }
        let mut rule = self.rule();
        let factors = |dims: String| dims.bytes().map(Factor::Letter).collect();
        rule.operands.insert(1, factors(self.row_scale()));
        rule.operands.push(factors(self.scale()));
        Ok(rule)
    }
}

/// The letter of sequences in products of models.
const SEQUENCES: char = 'b';

/// The dims of `all` that are none of `others`.
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

    /// The error is a sentence that says which letter or part is wrong.
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

/// The letters `a`, `b`, … of a tensor of `rank` dims, for ops that take any rank.
#[must_use]
pub fn any_rank(rank: usize) -> String {
    (b'a'..=b'z').take(rank).map(char::from).collect()
}

/// The factors of [`any_rank`].
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
    fn scales_have_the_rows_of_their_operands() {
        let rule = |text: &str| text.parse::<Einsum>().unwrap().scaled_rule();
        assert_eq!(rule("bsi,kgdi->bskgd"), Rule::parse("bsi,bs,kgdi,kgd->bskgd", Reduce::Sum));
        assert_eq!(rule("bskgd,okgd->bso"), Rule::parse("bskgd,bs,okgd,o->bso", Reduce::Sum));
        assert!(rule("abi,aoi->abo").unwrap_err().contains("keeps `a`"));
    }
}
