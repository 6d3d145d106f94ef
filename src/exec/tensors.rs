//! Whole tensors by name: inputs and outputs of runs, and contents of weights and states.
//!
//! Invariants: tensors keep the bits of their elements. A slice of numbers is converted to the type
//! of the target, if both are floats or both are integers.

use std::sync::Arc;

use super::error::Error;
use crate::base::{DType, Diagnostic, Diagnostics, HostTensor, Shape};
use crate::schedule::plan::Tensor;

/// Elements of a tensor, with their type. A slice of numbers fits every tensor with as many
/// elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Elements {
    dtype: DType,
    shape: Option<Shape>,
    bytes: Arc<Vec<u8>>,
}

impl Elements {
    /// Creates a tensor from the bytes of its elements.
    pub(crate) fn of_bytes(shape: impl Into<Shape>, dtype: DType, bytes: Vec<u8>) -> Self {
        Self { dtype, shape: Some(shape.into()), bytes: Arc::new(bytes) }
    }

    pub(crate) fn of_i64(shape: impl Into<Shape>, numbers: Vec<i64>) -> Self {
        Self::of_bytes(shape, DType::I64, numbers.into_iter().flat_map(i64::to_ne_bytes).collect())
    }

    pub(crate) fn of_i32(shape: impl Into<Shape>, numbers: Vec<i32>) -> Self {
        Self::of_bytes(shape, DType::I32, numbers.into_iter().flat_map(i32::to_ne_bytes).collect())
    }

    fn of_numbers(numbers: HostTensor) -> Self {
        Self { shape: None, ..numbers.into() }
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.dtype.size_bytes()
    }

    fn tensor(&self) -> HostTensor {
        let shape = self.shape.clone().unwrap_or_else(|| [self.count()].into());
        HostTensor::from_bytes(shape, self.dtype, &self.bytes)
    }

    fn text(&self) -> String {
        match &self.shape {
            Some(shape) => format!("{}{shape}", self.dtype),
            None => format!("{} {}", self.count(), self.dtype),
        }
    }

    fn bytes_of(&self, wanted: &Tensor) -> Option<Arc<Vec<u8>>> {
        let fits = match &self.shape {
            Some(shape) => *shape == wanted.shape && self.dtype == wanted.dtype,
            None => self.count() == wanted.shape.elems() && self.dtype.is_float() == wanted.dtype.is_float(),
        };
        if !fits || self.dtype == wanted.dtype {
            return fits.then(|| Arc::clone(&self.bytes));
        }
        let (numbers, shape) = (self.tensor(), wanted.shape.clone());
        let cast = match wanted.dtype.is_float() {
            true => HostTensor::float(shape, wanted.dtype, numbers.floats().to_vec()),
            false => HostTensor::int(shape, wanted.dtype, numbers.ints().to_vec()),
        };
        Some(Arc::new(cast.to_bytes()))
    }
}

impl From<HostTensor> for Elements {
    fn from(tensor: HostTensor) -> Self {
        let bytes = Arc::new(tensor.to_bytes());
        Self { dtype: tensor.dtype, shape: Some(tensor.shape), bytes }
    }
}

impl From<&[f32]> for Elements {
    fn from(numbers: &[f32]) -> Self {
        numbers.to_vec().into()
    }
}

impl From<Vec<f32>> for Elements {
    fn from(numbers: Vec<f32>) -> Self {
        Self::of_numbers(HostTensor::float([numbers.len()], DType::F32, numbers))
    }
}

impl From<f32> for Elements {
    fn from(number: f32) -> Self {
        vec![number].into()
    }
}

impl From<&[i64]> for Elements {
    fn from(numbers: &[i64]) -> Self {
        numbers.to_vec().into()
    }
}

impl From<Vec<i64>> for Elements {
    fn from(numbers: Vec<i64>) -> Self {
        Self::of_numbers(HostTensor::int([numbers.len()], DType::I64, numbers))
    }
}

impl From<Vec<bool>> for Elements {
    fn from(numbers: Vec<bool>) -> Self {
        let bytes = numbers.into_iter().map(u8::from).collect();
        Self { dtype: DType::Bool, shape: None, bytes: Arc::new(bytes) }
    }
}

/// Whole tensors by name. A clone shares the elements.
///
/// ```
/// use ascend_tp::{DType, HostTensor, NamedTensors};
///
/// let tensors = NamedTensors::new()
///     .with("w", HostTensor::zeros([2, 2], DType::F32))
///     .with("loss", HostTensor::float([1], DType::F32, vec![0.5]));
/// assert_eq!(tensors.get("w")?.shape.sizes(), [2, 2]);
/// assert_eq!(tensors.number("loss")?, 0.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedTensors {
    all: Vec<(String, Elements)>,
}

impl NamedTensors {
    /// Creates an empty collection.
    #[must_use]
    pub const fn new() -> Self {
        Self { all: Vec::new() }
    }

    /// Creates zero tensors with a plan's names and shapes.
    #[must_use]
    #[doc(hidden)]
    pub fn zeros(tensors: &[Tensor]) -> Self {
        let zeros = |tensor: &Tensor| Elements {
            dtype: tensor.dtype,
            shape: Some(tensor.shape.clone()),
            bytes: Arc::new(vec![0; tensor.shape.elems() * tensor.dtype.size_bytes()]),
        };
        tensors.iter().map(|tensor| (tensor.name.clone(), zeros(tensor))).collect()
    }

    pub(super) fn of_outputs<'a>(outputs: impl Iterator<Item = (&'a Tensor, Vec<u8>)>) -> Self {
        let elements = |(tensor, bytes): (&Tensor, Vec<u8>)| {
            let elements =
                Elements { dtype: tensor.dtype, shape: Some(tensor.shape.clone()), bytes: Arc::new(bytes) };
            (tensor.name.clone(), elements)
        };
        outputs.map(elements).collect()
    }

    /// Adds or replaces a tensor.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, tensor: impl Into<Elements>) -> Self {
        self.set(name, tensor);
        self
    }

    /// Adds or replaces a tensor.
    #[doc(hidden)]
    pub fn set(&mut self, name: impl Into<String>, tensor: impl Into<Elements>) {
        let name = name.into();
        self.all.retain(|(known, _)| *known != name);
        self.all.push((name, tensor.into()));
    }

    /// Returns a tensor. A slice of numbers has one dim.
    ///
    /// # Errors
    /// No tensor has this name.
    pub fn get(&self, name: &str) -> Result<HostTensor, Error> {
        let found = self.find(name).map(Elements::tensor);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.all.iter().map(|(name, _)| name.as_str()).collect();
            let problem = Diagnostic::new(format!("tensor `{name}`"), "is missing");
            Diagnostics::from(problem.expected(format!("one of {}", names.join(", ")))).into()
        })
    }

    /// Returns the only tensor.
    ///
    /// # Errors
    /// The number of tensors is not one.
    #[doc(hidden)]
    pub fn only(&self) -> Result<HostTensor, Error> {
        match self.all.as_slice() {
            [(_, elements)] => Ok(elements.tensor()),
            all => {
                let problem = Diagnostic::new("outputs", "are not one tensor").expected(1).found(all.len());
                Err(Diagnostics::from(problem).into())
            }
        }
    }

    /// Returns the only element of a float tensor.
    ///
    /// # Errors
    /// No tensor has this name, or it is not a float tensor with one element.
    pub fn number(&self, name: &str) -> Result<f32, Error> {
        let tensor = self.get(name)?;
        match tensor.floats() {
            [number] => Ok(*number),
            _ => {
                let problem = Diagnostic::new(format!("tensor `{name}`"), "is not one number");
                let problem =
                    problem.expected("one float").found(format!("{}{}", tensor.dtype, tensor.shape));
                Err(Diagnostics::from(problem).into())
            }
        }
    }

    /// Iterates over names and tensors.
    #[doc(hidden)]
    pub fn iter(&self) -> impl Iterator<Item = (&str, HostTensor)> {
        self.all.iter().map(|(name, elements)| (name.as_str(), elements.tensor()))
    }

    fn find(&self, name: &str) -> Option<&Elements> {
        self.all.iter().find(|(known, _)| known == name).map(|(_, elements)| elements)
    }

    /// The bytes of `wanted`, then of `optional`, with `None` for missing ones. `kind` names the
    /// tensors in messages. Reports all tensors that are missing, do not fit, or are in neither
    /// list.
    pub(super) fn in_order(
        &self,
        kind: &str,
        wanted: &[&Tensor],
        optional: &[&Tensor],
    ) -> Result<Vec<Option<Arc<Vec<u8>>>>, Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut all_bytes = Vec::with_capacity(wanted.len() + optional.len());
        for (index, tensor) in wanted.iter().chain(optional).enumerate() {
            let place = || format!("{kind} `{}`", tensor.name);
            let expected = || format!("{}{}", tensor.dtype, tensor.shape);
            let elements = self.find(&tensor.name);
            let bytes = elements.and_then(|elements| elements.bytes_of(tensor));
            match (elements, &bytes) {
                (None, _) if index < wanted.len() => {
                    problems.push(Diagnostic::new(place(), "is missing").expected(expected()));
                }
                (Some(elements), None) => {
                    let problem = Diagnostic::new(place(), "is another tensor");
                    problems.push(problem.expected(expected()).found(elements.text()));
                }
                _ => {}
            }
            all_bytes.push(bytes);
        }
        let known = |name: &str| wanted.iter().chain(optional).any(|tensor| tensor.name == name);
        for (name, _) in self.all.iter().filter(|(name, _)| !known(name)) {
            let names: Vec<&str> = wanted.iter().map(|tensor| tensor.name.as_str()).collect();
            let problem =
                Diagnostic::new(format!("{kind} `{name}`"), "the program has no tensor of this name");
            problems.push(problem.expected(names.join(", ")));
        }
        problems.into_result(all_bytes)
    }
}

impl<N: Into<String>, E: Into<Elements>> FromIterator<(N, E)> for NamedTensors {
    fn from_iter<I: IntoIterator<Item = (N, E)>>(tensors: I) -> Self {
        let mut all = Self::new();
        all.extend(tensors);
        all
    }
}

impl<N: Into<String>, E: Into<Elements>> Extend<(N, E)> for NamedTensors {
    fn extend<I: IntoIterator<Item = (N, E)>>(&mut self, tensors: I) {
        tensors.into_iter().for_each(|(name, tensor)| self.set(name, tensor));
    }
}

impl IntoIterator for NamedTensors {
    type Item = (String, Elements);
    type IntoIter = std::vec::IntoIter<(String, Elements)>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Id;
    use crate::call::BufferId;

    fn tensor(name: &str, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        let (name, shape, buffer) = (name.to_owned(), shape.into(), BufferId::from_index(0));
        Tensor { name, ranges: Vec::new(), shape, dtype, buffer, offset: 0, source: None }
    }

    #[test]
    fn slices_of_numbers_take_the_type_of_the_tensor_and_tensors_keep_theirs() {
        let wanted =
            [tensor("a", [2], DType::BF16), tensor("b", [1, 2], DType::I32), tensor("c", [2], DType::F32)];
        let wanted: Vec<&Tensor> = wanted.iter().collect();
        let whole = HostTensor::float([2], DType::F32, vec![-0.0, f32::NAN]);
        let given = NamedTensors::new()
            .with("a", vec![1.0_f32, 2.0])
            .with("b", vec![3_i64, 4])
            .with("c", whole.clone());
        let found = given.in_order("input", &wanted, &[]).unwrap();
        let bytes = |at: usize| found[at].as_ref().unwrap().as_slice();
        assert_eq!(bytes(0), HostTensor::float([2], DType::BF16, vec![1.0, 2.0]).to_bytes());
        assert_eq!(bytes(1), [3_i32, 4].map(i32::to_le_bytes).concat());
        assert_eq!(bytes(2), whole.to_bytes());
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let wanted =
            [tensor("a", [2], DType::BF16), tensor("b", [2], DType::I32), tensor("c", [2, 2], DType::F32)];
        let states = [tensor("s", [3], DType::F32)];
        let (wanted, states): (Vec<&Tensor>, Vec<&Tensor>) =
            (wanted.iter().collect(), states.iter().collect());
        let given = NamedTensors::new()
            .with("a", HostTensor::zeros([2], DType::F32))
            .with("b", vec![1.0_f32; 2])
            .with("s", vec![0.0_f32; 2])
            .with("d", 1.0);
        assert_eq!(
            given.in_order("weight", &wanted, &states).unwrap_err().to_string(),
            "weight `a`: is another tensor: expected bf16[2], found f32[2]\n\
             weight `b`: is another tensor: expected i32[2], found 2 f32\n\
             weight `c`: is missing: expected f32[2,2]\n\
             weight `s`: is another tensor: expected f32[3], found 2 f32\n\
             weight `d`: the program has no tensor of this name: expected a, b, c"
        );
    }

    #[test]
    fn tensors_are_read_by_name() {
        let named = NamedTensors::new().with("x", 1.0).with("y", vec![2_i64, 3]).with("x", 4.0);
        assert_eq!(named.number("x").unwrap(), 4.0);
        assert_eq!(named.get("y").unwrap(), HostTensor::int([2], DType::I64, vec![2, 3]));
        assert_eq!(named.get("z").unwrap_err().to_string(), "tensor `z`: is missing: expected one of y, x");
        assert_eq!(
            named.number("y").unwrap_err().to_string(),
            "tensor `y`: is not one number: expected one float, found i64[2]"
        );
    }
}
