//! Sharding rules: which dim of an operand is which dim of the result.
//!
//! A rule is an einsum-like text, `bsi,oi->bso`. A letter is a dim; the same letter is the same dim everywhere and has
//! one size. A small letter may be sharded, a capital must stay whole, `1` is a dim of size 1 that broadcasts. Letters
//! that a result lacks are reduced, and sharding them leaves it partial.

use std::fmt;

use smallvec::SmallVec;

use crate::base::Shape;

/// How the parts of a partial value combine to the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduce {
    /// The whole is the sum of the parts.
    Sum,
    /// The whole is the largest part.
    Max,
    /// The whole is the smallest part.
    Min,
}

impl Reduce {
    /// The name in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    /// The reduction of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Sum, Self::Max, Self::Min].into_iter().find(|reduce| reduce.name() == name)
    }
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
        let (operands, results) = text.split_once("->").ok_or_else(|| format!("rule `{text}` has no `->`"))?;
        let factors = |dims: &str| {
            dims.bytes()
                .map(|letter| match letter {
                    b'1' => Ok(Factor::One),
                    b'a'..=b'z' => Ok(Factor::Letter(letter)),
                    b'A'..=b'Z' => Ok(Factor::Whole(letter)),
                    other => Err(format!("rule `{text}`: `{}` is no dim", other as char)),
                })
                .collect::<Result<SmallVec<[Factor; 6]>, String>>()
        };
        Ok(Self {
            operands: operands.split(',').map(factors).collect::<Result<_, _>>()?,
            results: results.split(',').map(factors).collect::<Result<_, _>>()?,
            reduce,
        })
    }

    /// The rule of a product in einsum form: two operands, only small letters, none twice in one tensor, and what is
    /// summed is in both operands.
    ///
    /// # Errors
    /// A sentence that says which letter or part is wrong.
    pub fn einsum(text: &str) -> Result<Self, String> {
        let rule = Self::parse(text, Reduce::Sum)?;
        let [x, w] = rule.operands.as_slice() else {
            return Err(format!("`{text}` has {} operands, expected 2", rule.operands.len()));
        };
        let [result] = rule.results.as_slice() else {
            return Err(format!("`{text}` has {} results, expected 1", rule.results.len()));
        };
        for dims in [x, w, result] {
            for (index, factor) in dims.iter().enumerate() {
                let Factor::Letter(letter) = *factor else {
                    return Err(format!("`{text}`: the dims of a product are small letters"));
                };
                if dims[..index].contains(factor) {
                    return Err(format!("`{text}` has `{}` twice in one tensor", letter as char));
                }
                let in_both = x.contains(factor) && w.contains(factor);
                if !in_both && !result.contains(factor) {
                    return Err(format!("`{text}` sums over `{}`, which only one operand has", letter as char));
                }
            }
        }
        Ok(rule)
    }

    /// The rule of a product in einsum form whose second operand has a scale for each of its rows: a third operand with
    /// the second's dims that are not summed.
    ///
    /// # Errors
    /// As [`Rule::einsum`]; or a dim that both operands have stays.
    pub fn scaled_einsum(text: &str) -> Result<Self, String> {
        let mut rule = Self::einsum(text)?;
        let kept: SmallVec<[Factor; 6]> =
            rule.operands[1].iter().filter(|factor| rule.results[0].contains(factor)).copied().collect();
        if let Some(Factor::Letter(letter)) = kept.iter().find(|factor| rule.operands[0].contains(factor)) {
            return Err(format!("`{text}` keeps `{}`, which both operands have", *letter as char));
        }
        rule.operands.push(kept);
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
                .ok_or_else(|| format!("the result's dim `{}` is in no operand", *letter as char)),
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

/// The letters `a`, `b`, … of a tensor of `rank` dims, for ops that take any rank.
#[must_use]
pub fn any_rank(rank: usize) -> String {
    (b'a'..=b'z').take(rank).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_sums_only_what_both_operands_have() {
        assert!(Rule::einsum("bsi,oi->bso").is_ok());
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
            let error = Rule::einsum(spec).unwrap_err();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }

    #[test]
    fn a_scale_has_the_rows_of_the_second_operand() {
        assert_eq!(Rule::scaled_einsum("bsi,kgdi->bskgd"), Rule::parse("bsi,kgdi,kgd->bskgd", Reduce::Sum));
        assert_eq!(Rule::scaled_einsum("bskgd,okgd->bso"), Rule::parse("bskgd,okgd,o->bso", Reduce::Sum));
        assert!(Rule::scaled_einsum("abi,aoi->abo").unwrap_err().contains("keeps `a`"));
    }
}
