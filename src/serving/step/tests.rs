//! One test per rule of the receiver's tables.

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

#[test]
fn receivers_apply_changes_in_order() {
    let mut tables = Tables::new(2, 2);
    let admit = Change::Admit { table: table(1), prompt: 5, adapter: None };
    let mut apply = |changes: Vec<Change>| tables.apply(&StepPlan { changes, ..StepPlan::default() });
    apply(vec![admit, extend(0, 0, &[3, 4]), extend(1, 2, &[8])]).unwrap();
    apply(vec![extend(0, 1, &[5])]).unwrap();
    let found = tables.get(table(1), 0).unwrap();
    assert_eq!((found.first(), found.end(), found.blocks()), (1, 3, &[block(4), block(5)][..]));
    assert_eq!((found.block(0), found.block(2), found.block(3)), (None, Some(block(5)), None));
    // Released and admitted in one step.
    let again = Change::Admit { table: table(1), prompt: 6, adapter: Some(2) };
    tables
        .apply(&StepPlan { changes: vec![Change::Release { table: table(1) }, again], ..StepPlan::default() })
        .unwrap();
    assert_eq!((tables.get(table(1), 0), tables.prompt(table(1))), (Some(&BlockTable::default()), Some(6)));
    assert_eq!((tables.adapter(table(1)), tables.adapter(table(0))), (Some(2), None));
}

#[test]
fn a_change_that_disagrees_with_the_tables_is_an_error() {
    let admit = |index| Change::Admit { table: table(index), prompt: 5, adapter: None };
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
