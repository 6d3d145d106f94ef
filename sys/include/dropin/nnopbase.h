/*
 * Functions of libnnopbase.so that the emulator answers and ascend-tp never calls: the table has no field for
 * them. A function that ascend-tp begins to call moves to ../.
 *
 * Written for this project from the binary interface of CANN 8.1.RC1 and 9.x. Valid C11 and C++.
 */
#ifndef ASCEND_TP_DROPIN_NNOPBASE_H
#define ASCEND_TP_DROPIN_NNOPBASE_H

#include "../nnopbase.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors, scalars, arrays */
aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *view_dims, uint64_t view_dims_num, aclDataType data_type,
    const int64_t *stride, int64_t offset, aclFormat format, const int64_t *storage_dims, uint64_t storage_dims_num,
    void *tensor_data_addr);
aclScalarList *aclCreateScalarList(const aclScalar * const *value, uint64_t size);
aclnnStatus aclDestroyScalarList(const aclScalarList *array);
aclnnStatus aclGetScalarListSize(const aclScalarList *scalar_list, uint64_t *size);

#ifdef __cplusplus
}
#endif

#endif
