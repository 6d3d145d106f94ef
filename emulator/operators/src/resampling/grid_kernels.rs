//! Sampling of images and volumes at points from -1 to 1 (`grid_sample` of PyTorch).
//!
//! A point reads a few places of its image with weights. Forward and backward pass share them.

/// Weights of the places around a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interpolation {
    Linear,
    Nearest,
    Cubic,
}

/// Meaning of places outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// Parameter of the cubic weights, as in PyTorch.
const CUBIC: f64 = -0.75;

/// A value and its derivative by the coordinate of the grid.
#[derive(Clone, Copy, Debug)]
struct Slope {
    value: f64,
    by: f64,
}

/// A place of an axis with its weight.
#[derive(Clone, Copy, Debug)]
struct Tap {
    /// `None` outside the image.
    at: Option<usize>,
    weight: Slope,
}

#[derive(Clone, Debug)]
pub(crate) struct GridSampler {
    pub(crate) images: usize,
    pub(crate) channels: usize,
    /// Extents of the spatial dims, outermost first.
    pub(crate) extents: Vec<usize>,
    pub(crate) interpolation: Interpolation,
    pub(crate) padding: Padding,
    pub(crate) is_aligned: bool,
}

/// Gradients of a sampled grid.
#[derive(Debug)]
pub(crate) struct SampledGrad {
    pub(crate) input: Vec<f64>,
    pub(crate) grid: Vec<f64>,
}

/// A place of an image, its weight, and the derivatives by each coordinate of the point.
#[derive(Debug)]
struct Place {
    at: usize,
    weight: f64,
    slopes: Vec<f64>,
}

impl GridSampler {
    /// Scales a coordinate from -1 to 1 to positions.
    fn position(&self, coordinate: f64, extent: usize) -> Slope {
        let extent = extent as f64;
        if self.is_aligned {
            return Slope { value: (coordinate + 1.0) / 2.0 * (extent - 1.0), by: (extent - 1.0) / 2.0 };
        }
        Slope { value: ((coordinate + 1.0) * extent - 1.0) / 2.0, by: extent / 2.0 }
    }

    /// Moves a position into the image, unless outside means zeros.
    fn padded(&self, position: Slope, extent: usize) -> Slope {
        let last = (extent - 1) as f64;
        let clipped = |slope: Slope| {
            let is_inside = slope.value > 0.0 && slope.value < last;
            // NaN becomes the first place.
            let value = if slope.value.is_nan() { 0.0 } else { slope.value.clamp(0.0, last) };
            Slope { value, by: if is_inside { slope.by } else { 0.0 } }
        };
        match self.padding {
            Padding::Zeros => position,
            Padding::Border => clipped(position),
            Padding::Reflection => {
                let low = if self.is_aligned { 0.0 } else { -0.5 };
                let span = if self.is_aligned { last } else { extent as f64 };
                if span == 0.0 {
                    return Slope { value: 0.0, by: 0.0 };
                }
                let (apart, sign) =
                    ((position.value - low).abs(), if position.value < low { -1.0 } else { 1.0 });
                let (rest, turns) = (apart % span, (apart / span).floor());
                let is_even = turns % 2.0 == 0.0;
                let value = if is_even { rest + low } else { span - rest + low };
                let by = position.by * if is_even { sign } else { -sign };
                clipped(Slope { value, by })
            }
        }
    }

    fn taps(&self, coordinate: f64, extent: usize) -> Vec<Tap> {
        let position = self.position(coordinate, extent);
        let inside = |at: f64| (at >= 0.0 && at < extent as f64).then_some(at as usize);
        match self.interpolation {
            Interpolation::Nearest => {
                let at = self.padded(position, extent).value.round_ties_even();
                vec![Tap { at: inside(at), weight: Slope { value: 1.0, by: 0.0 } }]
            }
            Interpolation::Linear => {
                let position = self.padded(position, extent);
                let first = position.value.floor();
                let share = position.value - first;
                let tap = |at, value, by| Tap { at: inside(at), weight: Slope { value, by } };
                vec![tap(first, 1.0 - share, -position.by), tap(first + 1.0, share, position.by)]
            }
            Interpolation::Cubic => {
                let first = position.value.floor();
                let share = position.value - first;
                let tap = |step: f64| {
                    let weight = cubic(share - step);
                    let place = Slope { value: first + step, by: 0.0 };
                    let weight = Slope { value: weight.value, by: weight.by * position.by };
                    Tap { at: inside(self.padded(place, extent).value), weight }
                };
                [-1.0, 0.0, 1.0, 2.0].map(tap).to_vec()
            }
        }
    }

    /// Returns the places of a point. Its coordinates start with the last dim.
    fn places(&self, point: &[f64]) -> Vec<Place> {
        let dims = self.extents.len();
        let mut places = vec![Place { at: 0, weight: 1.0, slopes: vec![1.0; dims] }];
        for (dim, &extent) in self.extents.iter().enumerate() {
            let coordinate = dims - 1 - dim;
            let taps = self.taps(point[coordinate], extent);
            let with = |place: &Place, tap: &Tap| {
                let slope = |i: usize| if i == coordinate { tap.weight.by } else { tap.weight.value };
                Some(Place {
                    at: place.at * extent + tap.at?,
                    weight: place.weight * tap.weight.value,
                    slopes: place.slopes.iter().enumerate().map(|(i, by)| by * slope(i)).collect(),
                })
            };
            places =
                places.iter().flat_map(|place| taps.iter().filter_map(move |tap| with(place, tap))).collect();
        }
        places
    }

    fn plane(&self) -> usize {
        self.extents.iter().product()
    }

    /// Calls `each` with the image, the point and the places of each point of the grid.
    fn points(&self, grid: &[f64], mut each: impl FnMut(usize, usize, &[Place])) {
        let dims = self.extents.len();
        let of_image = (grid.len() / dims).checked_div(self.images).unwrap_or(0);
        for (at, point) in grid.chunks_exact(dims).enumerate() {
            each(at / of_image, at % of_image, &self.places(point));
        }
    }

    pub(crate) fn sample(&self, x: &[f64], grid: &[f64]) -> Vec<f64> {
        let (plane, points) = (self.plane(), grid.len() / self.extents.len() / self.images);
        let mut out = vec![0.0; self.images * self.channels * points];
        self.points(grid, |image, point, places| {
            for channel in image * self.channels..(image + 1) * self.channels {
                let read = places.iter().map(|place| place.weight * x[channel * plane + place.at]);
                out[channel * points + point] = read.sum();
            }
        });
        out
    }

    pub(crate) fn grad(&self, grad: &[f64], x: &[f64], grid: &[f64]) -> SampledGrad {
        let (plane, dims) = (self.plane(), self.extents.len());
        let points = grid.len() / dims / self.images;
        let mut grads = SampledGrad { input: vec![0.0; x.len()], grid: vec![0.0; grid.len()] };
        self.points(grid, |image, point, places| {
            let own = (image * points + point) * dims;
            for channel in image * self.channels..(image + 1) * self.channels {
                let from = grad[channel * points + point];
                for place in places {
                    let at = channel * plane + place.at;
                    grads.input[at] += from * place.weight;
                    for (sum, by) in grads.grid[own..own + dims].iter_mut().zip(&place.slopes) {
                        *sum += from * by * x[at];
                    }
                }
            }
        });
        grads
    }
}

/// Returns the weight of a place at this signed distance, and its derivative.
fn cubic(distance: f64) -> Slope {
    let (d, sign) = (distance.abs(), distance.signum());
    let a = CUBIC;
    let (value, by) = if d <= 1.0 {
        (((a + 2.0) * d - (a + 3.0)) * d * d + 1.0, (3.0 * (a + 2.0) * d - 2.0 * (a + 3.0)) * d)
    } else {
        (((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a, (3.0 * a * d - 10.0 * a) * d + 8.0 * a)
    };
    Slope { value, by: by * sign }
}
