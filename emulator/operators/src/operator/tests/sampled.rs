//! Grids, unpooling, matrices and margins against their definitions.

use super::*;

/// Reads a place of an image, with a meaning for places outside.
fn pixel(image: &[f64], [height, width]: [usize; 2], [y, x]: [i64; 2], padding: i64, aligned: bool) -> f64 {
    let within = |at: i64, extent: usize| -> Option<usize> {
        let extent = extent as i64;
        match padding {
            0 => (0..extent).contains(&at).then_some(at as usize),
            1 => Some(at.clamp(0, extent - 1) as usize),
            _ => {
                // Steps through the mirrored row, one place at a time.
                let (mut at, last) = (at, extent - 1);
                while !(0..extent).contains(&at) {
                    let edge = i64::from(!aligned);
                    at = if at < 0 { -at - edge } else { 2 * last - at + edge };
                }
                Some(at as usize)
            }
        }
    };
    match (within(y, height), within(x, width)) {
        (Some(y), Some(x)) => image[y * width + x],
        _ => 0.0,
    }
}

fn scaled(coordinate: f64, extent: usize, aligned: bool) -> f64 {
    let extent = extent as f64;
    if aligned {
        (coordinate + 1.0) / 2.0 * (extent - 1.0)
    } else {
        ((coordinate + 1.0) * extent - 1.0) / 2.0
    }
}

/// Keys' cubic weights with a = -0.75.
fn keys(distance: f64) -> f64 {
    let d = distance.abs();
    match d {
        d if d <= 1.0 => 1.25 * d.powi(3) - 2.25 * d.powi(2) + 1.0,
        d if d < 2.0 => -0.75 * d.powi(3) + 3.75 * d.powi(2) - 6.0 * d + 3.0,
        _ => 0.0,
    }
}

/// Interpolates by whole places, for points within the image or with zeros outside.
fn by_definition(
    image: &[f64],
    size: [usize; 2],
    point: [f64; 2],
    mode: i64,
    padding: i64,
    aligned: bool,
) -> f64 {
    let (x, y) = (scaled(point[0], size[1], aligned), scaled(point[1], size[0], aligned));
    let read = |row: f64, column: f64| pixel(image, size, [row as i64, column as i64], padding, aligned);
    match mode {
        1 => read(y.round_ties_even(), x.round_ties_even()),
        0 => {
            let (top, left) = (y.floor(), x.floor());
            let (down, right) = (y - top, x - left);
            read(top, left) * (1.0 - down) * (1.0 - right)
                + read(top, left + 1.0) * (1.0 - down) * right
                + read(top + 1.0, left) * down * (1.0 - right)
                + read(top + 1.0, left + 1.0) * down * right
        }
        _ => {
            let mut sum = 0.0;
            for row in -1..=2 {
                for column in -1..=2 {
                    let at = [y.floor() + f64::from(row), x.floor() + f64::from(column)];
                    sum += keys(y - at[0]) * keys(x - at[1]) * read(at[0], at[1]);
                }
            }
            sum
        }
    }
}

const POINTS: [f64; 12] = [-0.9, 0.3, 0.11, -0.47, 0.77, 0.9, -1.3, 0.2, 0.4, 1.45, -2.1, -1.9];

#[test]
fn images_are_sampled_as_their_modes_say() {
    let (images, channels, size) = (2, 3, [4usize, 5]);
    let image = varied(images * channels * 20, 3);
    let grid: Vec<f64> = POINTS.iter().chain(POINTS.iter().rev()).copied().collect();
    for (mode, padding, aligned) in
        (0..3).flat_map(|mode| (0..3).flat_map(move |p| [(mode, p, false), (mode, p, true)]))
    {
        let mut x = Data::new(AclType::F64, &[images, channels, 4, 5], &image).strided();
        let mut points = Data::new(AclType::F64, &[images, 2, 3, 2], &grid).strided();
        let mut out = Data::blank(AclType::F64, &[images, channels, 2, 3]).strided();
        let call = vec![
            Arg::T(&mut x),
            Arg::T(&mut points),
            Arg::I(mode),
            Arg::I(padding),
            Arg::B(aligned),
            Arg::T(&mut out),
        ];
        run("aclnnGridSampler2D", call).unwrap();
        let mut expected = Vec::new();
        for (n, c, p) in
            (0..images).flat_map(|n| (0..channels).flat_map(move |c| (0..6).map(move |p| (n, c, p))))
        {
            let own = &image[(n * channels + c) * 20..][..20];
            let point = [grid[(n * 6 + p) * 2], grid[(n * 6 + p) * 2 + 1]];
            // Borders and reflections move the point before the places of a linear mode are read.
            let moved = if mode < 2 { moved(point, size, padding, aligned) } else { point };
            expected.push(by_definition(own, size, moved, mode, padding, aligned));
        }
        close(&out.values(), &expected, 1e-9, &format!("mode {mode}, padding {padding}, aligned {aligned}"));
    }
}

/// Moves a point into the image, in coordinates of the grid.
fn moved(point: [f64; 2], size: [usize; 2], padding: i64, aligned: bool) -> [f64; 2] {
    let one = |coordinate: f64, extent: usize| {
        let edge = if aligned { 1.0 } else { 1.0 - 1.0 / extent as f64 };
        match padding {
            0 => coordinate,
            1 => coordinate.clamp(-edge, edge),
            _ => {
                // Mirrors at -1 and 1 are the ends of the outermost places, or, if aligned, their
                // middles.
                let mut coordinate = coordinate;
                while coordinate.abs() > 1.0 {
                    coordinate = 2.0 * coordinate.signum() - coordinate;
                }
                coordinate.clamp(-edge, edge)
            }
        }
    };
    [one(point[0], size[1]), one(point[1], size[0])]
}

/// Differences of the forward pass.
#[test]
fn gradients_of_samples_are_differences() {
    for (dims, mode, padding) in
        [(2, 0, 0), (2, 0, 1), (2, 0, 2), (2, 2, 0), (2, 2, 1), (3, 0, 0), (3, 1, 2), (3, 0, 2)]
    {
        let (input, place, tail): (&[usize], &[usize], usize) = if dims == 2 {
            (&[1, 2, 4, 5], &[1, 1, 5, 2], 2)
        } else {
            (&[1, 2, 3, 4, 5], &[1, 1, 1, 3, 3], 3)
        };
        let points = place.iter().product::<usize>() / tail;
        let values = varied(input.iter().product(), 5);
        let grid: Vec<f64> =
            (0..points * tail).map(|i| [-0.83, 0.31, 0.12, 1.27, -0.42, 0.71, -1.37][i % 7]).collect();
        let out_dims = [&input[..2], &place[1..place.len() - 1]].concat();
        let grad = varied(2 * points, 8);
        let name = format!("aclnnGridSampler{dims}D");
        let forward = |values: &[f64], grid: &[f64]| {
            let (mut x, mut g) =
                (Data::new(AclType::F64, input, values), Data::new(AclType::F64, place, grid));
            let mut out = Data::blank(AclType::F64, &out_dims);
            let call = vec![
                Arg::T(&mut x),
                Arg::T(&mut g),
                Arg::I(mode),
                Arg::I(padding),
                Arg::B(false),
                Arg::T(&mut out),
            ];
            run(&name, call).unwrap();
            out.values().iter().zip(&grad).map(|(out, grad)| out * grad).sum::<f64>()
        };
        let differences = |of_grid: bool, len: usize| -> Vec<f64> {
            let shifted = |i: usize, by: f64| {
                let (mut values, mut grid) = (values.clone(), grid.clone());
                if of_grid {
                    grid[i] += by;
                } else {
                    values[i] += by;
                }
                forward(&values, &grid)
            };
            (0..len).map(|i| (shifted(i, 1e-6) - shifted(i, -1e-6)) / 2e-6).collect()
        };
        let (mut g, mut x) =
            (Data::new(AclType::F64, &out_dims, &grad), Data::new(AclType::F64, input, &values));
        let mut p = Data::new(AclType::F64, place, &grid);
        let (mut dx, mut dp) =
            (Data::blank(AclType::F64, input).strided(), Data::blank(AclType::F64, place).strided());
        let mut call = vec![
            Arg::T(&mut g),
            Arg::T(&mut x),
            Arg::T(&mut p),
            Arg::I(mode),
            Arg::I(padding),
            Arg::B(false),
        ];
        call.extend([Arg::Flags(vec![true, true]), Arg::T(&mut dx), Arg::T(&mut dp)]);
        run(&format!("{name}Backward"), call).unwrap();
        let what = format!("{dims} dims, mode {mode}, padding {padding}");
        close(&dx.values(), &differences(false, values.len()), 1e-6, &what);
        close(&dp.values(), &differences(true, grid.len()), 1e-6, &what);
    }
}

#[test]
fn grids_of_samples_are_checked() {
    let (mut x, mut grid) =
        (Data::blank(AclType::F32, &[1, 2, 4, 4]), Data::blank(AclType::F32, &[1, 3, 3, 2]));
    let mut out = Data::blank(AclType::F32, &[1, 2, 3, 4]);
    fn call<'a>(x: &'a mut Data, grid: &'a mut Data, modes: [i64; 2], out: &'a mut Data) -> Vec<Arg<'a>> {
        vec![Arg::T(x), Arg::T(grid), Arg::I(modes[0]), Arg::I(modes[1]), Arg::B(false), Arg::T(out)]
    }
    let wrong = "out: expected shape [1, 2, 3, 3] by the tensors before it, found [1, 2, 3, 4]";
    refused("aclnnGridSampler2D", call(&mut x, &mut grid, [0, 0], &mut out), &[wrong]);
    let mut out = Data::blank(AclType::F32, &[1, 2, 3, 3]);
    refused(
        "aclnnGridSampler2D",
        call(&mut x, &mut grid, [3, 0], &mut out),
        &["interpolationMode: expected 0 to 2, found 3"],
    );
    refused(
        "aclnnGridSampler2D",
        call(&mut x, &mut grid, [0, 3], &mut out),
        &["paddingMode: expected 0 to 2, found 3"],
    );
    let mut half = Data::blank(AclType::F16, &[1, 3, 3, 2]);
    refused(
        "aclnnGridSampler2D",
        call(&mut x, &mut half, [0, 0], &mut out),
        &["grid: expected FLOAT (the type of input)"],
    );
}

#[test]
fn affine_grids_are_maps_of_the_places() {
    for (dims, aligned) in [(2usize, false), (2, true), (3, false), (3, true)] {
        let extents: &[usize] = if dims == 2 { &[3, 1] } else { &[2, 3, 4] };
        let theta = varied(2 * dims * (dims + 1), 4);
        let mut map = Data::new(AclType::F32, &[2, dims, dims + 1], &theta).strided();
        let out_dims = [&[2], extents, &[dims]].concat();
        let mut out = Data::blank(AclType::F32, &out_dims).strided();
        let size: Vec<i64> = [2, 7].into_iter().chain(extents.iter().map(|&extent| extent as i64)).collect();
        run("aclnnAffineGrid", vec![Arg::T(&mut map), Arg::Ints(&size), Arg::B(aligned), Arg::T(&mut out)])
            .unwrap();
        let along = |extent: usize, at: usize| match (aligned, extent) {
            (true, 1) => 0.0,
            (true, _) => -1.0 + 2.0 * at as f64 / (extent - 1) as f64,
            (false, _) => (2 * at + 1) as f64 / extent as f64 - 1.0,
        };
        let plane: usize = extents.iter().product();
        let mut expected = Vec::new();
        for (image, place) in (0..2).flat_map(|image| (0..plane).map(move |place| (image, place))) {
            let mut rest = place;
            let mut point = Vec::new();
            for &extent in extents.iter().rev() {
                point.push(along(extent, rest % extent));
                rest /= extent;
            }
            point.push(1.0);
            let rows = &theta[image * dims * (dims + 1)..][..dims * (dims + 1)];
            expected.extend(
                rows.chunks(dims + 1).map(|row| row.iter().zip(&point).map(|(a, b)| a * b).sum::<f64>()),
            );
        }
        close(&out.values(), &expected, 1e-6, &format!("{dims} dims, aligned {aligned}"));
        let call = vec![Arg::T(&mut map), Arg::Ints(&size[..3]), Arg::B(aligned), Arg::T(&mut out)];
        refused("aclnnAffineGrid", call, &["size: expected 4 or 5 extents"]);
    }
}

#[test]
fn pooled_values_return_to_their_positions() {
    for dtype in [AclType::F32, AclType::F16, AclType::I64, AclType::U8] {
        let mut x = Data::new(dtype, &[2, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).strided();
        let mut at =
            Data::new(AclType::I64, &[2, 1, 2, 2], &[0.0, 3.0, 8.0, 5.0, 1.0, 1.0, 7.0, 2.0]).strided();
        let mut out = Data::blank(dtype, &[2, 1, 3, 3]);
        run("aclnnMaxUnpool2d", vec![Arg::T(&mut x), Arg::T(&mut at), Arg::Ints(&[3, 3]), Arg::T(&mut out)])
            .unwrap();
        let planes =
            [1.0, 0.0, 0.0, 2.0, 0.0, 4.0, 0.0, 0.0, 3.0, 0.0, 6.0, 8.0, 0.0, 0.0, 0.0, 0.0, 7.0, 0.0];
        assert_eq!(out.values(), planes, "{dtype}");
    }
    let mut x = Data::new(AclType::F32, &[1, 1, 1, 2], &[1.0, 2.0]);
    let mut at = Data::new(AclType::I32, &[1, 1, 1, 2], &[3.0, 0.0]);
    let mut out = Data::blank(AclType::F32, &[1, 1, 2, 2]);
    fn call<'a>(x: &'a mut Data, at: &'a mut Data, step: &'a [i64], out: &'a mut Data) -> Vec<Arg<'a>> {
        vec![
            Arg::T(x),
            Arg::T(at),
            Arg::Ints(&[1, 2, 2]),
            Arg::Ints(step),
            Arg::Ints(&[0, 0, 0]),
            Arg::T(out),
        ]
    }
    run("aclnnMaxUnpool3d", call(&mut x, &mut at, &[1, 2, 2], &mut out)).unwrap();
    assert_eq!(out.values(), [2.0, 0.0, 0.0, 1.0]);
    refused(
        "aclnnMaxUnpool3d",
        call(&mut x, &mut at, &[1, 2], &mut out),
        &["stride: expected 3 numbers of at least 1"],
    );
    let mut far = Data::new(AclType::I32, &[1, 1, 1, 2], &[4.0, 0.0]);
    refused(
        "aclnnMaxUnpool3d",
        call(&mut x, &mut far, &[1, 2, 2], &mut out),
        &["indices: expected 0 to 3, found 4"],
    );
}

#[test]
fn factors_are_orthogonal_and_triangular() {
    for (dtype, m, n, mode) in
        [(AclType::F64, 4, 3, 0), (AclType::F64, 4, 3, 1), (AclType::F32, 3, 4, 0), (AclType::F64, 3, 3, 0)]
    {
        let kept = if mode == 1 { m } else { m.min(n) };
        let values: Vec<f64> =
            varied(2 * m * n, 9).iter().enumerate().map(|(i, x)| x + (i % 5) as f64).collect();
        let mut x = Data::new(dtype, &[2, m, n], &values).strided();
        let (mut q, mut r) =
            (Data::blank(dtype, &[2, m, kept]).strided(), Data::blank(dtype, &[2, kept, n]).strided());
        run("aclnnLinalgQr", vec![Arg::T(&mut x), Arg::I(mode), Arg::T(&mut q), Arg::T(&mut r)]).unwrap();
        let (q, r, bound) = (q.values(), r.values(), 20.0 * precision(dtype));
        for batch in 0..2 {
            let (q, r) = (&q[batch * m * kept..][..m * kept], &r[batch * kept * n..][..kept * n]);
            let dot = |a: usize, b: usize| (0..m).map(|i| q[i * kept + a] * q[i * kept + b]).sum::<f64>();
            let unit: Vec<f64> = (0..kept * kept).map(|i| dot(i / kept, i % kept)).collect();
            let identity: Vec<f64> =
                (0..kept * kept).map(|i| f64::from(u8::from(i / kept == i % kept))).collect();
            close(&unit, &identity, bound, "Q'Q");
            let product: Vec<f64> =
                (0..m * n).map(|i| (0..kept).map(|k| q[i / n * kept + k] * r[k * n + i % n]).sum()).collect();
            close(&product, &values[batch * m * n..][..m * n], bound, "QR");
            assert!((0..kept * n).all(|i| i / n <= i % n || r[i] == 0.0), "{r:?}");
            // A reflection moves the first column away from its own side.
            assert!(r[0] * values[batch * m * n] <= 0.0, "{r:?}");
        }
    }
    let mut x = Data::new(AclType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let (mut none, mut r) = (Data::blank(AclType::F32, &[0]), Data::blank(AclType::F32, &[2, 2]));
    run("aclnnLinalgQr", vec![Arg::T(&mut x), Arg::I(2), Arg::T(&mut none), Arg::T(&mut r)]).unwrap();
    close(&r.values(), &[-3.1623, -4.4272, 0.0, -0.6325], 1e-4, "the example of the page");
    let call = vec![Arg::T(&mut x), Arg::I(3), Arg::T(&mut none), Arg::T(&mut r)];
    refused("aclnnLinalgQr", call, &["mode: expected 0 to 2, found 3"]);
}

#[test]
fn distances_of_pairs_and_channels_of_groups() {
    let points = varied(4 * 3, 2);
    for degree in [0.0, 1.0, 2.0, 3.0, f64::INFINITY] {
        let mut x = Data::new(AclType::F32, &[4, 3], &points).strided();
        let mut out = Data::blank(AclType::F32, &[6]).strided();
        run("aclnnPdist", vec![Arg::T(&mut x), Arg::F(degree), Arg::T(&mut out)]).unwrap();
        let mut expected = Vec::new();
        for (i, j) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            let apart = (0..3).map(|k| (points[i * 3 + k] - points[j * 3 + k]).abs());
            expected.push(match degree {
                0.0 => apart.filter(|d| *d != 0.0).count() as f64,
                d if d.is_infinite() => apart.fold(0.0, f64::max),
                d => apart.map(|a| a.powf(d)).sum::<f64>().powf(1.0 / d),
            });
        }
        close(&out.values(), &expected, 1e-5, &format!("p {degree}"));
    }
    let mut x = Data::new(AclType::I32, &[1, 6, 2], &counted(12, 1)).strided();
    let mut out = Data::blank(AclType::I32, &[1, 6, 2]).strided();
    run("aclnnChannelShuffle", vec![Arg::T(&mut x), Arg::I(3), Arg::T(&mut out)]).unwrap();
    let (given, found) = (x.values(), out.values());
    for (to, from) in [0, 2, 4, 1, 3, 5].into_iter().enumerate() {
        assert_eq!(found[to * 2..to * 2 + 2], given[from * 2..from * 2 + 2]);
    }
    let call = vec![Arg::T(&mut x), Arg::I(4), Arg::T(&mut out)];
    refused("aclnnChannelShuffle", call, &["groups: expected a divisor of 6, found 4"]);
}

#[test]
fn margins_of_several_labels() {
    let x = [0.1, 0.2, 0.4, 0.8, -1.0, 2.0, 0.5, 0.0];
    let labels = [3.0, 0.0, -1.0, 1.0, 1.0, -1.0, 0.0, 2.0];
    let mut rows: Vec<f64> = Vec::new();
    for (row, named) in [(&x[..4], vec![3usize, 0]), (&x[4..], vec![1])] {
        let others = (0..4).filter(|i| !named.contains(i));
        let sum: f64 =
            others.flat_map(|i| named.iter().map(move |&t| f64::max(1.0 - row[t] + row[i], 0.0))).sum();
        rows.push(sum / 4.0);
    }
    for (reduction, expected) in
        [(0, rows.clone()), (1, vec![(rows[0] + rows[1]) / 2.0]), (2, vec![rows[0] + rows[1]])]
    {
        let mut data = Data::new(AclType::F32, &[2, 4], &x).strided();
        let mut target = Data::new(AclType::I64, &[2, 4], &labels);
        let mut out = Data::blank(AclType::F32, if reduction == 0 { &[2] } else { &[] });
        let mut flags = Data::blank(AclType::F32, &[2, 4]);
        let call = vec![
            Arg::T(&mut data),
            Arg::T(&mut target),
            Arg::I(reduction),
            Arg::T(&mut out),
            Arg::T(&mut flags),
        ];
        run("aclnnMultilabelMarginLoss", call).unwrap();
        close(&out.values(), &expected, 1e-6, &format!("reduction {reduction}"));
        assert_eq!(flags.values(), [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    }
}
