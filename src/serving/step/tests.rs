//! One test per rule of plans, their bytes and the receiver's tables.

use smallvec::smallvec;

use super::*;
use crate::base::Id as _;

fn table(index: usize) -> TableId {
    TableId::from_index(index)
}

fn block(index: usize) -> BlockId {
    BlockId::from_index(index)
}

fn extend(group: u32, dropped: u32, appended: &[usize]) -> Change {
    Change::Extend {
        table: table(1),
        group,
        dropped,
        appended: appended.iter().map(|&it| block(it)).collect(),
    }
}

/// A plan with every kind of field.
fn plan() -> StepPlan {
    let copy = |slot, snapshot| SlotCopy {
        slot: SlotId::from_index(slot),
        snapshot: SnapshotId::from_index(snapshot),
    };
    let row = |first| DecodeRow {
        table: table(300),
        position: 32_000,
        first,
        known: smallvec![],
        drafts: smallvec![],
        samples: true,
    };
    let result = |step, row| StepToken::Result(ResultRef { step, row });
    StepPlan {
        number: 1_000_003,
        changes: vec![
            Change::Release { table: table(7) },
            Change::Admit { table: table(7), slot: None },
            Change::Admit { table: table(1), slot: Some(SlotId::from_index(3)) },
            extend(1, 4, &[9, 1_000]),
        ],
        loads: vec![copy(3, 70_000)],
        chunk: Some(Chunk {
            table: table(1),
            start: 128,
            tokens: vec![0, 127, 128, 151_935, u32::MAX],
            padded: 256,
            form: TokenForm::Generated,
            samples: true,
        }),
        decode: Some(DecodeRun {
            padded: 8,
            width: 4,
            rows: vec![
                row(StepToken::Id(42)),
                row(result(1_000_002, ResultRow::Chunk)),
                row(result(999_900, ResultRow::Decode(200))),
                DecodeRow {
                    known: smallvec![1, 2],
                    drafts: smallvec![3],
                    samples: false,
                    ..row(StepToken::Id(0))
                },
            ],
        }),
        saves: vec![copy(3, 1), copy(4, 2)],
    }
}

#[test]
fn bytes_are_the_plan() {
    for plan in [plan(), StepPlan::default()] {
        assert_eq!(StepPlan::decode(&plan.encode()), Ok(plan));
    }
}

#[test]
fn every_prefix_is_truncated_and_every_suffix_is_refused() {
    let bytes = plan().encode();
    for length in 0..bytes.len() {
        let error = StepPlan::decode(&bytes[..length]).unwrap_err();
        assert_eq!(error, DecodeError::Truncated { at: length });
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(StepPlan::decode(&longer), Err(DecodeError::Trailing { bytes: 1 }));
    assert_eq!(StepPlan::decode(&[9]), Err(DecodeError::Version { found: 9 }));
}

#[test]
fn corrupt_bytes_are_an_error_or_the_only_encoding_of_another_plan() {
    let bytes = plan().encode();
    let (mut refused, mut other) = (0, 0);
    for at in 0..bytes.len() {
        for value in 0..=u8::MAX {
            let mut corrupt = bytes.clone();
            corrupt[at] = value;
            match StepPlan::decode(&corrupt) {
                Err(_) => refused += 1,
                Ok(plan) => {
                    assert_eq!(plan.encode(), corrupt, "byte {at} is {value}");
                    other += 1;
                }
            }
        }
    }
    assert!(refused > 1_000 && other > 1_000, "{refused} refused, {other} other plans");
}

#[test]
fn a_long_count_reserves_no_memory() {
    // Version, number 0, and a list of 2³² − 1 changes.
    let bytes = [1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(StepPlan::decode(&bytes), Err(DecodeError::Truncated { at: 7 }));
}

#[test]
fn a_step_of_256_requests_has_few_bytes() {
    let row = |at: usize| DecodeRow {
        table: table(at),
        position: 32_767,
        first: StepToken::Id(150_000),
        known: smallvec![],
        drafts: smallvec![],
        samples: true,
    };
    // Every row needs a new block, which happens once in 128 steps on average.
    let change = |at: usize| Change::Extend {
        table: table(at),
        group: 0,
        dropped: 0,
        appended: smallvec![block(60_000)],
    };
    let run = DecodeRun { padded: 256, width: 1, rows: (0..256).map(row).collect() };
    let mut plan = StepPlan { number: 1 << 40, decode: Some(run), ..StepPlan::default() };
    let usual = plan.encode().len();
    plan.changes = (0..256).map(change).collect();
    assert!(usual <= 2_600 && plan.encode().len() <= 5_000, "{usual}, {}", plan.encode().len());
}

#[test]
fn receivers_apply_changes_in_order() {
    let mut tables = Tables::new(2, 2);
    let admit = Change::Admit { table: table(1), slot: Some(SlotId::from_index(5)) };
    let mut apply = |changes: Vec<Change>| tables.apply(&StepPlan { changes, ..StepPlan::default() });
    apply(vec![admit, extend(0, 0, &[3, 4]), extend(1, 2, &[8])]).unwrap();
    apply(vec![extend(0, 1, &[5])]).unwrap();
    let found = tables.get(table(1), 0).unwrap();
    assert_eq!((found.first(), found.end(), found.blocks()), (1, 3, &[block(4), block(5)][..]));
    assert_eq!((found.block(0), found.block(2), found.block(3)), (None, Some(block(5)), None));
    assert_eq!(tables.slot(table(1)), Some(SlotId::from_index(5)));
    let mut row = [block(99); 3];
    assert_eq!(tables.write_row(table(1), 1, &mut row), Ok(2));
    assert_eq!(row, [block(8), BlockId::NULL, BlockId::NULL]);
    // Released and admitted in one step.
    let again = Change::Admit { table: table(1), slot: None };
    tables
        .apply(&StepPlan { changes: vec![Change::Release { table: table(1) }, again], ..StepPlan::default() })
        .unwrap();
    assert_eq!((tables.get(table(1), 0), tables.slot(table(1))), (Some(&BlockTable::default()), None));
}

#[test]
fn a_change_that_disagrees_with_the_tables_is_an_error() {
    let admit = |index| Change::Admit { table: table(index), slot: None };
    let cases = [
        (vec![Change::Release { table: table(1) }], "released table is free"),
        (vec![admit(1), admit(1)], "admitted table is not free"),
        (vec![admit(2)], "unknown table"),
        (vec![extend(0, 0, &[1])], "extended table is free"),
        (vec![admit(1), extend(1, 0, &[1])], "unknown group"),
        (vec![admit(1), extend(0, u32::MAX, &[]), extend(0, 1, &[])], "table is too long"),
        (vec![admit(1), extend(0, u32::MAX, &[1])], "table is too long"),
    ];
    for (changes, message) in cases {
        let plan = StepPlan { number: 4, changes, ..StepPlan::default() };
        let error = Tables::new(1, 2).apply(&plan).unwrap_err();
        assert_eq!((error.place.as_str(), error.message.as_str()), ("step 4", message));
    }
}

#[test]
fn a_row_that_is_too_short_is_an_error() {
    let mut tables = Tables::new(1, 2);
    let admit = Change::Admit { table: table(1), slot: None };
    tables.apply(&StepPlan { changes: vec![admit, extend(0, 0, &[1, 2])], ..StepPlan::default() }).unwrap();
    let mut row = [BlockId::NULL];
    let error = tables.write_row(table(1), 0, &mut row).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table1, group 0: block table is longer than the program's row: expected at most 1 blocks, found 2"
    );
    assert!(tables.write_row(table(0), 0, &mut row).is_err());
}
