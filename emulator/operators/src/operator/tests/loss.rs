//! Cross-entropy and its gradient against plain loops.

use super::*;
use crate::dtype::AclType;

struct Case {
    dtype: AclType,
    classes: usize,
    labels: Vec<f64>,
    weighted: bool,
    reduction: &'static str,
    ignored: i64,
    strided: bool,
}

impl Case {
    fn scores(&self) -> Vec<f64> {
        varied(self.labels.len() * self.classes, 1)
            .iter()
            .map(|&value| rounded(value * 1.5, self.dtype))
            .collect()
    }

    fn weights(&self) -> Vec<f64> {
        (0..self.classes).map(|class| if self.weighted { 0.5 + class as f64 / 4.0 } else { 1.0 }).collect()
    }

    /// Returns the class and weight of a row that is not ignored.
    fn label(&self, row: usize) -> Option<(usize, f64)> {
        let label = self.labels[row];
        (label as i64 != self.ignored).then(|| (label as usize, self.weights()[label as usize]))
    }

    fn divisor(&self) -> f64 {
        let total = (0..self.labels.len()).filter_map(|row| self.label(row)).map(|(_, weight)| weight).sum();
        if self.reduction == "mean" { total } else { 1.0 }
    }

    fn laid(&self, data: Data) -> Data {
        if self.strided { data.strided() } else { data }
    }

    fn results(&self) -> usize {
        if self.reduction == "none" { self.labels.len() } else { 1 }
    }

    fn log_probabilities(&self) -> Vec<f64> {
        let scores = self.scores();
        let rows = scores.chunks(self.classes);
        rows.flat_map(|row| {
            let sum: f64 = row.iter().map(|value| value.exp()).sum();
            row.iter().map(move |value| value - sum.ln())
        })
        .collect()
    }

    fn check(&self) {
        let (count, what) =
            (self.labels.len(), format!("{} {} {:?}", self.dtype, self.reduction, self.labels));
        let mut scores = self.laid(Data::new(self.dtype, &[count, self.classes], &self.scores()));
        let index_type = if self.strided { AclType::I32 } else { AclType::I64 };
        let mut target = self.laid(Data::new(index_type, &[count], &self.labels));
        let mut weight = self.laid(Data::new(AclType::F32, &[self.classes], &self.weights()));
        let mut loss = self.laid(Data::new(self.dtype, &[self.results()], &vec![7.0; self.results()]));
        let mut log =
            self.laid(Data::new(self.dtype, &[count, self.classes], &vec![7.0; count * self.classes]));
        let (mut extra, mut sums) = (loss.clone(), Data::new(self.dtype, &[count], &vec![7.0; count]));
        let arguments = vec![
            Arg::T(&mut scores),
            Arg::T(&mut target),
            if self.weighted { Arg::T(&mut weight) } else { Arg::Null },
            Arg::Text(self.reduction),
            Arg::I(self.ignored),
            Arg::F(0.0),
            Arg::F(0.0),
            Arg::B(false),
            Arg::T(&mut loss),
            Arg::T(&mut log),
            Arg::T(&mut extra),
            Arg::T(&mut sums),
        ];
        run("aclnnCrossEntropyLoss", arguments).unwrap();
        let logs = self.log_probabilities();
        close(&log.values(), &logs, precision(self.dtype), &what);
        let own =
            |row| self.label(row).map_or(0.0, |(class, weight)| -weight * logs[row * self.classes + class]);
        let losses: Vec<f64> = (0..count).map(own).collect();
        let wanted = match self.reduction {
            "none" => losses,
            _ => vec![losses.iter().sum::<f64>() / self.divisor()],
        };
        close(&loss.values(), &wanted, precision(self.dtype), &what);
        assert_eq!(
            (extra.values(), sums.values()),
            (vec![7.0; self.results()], vec![7.0; count]),
            "not written"
        );

        let grads = varied(self.results(), 3);
        let dims: &[usize] = if self.reduction == "none" { &[count] } else { &[] };
        let mut grad = self.laid(Data::new(self.dtype, dims, &grads));
        let mut log = self.laid(Data::new(self.dtype, &[count, self.classes], &logs));
        let mut target = self.laid(Data::new(AclType::I64, &[count], &self.labels));
        let mut out =
            self.laid(Data::new(self.dtype, &[count, self.classes], &vec![7.0; count * self.classes]));
        let arguments = vec![
            Arg::T(&mut grad),
            Arg::T(&mut log),
            Arg::T(&mut target),
            if self.weighted { Arg::T(&mut weight) } else { Arg::Null },
            Arg::Null,
            Arg::Null,
            Arg::Text(self.reduction),
            Arg::I(self.ignored),
            Arg::F(0.0),
            Arg::F(0.0),
            Arg::T(&mut out),
        ];
        run("aclnnCrossEntropyLossGrad", arguments).unwrap();
        let held = |value: f64| rounded(value, self.dtype);
        let wanted: Vec<f64> = (0..count * self.classes)
            .map(|i| {
                let (row, column) = (i / self.classes, i % self.classes);
                let Some((class, weight)) = self.label(row) else { return 0.0 };
                let grad = grads[if self.reduction == "none" { row } else { 0 }] * weight / self.divisor();
                grad * (held(logs[i]).exp() - f64::from(u8::from(class == column)))
            })
            .collect();
        close(&out.values(), &wanted, precision(self.dtype), &what);
    }
}

#[test]
fn losses_and_their_gradients_over_types_reductions_and_layouts() {
    for dtype in FLOATS {
        for reduction in ["mean", "sum", "none"] {
            for (labels, classes) in
                [(vec![2.0, 0.0, 4.0], 5), (vec![-100.0, 1.0, 0.0, -100.0], 3), (vec![1500.0], 2000)]
            {
                for (weighted, strided) in [(false, false), (true, true)] {
                    let labels = labels.clone();
                    Case { dtype, classes, labels, weighted, reduction, ignored: -100, strided }.check();
                }
            }
            let labels = vec![1.0, 2.0];
            Case { dtype, classes: 3, labels, weighted: true, reduction, ignored: 1, strided: false }.check();
        }
    }
    let labels = vec![-1.0; 2];
    Case {
        dtype: AclType::F32,
        classes: 3,
        labels,
        weighted: false,
        reduction: "none",
        ignored: -1,
        strided: false,
    }
    .check();
}

fn forward(label: f64, reduction: &str, smoothing: f64, extra: bool, weights: usize) -> Result<(), String> {
    let data = |dims: &[usize]| Data::new(AclType::F32, dims, &vec![7.0; dims.iter().product()]);
    let (mut scores, mut weight) = (data(&[2, 3]), data(&[weights]));
    let mut target = Data::new(AclType::I64, &[2], &[0.0, label]);
    let (mut loss, mut log, mut zloss, mut sums) = (data(&[1]), data(&[2, 3]), data(&[1]), data(&[2]));
    let arguments = vec![
        Arg::T(&mut scores),
        Arg::T(&mut target),
        Arg::T(&mut weight),
        Arg::Text(reduction),
        Arg::I(-100),
        Arg::F(smoothing),
        Arg::F(0.0),
        Arg::B(extra),
        Arg::T(&mut loss),
        Arg::T(&mut log),
        Arg::T(&mut zloss),
        Arg::T(&mut sums),
    ];
    let result = run("aclnnCrossEntropyLoss", arguments);
    assert_eq!(log.values() == [7.0; 6], result.is_err(), "nothing is written if there is an error");
    result
}

#[test]
fn losses_are_refused_by_name() {
    assert_eq!(forward(2.0, "mean", 0.0, false, 3), Ok(()));
    let says = |result: Result<(), String>, part: &str| {
        let message = result.expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    };
    says(
        forward(3.0, "mean", 0.0, false, 3),
        "target: label 3 of row 1 is outside 0..3 and not ignored (-100)",
    );
    says(forward(-1.0, "sum", 0.0, false, 3), "target: label -1 of row 1");
    says(forward(2.0, "none", 0.0, false, 3), "lossOut: expected shape [2] (for input [2, 3]), found [1]");
    says(forward(2.0, "max", 0.0, false, 3), "reductionOptional: expected mean, sum or none, found max");
    says(forward(2.0, "mean", 0.1, false, 3), "labelSmoothing: expected 0, found 0.1");
    says(forward(2.0, "mean", 0.0, true, 3), "returnZloss: expected false, found true");
    says(
        forward(2.0, "mean", 0.0, false, 2),
        "weightOptional: expected shape [3] (a weight a class), found [2]",
    );
}

#[test]
fn gradients_of_losses_are_refused_by_name() {
    let call = |grad: (AclType, &[usize]), target: AclType, zloss: bool, reduction: &str, part: &str| {
        let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![0.0; dims.iter().product()]);
        let (mut grad, mut log, mut target) =
            (data(grad.0, grad.1), data(AclType::F32, &[2, 3]), data(target, &[2]));
        let (mut out, mut extra) = (data(AclType::F32, &[2, 3]), data(AclType::F32, &[1]));
        let arguments = vec![
            Arg::T(&mut grad),
            Arg::T(&mut log),
            Arg::T(&mut target),
            Arg::Null,
            if zloss { Arg::T(&mut extra) } else { Arg::Null },
            Arg::Null,
            Arg::Text(reduction),
            Arg::I(-100),
            Arg::F(0.0),
            Arg::F(0.0),
            Arg::T(&mut out),
        ];
        refused("aclnnCrossEntropyLossGrad", arguments, &[part]);
    };
    let (single, index) = (AclType::F32, AclType::I64);
    call((single, &[2]), index, false, "mean", "gradLoss: expected one element, found [2]");
    call(
        (single, &[]),
        index,
        false,
        "none",
        "gradLoss: expected shape [2] (one per row for reduction none), found []",
    );
    call(
        (AclType::F16, &[1]),
        index,
        false,
        "sum",
        "gradLoss: expected FLOAT (the type of logProb), found FLOAT16",
    );
    call(
        (single, &[1]),
        AclType::I32,
        false,
        "sum",
        "target: expected an element type of INT64, found INT32",
    );
    call(
        (single, &[1]),
        index,
        true,
        "sum",
        "gradZlossOptional: is given, but the emulator does not model this",
    );
}
