//! Shapes in letters: `"nchw"` names four extents, which agree among all tensors of a call.
//!
//! A digit is an extent of that size, `*` any number of leading dims. Absent tensors are skipped.

use super::argument::CheckedTensor;
use super::names::Name;
use super::{OperatorCall, Refusal};

/// A tensor parameter with its shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shaped {
    name: Name<CheckedTensor>,
    letters: &'static str,
}

impl Name<CheckedTensor> {
    /// Pairs the parameter with its shape.
    pub(crate) const fn of(self, letters: &'static str) -> Shaped {
        Shaped { name: self, letters }
    }
}

/// Extents by letter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    known: Vec<(char, usize)>,
    leading: Option<Vec<usize>>,
}

impl Sizes {
    fn extent(&self, letter: char) -> Option<usize> {
        let digit = letter.to_digit(10).map(|digit| digit as usize);
        digit.or_else(|| self.known.iter().find(|(known, _)| *known == letter).map(|(_, extent)| *extent))
    }

    /// Returns the extent of a letter of the shapes.
    ///
    /// # Panics
    /// Panics if no given tensor has the letter.
    pub(crate) fn of(&self, letter: char) -> usize {
        self.extent(letter).unwrap_or_else(|| panic!("no tensor has the extent {letter}"))
    }

    /// Returns the extents of several letters.
    pub(crate) fn all<const N: usize>(&self, letters: [char; N]) -> [usize; N] {
        letters.map(|letter| self.of(letter))
    }

    /// Returns the product of the leading dims.
    pub(crate) fn rows(&self) -> usize {
        self.leading.iter().flatten().product()
    }

    /// Checks the tensors in their order, and reads the extents that are not known yet.
    pub(crate) fn read(mut self, call: &OperatorCall, shapes: &[Shaped]) -> Result<Self, Refusal> {
        for shape in shapes {
            if let Some(tensor) = call.tensor_if_given(shape.name)? {
                self.agree(shape.letters, &tensor.dims).map_err(|text| call.refuse(shape.name, text))?;
            }
        }
        Ok(self)
    }

    fn agree(&mut self, letters: &str, dims: &[usize]) -> Result<(), String> {
        let named = letters.trim_start_matches('*');
        let wrong =
            format!("expected shape {} by the tensors before it, found {dims:?}", self.shown(letters));
        let split = dims.len().checked_sub(named.len()).ok_or_else(|| wrong.clone())?;
        let (leading, rest) = dims.split_at(split);
        let has_leading = named.len() < letters.len();
        let leads = if has_leading {
            self.leading.get_or_insert_with(|| leading.to_vec()) == leading
        } else {
            split == 0
        };
        for (letter, &extent) in named.chars().zip(rest) {
            match self.extent(letter) {
                Some(known) if known != extent => return Err(wrong),
                Some(_) => {}
                None => self.known.push((letter, extent)),
            }
        }
        if leads { Ok(()) } else { Err(wrong) }
    }

    fn shown(&self, letters: &str) -> String {
        let leading = self.leading.iter().flatten().map(ToString::to_string);
        let one = |letter| match (letter, &self.leading) {
            ('*', Some(_)) => leading.clone().collect(),
            ('*', None) => vec!["..".to_owned()],
            _ => vec![self.extent(letter).map_or_else(|| letter.to_string(), |extent| extent.to_string())],
        };
        format!("[{}]", letters.chars().flat_map(one).collect::<Vec<_>>().join(", "))
    }
}

impl OperatorCall {
    /// Checks shapes in letters.
    pub(crate) fn sizes(&self, shapes: &[Shaped]) -> Result<Sizes, Refusal> {
        Sizes::default().read(self, shapes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_agree_and_messages_show_what_is_known() {
        let mut sizes = Sizes { known: vec![('k', 4)], leading: None };
        assert_eq!(sizes.agree("*hk", &[2, 3, 5, 4]), Ok(()));
        assert_eq!((sizes.rows(), sizes.all(['h', 'k', '1'])), (6, [5, 4, 1]));
        let text = |expected: &str, dims: &[usize]| {
            Err(format!("expected shape {expected} by the tensors before it, found {dims:?}"))
        };
        assert_eq!(sizes.agree("*k", &[2, 3, 5]), text("[2, 3, 4]", &[2, 3, 5]));
        assert_eq!(sizes.agree("*h", &[3, 2, 5]), text("[2, 3, 5]", &[3, 2, 5]));
        assert_eq!(sizes.agree("hx2", &[5, 2]), text("[5, x, 2]", &[5, 2]));
        assert_eq!(sizes.agree("hx", &[5, 7, 1]), text("[5, x]", &[5, 7, 1]));
        assert_eq!(sizes.agree("1x", &[1, 9]), Ok(()));
        assert_eq!(sizes.of('x'), 9);
    }
}
