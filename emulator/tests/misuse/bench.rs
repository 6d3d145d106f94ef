//! A strict machine of two cards, with handles and buffers on each.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_tp_emulator::{Config, Emulator, Mode};
use ascend_tp_sys::{
    HcclComm, HcclResult, Table, aclDataType, aclFormat, aclOpExecutor, aclScalar, aclTensor, aclrtEvent,
    aclrtStream,
};

use crate::common::*;

pub(crate) trait Code {
    fn number(self) -> i64;
}

impl Code for i32 {
    fn number(self) -> i64 {
        i64::from(self)
    }
}

impl Code for HcclResult {
    fn number(self) -> i64 {
        i64::from(self.0)
    }
}

macro_rules! c {
    ($bench:expr, $name:ident($($arg:expr),* $(,)?)) => {
        $crate::misuse::bench::Code::number($crate::common::call!($bench.table, $name($($arg),*)))
    };
}
pub(crate) use c;

macro_rules! young {
    ($bench:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let function = $bench.table.$name.expect("modelled");
        // SAFETY: valid pointers and handles of this table, or arguments that the function refuses.
        $crate::misuse::bench::Code::number(unsafe { function($($arg),*) })
    }};
}
pub(crate) use young;

/// Returns the code as a number and stores the executor.
macro_rules! plan {
    ($bench:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let (mut bytes, mut executor) = (0_u64, std::ptr::null_mut());
        let code = $crate::misuse::bench::c!($bench, $name($($arg,)* &raw mut bytes, &raw mut executor));
        $bench.planned.replace((bytes, executor));
        code
    }};
}
pub(crate) use plan;

pub(crate) const F32: aclDataType = aclDataType::ACL_FLOAT;

pub(crate) struct Bench<'a> {
    pub(crate) table: &'a Table,
    pub(crate) cards: [Card<'a>; 2],
    pub(crate) buffers: [*mut c_void; 2],
    pub(crate) planned: RefCell<(u64, *mut aclOpExecutor)>,
}

impl<'a> Bench<'a> {
    pub(crate) fn machine() -> Emulator {
        let limit = std::time::Duration::from_secs(1);
        let config = Config {
            mode: Mode::Strict { seed: 1 },
            threads: 2,
            connect_timeout: limit,
            ..Config::with_cards(2)
        };
        Emulator::new(config).expect("the emulator starts")
    }

    pub(crate) fn new(table: &'a Table) -> Self {
        ok(table, call!(table, aclInit(std::ptr::null())));
        let cards = [Card::new(table, 0), Card::new(table, 1)];
        let buffers = [cards[0].upload(&[0; 1024]), cards[1].upload(&[0; 1024])];
        cards[0].enter();
        Self { table, cards, buffers, planned: RefCell::new((0, null_mut())) }
    }

    pub(crate) fn stream(&self) -> aclrtStream {
        self.cards[0].stream
    }

    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        self.buffers[0].wrapping_byte_add(offset)
    }

    pub(crate) fn comms(&self) -> [HcclComm; 2] {
        let mut comms = [null_mut(); 2];
        hccl_ok(self.table, call!(self.table, HcclCommInitAll(2, [0, 1].as_mut_ptr(), comms.as_mut_ptr())));
        self.cards[0].enter();
        comms
    }

    pub(crate) fn event(&self, flags: u32) -> aclrtEvent {
        let mut event = null_mut();
        ok(self.table, call!(self.table, aclrtCreateEventWithFlag(&raw mut event, flags)));
        event
    }

    pub(crate) fn tensor(&self, dtype: aclDataType, dims: &[i64]) -> *mut aclTensor {
        self.tensor_at(dtype, dims, &contiguous(dims), dims, self.buffers[0])
    }

    pub(crate) fn tensor_at(
        &self,
        dtype: aclDataType,
        dims: &[i64],
        strides: &[i64],
        storage: &[i64],
        address: *mut c_void,
    ) -> *mut aclTensor {
        self.formatted(dtype, dims, strides, storage, address, aclFormat::ACL_FORMAT_ND)
    }

    pub(crate) fn formatted(
        &self,
        dtype: aclDataType,
        dims: &[i64],
        strides: &[i64],
        storage: &[i64],
        address: *mut c_void,
        format: aclFormat,
    ) -> *mut aclTensor {
        let (rank, depth) = (dims.len() as u64, storage.len() as u64);
        let (dims, strides, storage) = (dims.as_ptr(), strides.as_ptr(), storage.as_ptr());
        call!(self.table, aclCreateTensor(dims, rank, dtype, strides, 0, format, storage, depth, address))
    }

    pub(crate) fn one(&self) -> *mut aclScalar {
        let mut value = 1.0_f32;
        call!(self.table, aclCreateScalar((&raw mut value).cast(), F32))
    }

    pub(crate) fn silu(&self) -> *mut aclOpExecutor {
        let (x, out) = (self.tensor(F32, &[4]), self.tensor_at(F32, &[4], &[1], &[4], self.at(512)));
        assert_eq!(plan!(self, aclnnSiluGetWorkspaceSize(x, out)), 0, "{}", message(self.table));
        self.planned.borrow().1
    }
}

pub(crate) fn contiguous(dims: &[i64]) -> Vec<i64> {
    (0..dims.len()).map(|dim| dims[dim + 1..].iter().product()).collect()
}
