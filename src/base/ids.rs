//! Typed indices and the vectors that only they can index.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A typed index into one [`IdVec`].
pub trait Id: Copy + Eq + fmt::Debug {
    /// The id of position `index`.
    fn from_index(index: usize) -> Self;
    /// The position in the list that the id belongs to.
    fn index(self) -> usize;
}

/// Defines an id whose text form is a prefix and its index, such as `%17`.
macro_rules! define_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);

        impl $crate::base::Id for $name {
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use define_id;

define_id!(
    /// An axis of a mesh of cards.
    AxisId,
    "axis"
);

/// A vector that only its own kind of id can index.
#[derive(Clone, PartialEq, Eq)]
pub struct IdVec<K, V> {
    items: Vec<V>,
    key: PhantomData<fn(K)>,
}

impl<K: Id, V> IdVec<K, V> {
    /// An empty vector.
    #[must_use]
    pub const fn new() -> Self {
        Self { items: Vec::new(), key: PhantomData }
    }

    /// Appends an item; its id.
    pub fn push(&mut self, item: V) -> K {
        self.items.push(item);
        K::from_index(self.items.len() - 1)
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The item, or `None` if the id is of another vector.
    #[must_use]
    pub fn get(&self, id: K) -> Option<&V> {
        self.items.get(id.index())
    }

    /// Ids and items in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (K::from_index(index), item))
    }

    /// All ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = K> + ExactSizeIterator + use<K, V> {
        (0..self.items.len()).map(K::from_index)
    }

    /// The items in order.
    #[must_use]
    pub fn values(&self) -> &[V] {
        &self.items
    }
}

impl<K: Id, V> Default for IdVec<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Id, V> FromIterator<V> for IdVec<K, V> {
    fn from_iter<I: IntoIterator<Item = V>>(items: I) -> Self {
        Self { items: items.into_iter().collect(), key: PhantomData }
    }
}

impl<K: Id, V> Index<K> for IdVec<K, V> {
    type Output = V;

    fn index(&self, id: K) -> &V {
        &self.items[id.index()]
    }
}

impl<K: Id, V> IndexMut<K> for IdVec<K, V> {
    fn index_mut(&mut self, id: K) -> &mut V {
        &mut self.items[id.index()]
    }
}

impl<K: Id, V: fmt::Debug> fmt::Debug for IdVec<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
