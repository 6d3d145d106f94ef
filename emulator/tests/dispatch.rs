//! Tokens to the cards of their experts and back.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};

use ascend_tp_emulator::{Config, Emulator, Mode, Soc, dropin};
use ascend_tp_sys::{HcclComm, HcclDataType, Table, aclDataType, aclOpExecutor, aclTensor};

use crate::common::operators::{group_name, tensor};
use crate::common::strict::{on_threads, texts};
use crate::common::{Card, call, encode, message, ok, world};

/// Cards, experts, tokens per card, choices and width.
#[derive(Clone, Debug)]
struct Deal {
    cards: i64,
    experts: i64,
    tokens: Vec<i64>,
    choices: i64,
    width: i64,
    is_first: bool,
    is_quantised: bool,
    /// Choices that take part.
    mask: Option<fn(i64, i64, i64) -> bool>,
}

impl Deal {
    fn local(&self) -> i64 {
        self.experts / self.cards
    }

    fn most(&self) -> i64 {
        *self.tokens.iter().max().expect("cards")
    }

    fn rows(&self) -> i64 {
        self.cards * self.most() * self.local().min(self.choices) + 3
    }

    /// A token's choices have different experts.
    fn expert(&self, card: i64, token: i64, choice: i64) -> i64 {
        (card * 5 + token * 3 + choice * (1 + token % 2)) % self.experts
    }

    fn takes_part(&self, card: i64, token: i64, choice: i64) -> bool {
        self.mask.is_none_or(|mask| mask(card, token, choice))
    }

    /// A token's first number is the maximum, 127, so quantisation changes nothing.
    fn value(card: i64, token: i64, at: i64) -> i64 {
        if at == 0 { 127 } else { (card * 31 + token * 17 + at * 7) % 61 - 30 }
    }

    fn rows_of(&self, card: i64) -> Vec<[i64; 3]> {
        let mut rows = Vec::new();
        for expert in card * self.local()..(card + 1) * self.local() {
            for from in 0..self.cards {
                let choices = (0..self.tokens[from as usize])
                    .flat_map(|token| (0..self.choices).map(move |choice| (token, choice)));
                let own = choices.filter(|&(token, choice)| {
                    self.takes_part(from, token, choice) && self.expert(from, token, choice) == expert
                });
                rows.extend(own.map(|(token, choice)| [from, token, choice]));
            }
        }
        rows
    }
}

macro_rules! given {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: live tensors, C strings, valid pointers for results, and results of a first
        // phase.
        unsafe { dropin::$name($($arg),*) }
    };
}

const F16: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP16;
const FLOAT: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;
const WHOLE: HcclDataType = HcclDataType::HCCL_DATA_TYPE_INT32;
const BYTE: HcclDataType = HcclDataType::HCCL_DATA_TYPE_INT8;

struct Side<'a> {
    emulator: &'a Emulator,
    card: &'a Card<'a>,
    group: CString,
    rank: i64,
    ids: *mut aclTensor,
    mask: *mut aclTensor,
    expanded: *mut c_void,
    assist: *mut c_void,
    ends: *mut c_void,
    counts: *mut c_void,
    scales: *mut c_void,
}

// SAFETY: the machine checks handles and addresses, on any thread.
unsafe impl Send for Side<'_> {}
// SAFETY: as above.
unsafe impl Sync for Side<'_> {}

fn grid(rows: i64, columns: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
}

impl<'a> Side<'a> {
    fn new(emulator: &'a Emulator, card: &'a Card<'a>, comm: HcclComm, rank: i64, of: &Deal) -> Self {
        let table = card.table;
        let (own, rows) = (of.tokens[rank as usize], of.rows());
        let whole = |values: Vec<i64>| card.upload(&encode(WHOLE, values));
        let ids =
            whole(grid(own, of.choices).map(|(token, choice)| of.expert(rank, token, choice)).collect());
        let parts =
            grid(own, of.choices).map(|(token, choice)| i64::from(of.takes_part(rank, token, choice)));
        let mask = of.mask.map_or(null_mut(), |_| {
            tensor(table, aclDataType::ACL_BOOL, card.upload(&encode(BYTE, parts)), &[own, of.choices])
        });
        let assist = if of.is_first { own * of.choices } else { rows * 128 };
        Self {
            emulator,
            card,
            group: group_name(table, comm),
            rank,
            ids: tensor(table, aclDataType::ACL_INT32, ids, &[own, of.choices]),
            mask,
            expanded: card.malloc((rows * of.width * 2) as usize),
            assist: card.malloc((assist * 4) as usize),
            ends: card.malloc(((of.experts + 2) * 4) as usize),
            counts: card.malloc((of.local() * 8) as usize),
            scales: card.malloc((rows * 4) as usize),
        }
    }

    fn tensor(&self, dtype: aclDataType, address: *mut c_void, dims: &[i64]) -> *mut aclTensor {
        tensor(self.card.table, dtype, address, dims)
    }

    fn assist(&self, of: &Deal) -> *mut aclTensor {
        let count = if of.is_first { of.tokens[self.rank as usize] * of.choices } else { of.rows() * 128 };
        self.tensor(aclDataType::ACL_INT32, self.assist, &[count])
    }

    /// The error has status and message.
    fn run(
        &self,
        first: impl FnOnce(*mut u64, *mut *mut aclOpExecutor) -> Option<i32>,
        second: impl FnOnce(*mut c_void, u64, *mut aclOpExecutor) -> Option<i32>,
    ) -> Result<(), String> {
        self.card.enter();
        let (mut bytes, mut executor) = (0, null_mut());
        let outcome = |status: Option<i32>| match status.expect("is modelled") {
            0 => Ok(()),
            status => Err(format!("{status}: {}", message(self.card.table))),
        };
        outcome(first(&raw mut bytes, &raw mut executor))?;
        outcome(second(self.card.malloc(bytes as usize), bytes, executor))
    }

    fn dispatch(&self, of: &Deal) -> Result<(), String> {
        let (e, s) = (self.emulator, self.card.stream);
        self.run(
            |bytes, executor| self.plan_dispatch(of, bytes, executor),
            |workspace, bytes, executor| {
                if of.is_first {
                    given!(aclnnMoeDistributeDispatch(e, workspace, bytes, executor, s))
                } else {
                    given!(aclnnMoeDistributeDispatchV2(e, workspace, bytes, executor, s))
                }
            },
        )
    }

    fn plan_dispatch(&self, of: &Deal, bytes: *mut u64, executor: *mut *mut aclOpExecutor) -> Option<i32> {
        let (own, local) = (of.tokens[self.rank as usize], of.local());
        let values = grid(own, of.width).map(|(token, at)| Deal::value(self.rank, token, at));
        let x =
            self.tensor(aclDataType::ACL_FLOAT16, self.card.upload(&encode(F16, values)), &[own, of.width]);
        let kind = if of.is_quantised { aclDataType::ACL_INT8 } else { aclDataType::ACL_FLOAT16 };
        let out = self.tensor(kind, self.expanded, &[of.rows(), of.width]);
        let scales = self.tensor(aclDataType::ACL_FLOAT, self.scales, &[of.rows()]);
        let counts = self.tensor(aclDataType::ACL_INT64, self.counts, &[local]);
        let ends = self.tensor(aclDataType::ACL_INT32, self.ends, &[of.experts + 2]);
        let (assist, group, none, text) = (self.assist(of), self.group.as_ptr(), null(), null());
        let (cards, rank, experts, quant) =
            (of.cards, self.rank, of.experts, if of.is_quantised { 2 } else { 0 });
        let (global, e) = (of.most() * of.cards, self.emulator);
        if of.is_first {
            given! { aclnnMoeDistributeDispatchGetWorkspaceSize(
                e, x, self.ids, none, none, none, group, cards, rank, experts, text, 0, 0, 0, 0, 0, quant, global, 1, out,
                scales, assist, counts, ends, null_mut(), null_mut(), bytes, executor,
            ) }
        } else {
            given! { aclnnMoeDistributeDispatchV2GetWorkspaceSize(
                e, x, self.ids, none, self.mask, none, group, cards, rank, experts, text, 0, 0, 0, 0, 0, quant, global, 0,
                text, out, scales, assist, counts, ends, null_mut(), null_mut(), bytes, executor,
            ) }
        }
    }

    /// `made` has the FLOAT16 rows of a dispatch; returns the address of the sums.
    fn combine(&self, of: &Deal, made: *mut c_void) -> Result<*mut c_void, String> {
        let own = of.tokens[self.rank as usize];
        let x = self.tensor(aclDataType::ACL_FLOAT16, made, &[of.rows(), of.width]);
        let factors = grid(own, of.choices).map(|(token, choice)| factor(token, choice));
        let factors = self.card.upload(&encode(FLOAT, factors));
        let factors = self.tensor(aclDataType::ACL_FLOAT, factors, &[own, of.choices]);
        let ends = self.tensor(aclDataType::ACL_INT32, self.ends, &[of.experts + 2]);
        let sums = self.card.malloc((own * of.width * 2) as usize);
        let out = self.tensor(aclDataType::ACL_FLOAT16, sums, &[own, of.width]);
        let (assist, group, none, text) = (self.assist(of), self.group.as_ptr(), null(), null());
        let (cards, rank, experts, global) = (of.cards, self.rank, of.experts, of.most() * of.cards);
        let (e, s) = (self.emulator, self.card.stream);
        self.run(
            |bytes, executor| {
                if of.is_first {
                    given! { aclnnMoeDistributeCombineGetWorkspaceSize(
                        e, x, self.ids, assist, ends, factors, none, none, none, none, none, none, group, cards, rank,
                        experts, text, 0, 0, 0, 0, 0, global, 0, 0, 0, out, bytes, executor,
                    ) }
                } else {
                    given! { aclnnMoeDistributeCombineV2GetWorkspaceSize(
                        e, x, self.ids, assist, ends, factors, none, self.mask, none, none, none, none, none, group,
                        cards, rank, experts, text, 0, 0, 0, 0, 0, global, 0, 0, 0, text, out, bytes, executor,
                    ) }
                }
            },
            |workspace, bytes, executor| {
                if of.is_first {
                    given!(aclnnMoeDistributeCombine(e, workspace, bytes, executor, s))
                } else {
                    given!(aclnnMoeDistributeCombineV2(e, workspace, bytes, executor, s))
                }
            },
        )?;
        Ok(sums)
    }
}

/// Returns the factor of an expert for a token, and the weight of a choice.
fn factor(token: i64, choice: i64) -> i64 {
    1 + (token + choice) % 2
}

fn made_by(expert: i64) -> i64 {
    expert % 3 - 1
}

fn on(soc: Soc, cards: usize) -> (Emulator, std::sync::Arc<Table>) {
    let emulator = Emulator::new(Config { soc, ..Config::with_cards(cards) }).expect("the emulator starts");
    let table = emulator.table();
    ok(&table, call!(table, aclInit(null())));
    (emulator, table)
}

fn whole_numbers(bytes: &[u8], size: usize) -> Vec<i64> {
    let number = |part: &[u8]| match size {
        1 => i64::from(part[0].cast_signed()),
        2 => f32::from(half::f16::from_le_bytes([part[0], part[1]])) as i64,
        4 => i64::from(i32::from_le_bytes(part.try_into().expect("four bytes"))),
        _ => i64::from_le_bytes(part.try_into().expect("eight bytes")),
    };
    bytes.chunks_exact(size).map(number).collect()
}

/// Compares each number with the definition.
fn round_trip(soc: Soc, of: &Deal) {
    let (emulator, table) = on(soc, of.cards as usize);
    let (cards, comms) = world(&table, of.cards as usize);
    let sides: Vec<Side<'_>> = (0..)
        .zip(&cards)
        .zip(comms)
        .map(|((rank, card), comm)| Side::new(&emulator, card, comm, rank, of))
        .collect();
    sides.iter().for_each(|side| side.dispatch(of).expect("is taken"));
    let made: Vec<*mut c_void> = sides
        .iter()
        .map(|side| {
            side.card.synchronize();
            let rows = of.rows_of(side.rank);
            let size = if of.is_quantised { 1 } else { 2 };
            let found = whole_numbers(
                &side.card.download(side.expanded, rows.len() * of.width as usize * size),
                size,
            );
            let wanted: Vec<i64> = rows
                .iter()
                .flat_map(|&[card, token, _]| (0..of.width).map(move |at| Deal::value(card, token, at)))
                .collect();
            assert!(found == wanted, "{of:?}: the rows of card {}", side.rank);
            if of.is_quantised {
                let scales = side.card.download(side.scales, rows.len() * 4);
                let ones = scales
                    .chunks_exact(4)
                    .all(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")) == 1.0);
                assert!(ones, "{of:?}");
            }
            let of_expert =
                |expert: i64| rows.iter().filter(|&&[c, t, k]| of.expert(c, t, k) == expert).count() as i64;
            let mut counts: Vec<i64> =
                (0..of.local()).map(|local| of_expert(side.rank * of.local() + local)).collect();
            if !of.is_first {
                for at in 1..counts.len() {
                    counts[at] += counts[at - 1];
                }
            }
            assert_eq!(
                whole_numbers(&side.card.download(side.counts, counts.len() * 8), 8),
                counts,
                "{of:?}"
            );
            let values = rows.iter().flat_map(|&[card, token, choice]| {
                let by = made_by(of.expert(card, token, choice));
                (0..of.width).map(move |at| by * Deal::value(card, token, at))
            });
            let rest = (of.rows() - rows.len() as i64) * of.width;
            side.card.upload(&encode(F16, values.chain((0..rest).map(|_| 99))))
        })
        .collect();
    let sums: Vec<*mut c_void> =
        sides.iter().zip(made).map(|(side, made)| side.combine(of, made).expect("is taken")).collect();
    for (side, sums) in sides.iter().zip(sums) {
        side.card.synchronize();
        let own = of.tokens[side.rank as usize];
        let found = whole_numbers(&side.card.download(sums, (own * of.width * 2) as usize), 2);
        let wanted: Vec<i64> = grid(own, of.width)
            .map(|(token, at)| {
                let choices = (0..of.choices).filter(|&choice| of.takes_part(side.rank, token, choice));
                let by = choices
                    .map(|choice| factor(token, choice) * made_by(of.expert(side.rank, token, choice)));
                by.sum::<i64>() * Deal::value(side.rank, token, at)
            })
            .collect();
        assert!(found == wanted, "{of:?}: the sums of card {}", side.rank);
    }
}

fn deal(tokens: &[i64], experts: i64, choices: i64, width: i64) -> Deal {
    let (cards, tokens) = (tokens.len() as i64, tokens.to_vec());
    Deal { cards, experts, tokens, choices, width, is_first: false, is_quantised: false, mask: None }
}

#[test]
fn tokens_go_to_their_experts_in_order_and_come_back_summed() {
    for of in [
        deal(&[5, 5], 4, 2, 32),
        deal(&[3, 7, 1], 6, 3, 64),
        deal(&[2; 8], 8, 4, 32),
        deal(&[9, 4], 2, 1, 32),
    ] {
        round_trip(Soc::Ascend910B3, &of);
        round_trip(Soc::Ascend910B3, &Deal { is_quantised: true, ..of });
    }
}

#[test]
fn choices_that_take_no_part_go_nowhere() {
    let mask = |card: i64, token: i64, choice: i64| (card + token + choice) % 3 != 0;
    round_trip(Soc::Ascend910_9391, &Deal { mask: Some(mask), ..deal(&[6, 4], 8, 3, 1024) });
}

#[test]
fn the_first_version_has_the_same_rows_and_sums() {
    round_trip(Soc::Ascend910_9391, &Deal { is_first: true, ..deal(&[2, 1, 2, 2, 2, 1, 2, 2], 16, 4, 7168) });
}

/// Returns the message of rank 0 of an Atlas A2.
fn refusal(of: &Deal, group: Option<&CStr>) -> String {
    let (emulator, table) = on(Soc::Ascend910B3, of.cards as usize);
    let (cards, comms) = world(&table, of.cards as usize);
    let mut side = Side::new(&emulator, &cards[0], comms[0], 0, of);
    if let Some(group) = group {
        side.group = group.to_owned();
    }
    side.dispatch(of).expect_err("no card does that")
}

#[test]
fn what_no_card_does_is_refused_before_anything_runs() {
    let plain = deal(&[2, 2], 4, 2, 32);
    let says = |of: &Deal, text: &str| {
        let found = refusal(of, None);
        assert!(found.starts_with("161002") && found.contains(text), "{found} lacks {text}");
    };
    says(&Deal { is_first: true, ..plain.clone() }, "groupEp: 2 cards of the Atlas A2 have no such operator");
    says(&Deal { width: 40, ..plain.clone() }, "x: expected H of 32 to 10240 in steps of 32, found 40");
    says(
        &Deal { experts: 5, ..plain.clone() },
        "moeExpertNum: expected a multiple of 2 of at most 1024, found 5",
    );
    says(&Deal { choices: 5, ..plain.clone() }, "expertIds: expected tokens of 1 to 4 experts");
    says(&Deal { mask: Some(|_, _, _| true), ..plain.clone() }, "has no mask of choices");
    let unknown = refusal(&plain, Some(c"nobody"));
    assert!(unknown.contains("no communicator \"nobody\""), "{unknown}");
}

#[test]
fn a_row_that_does_not_come_back_fails_the_stream() {
    let of = deal(&[2, 2], 4, 2, 32);
    let (emulator, table) = on(Soc::Ascend910B3, 2);
    let (cards, comms) = world(&table, 2);
    let mut sides: Vec<Side<'_>> = (0..)
        .zip(&cards)
        .zip(comms)
        .map(|((rank, card), comm)| Side::new(&emulator, card, comm, rank, &of))
        .collect();
    for side in &mut sides {
        side.ends = side.card.upload(&encode(WHOLE, [0; 6]));
    }
    let made: Vec<*mut c_void> =
        sides.iter().map(|side| side.card.malloc((of.rows() * of.width * 2) as usize)).collect();
    for (side, made) in sides.iter().zip(made) {
        side.combine(&of, made).expect("is taken");
    }
    let (code, text) = sides[0].card.outcome();
    assert!(
        code != 0 && text.contains("token 0 waits for row 0 of expert 0, but card 0 returns 0 rows"),
        "{text}"
    );
}

#[test]
fn strict_mode_finds_nothing_in_a_round_trip() {
    for seed in 0..3 {
        let of = deal(&[3, 2], 4, 2, 32);
        let config = Config { mode: Mode::Strict { seed }, threads: 2, ..Config::with_cards(2) };
        let emulator = Emulator::new(config).expect("the emulator starts");
        let table = emulator.table();
        ok(&table, call!(table, aclInit(null())));
        let (cards, comms) = world(&table, 2);
        let sides: Vec<Side<'_>> = (0..)
            .zip(&cards)
            .zip(comms)
            .map(|((rank, card), comm)| Side::new(&emulator, card, comm, rank, &of))
            .collect();
        on_threads(2, |rank| {
            let side = &sides[rank];
            side.dispatch(&of).expect("is taken");
            let made = side.card.malloc((of.rows() * of.width * 2) as usize);
            side.combine(&of, made).expect("is taken");
            side.card.synchronize();
        });
        assert!(texts(&emulator).is_empty(), "seed {seed}: {:#?}", texts(&emulator));
    }
}
