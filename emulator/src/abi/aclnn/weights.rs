//! Sizes of a matrix in `FRACTAL_NZ` format.

use ascend_tp_emulator_operators::dtype::AclType;
use ascend_tp_emulator_operators::fractal::{FRACTAL_NZ, Fractal};
use ascend_tp_sys::{aclDataType, aclIntArray, aclTensor};

use super::objects::give_array;
use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::machine::Machine;

fn blocks(name: &str, data_type: i32, dims: &[i64], most: usize) -> Result<Fractal, Failure> {
    let dims_of = || {
        dims.iter().map(|&dim| usize::try_from(dim).ok().filter(|&dim| dim > 0)).collect::<Option<Vec<_>>>()
    };
    let legal = (2..=most).contains(&dims.len());
    let found =
        dims_of().filter(|_| legal).and_then(|dims| Fractal::of(AclType::from_acl(data_type)?, &dims));
    found.ok_or_else(|| {
        let what = format!(
            "{name}: expected 2 to {most} dims of at least 1 of FLOAT16 (1), BFLOAT16 (27) or INT8 (2), found {dims:?} of \
             aclDataType {data_type}"
        );
        Failure::new(code::PARAM_INVALID_ACLNN, what)
    })
}

impl Machine {
    pub(in crate::abi) fn aclnnCalculateMatmulWeightSize(
        &self,
        tensor_shape: *const aclIntArray,
        weight_tensor_size: Out<u64>,
    ) -> Result<(), Failure> {
        let dims = self.aclnn().lock().ints("tensorShape", tensor_shape)?.to_vec();
        let fractal = blocks("tensorShape", aclDataType::ACL_FLOAT16.0, &dims, 3)?;
        weight_tensor_size.set("weightTensorSize", fractal.storage_len() as u64)
    }

    pub(in crate::abi) fn aclnnCalculateMatmulWeightSizeV2(
        &self,
        tensor_shape: *const aclIntArray,
        data_type: aclDataType,
        weight_tensor_size: Out<u64>,
    ) -> Result<(), Failure> {
        let dims = self.aclnn().lock().ints("tensorShape", tensor_shape)?.to_vec();
        let fractal = blocks("tensorShape", data_type.0, &dims, 6)?;
        weight_tensor_size.set("weightTensorSize", fractal.storage_len() as u64)
    }

    pub(in crate::abi) unsafe fn aclnnNpuFormatCastCalculateSizeAndFormat(
        &self,
        src_tensor: *const aclTensor,
        dst_format: i32,
        additional_dtype: i32,
        dst_shape: Out<*mut i64>,
        dst_shape_size: Out<u64>,
        actual_format: Out<i32>,
    ) -> Result<(), Failure> {
        let source = self.aclnn().lock().tensor("srcTensor", src_tensor)?.clone();
        let invalid = |what: String| Err(Failure::new(code::PARAM_INVALID_ACLNN, what));
        if dst_format != FRACTAL_NZ {
            return invalid(format!("dstFormat: expected FRACTAL_NZ ({FRACTAL_NZ}), found {dst_format}"));
        }
        if additional_dtype != -1 && additional_dtype != source.dtype {
            let own = source.dtype;
            return invalid(format!(
                "additionalDtype: expected the type of srcTensor ({own}) or -1, found {additional_dtype}"
            ));
        }
        let fractal = blocks("srcTensor", source.dtype, &source.dims, 6)?;
        let mut shape = source.dims[..source.dims.len() - 2].to_vec();
        shape.extend(fractal.storage().map(|extent| extent as i64));
        actual_format.set("actualFormat", FRACTAL_NZ)?;
        // SAFETY: the C caller passes valid places.
        unsafe { give_array(&shape, "dstShape", dst_shape, dst_shape_size) }
    }
}
