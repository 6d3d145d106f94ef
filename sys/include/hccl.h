/*
 * HCCL as ascend-tp calls it: types and functions of libhccl.so (some in libhcomm.so since CANN 8.5).
 *
 * Written for this project from the binary interface of CANN 8.1.RC1 and 9.x. Valid C11 and C++.
 */
#ifndef ASCEND_TP_HCCL_H
#define ASCEND_TP_HCCL_H

#include "acl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One rank's end of a communicator. */
typedef void *HcclComm;

#define HCCL_ROOT_INFO_BYTES 4108U
#define COMM_NAME_MAX_LENGTH 128U
#define HCCL_COMM_CONFIG_MAGIC_WORD 0xf0f0f0f0U
#define HCCL_COMM_CONFIG_VERSION 11U

/** Status of an HCCL call. */
typedef enum HcclResult {
    HCCL_SUCCESS = 0,
    HCCL_E_PARA = 1,
    HCCL_E_PTR = 2,
    HCCL_E_MEMORY = 3,
    HCCL_E_INTERNAL = 4,
    HCCL_E_NOT_SUPPORT = 5,
    HCCL_E_NOT_FOUND = 6,
    HCCL_E_UNAVAIL = 7,
    HCCL_E_SYSCALL = 8,
    HCCL_E_TIMEOUT = 9,
    HCCL_E_OPEN_FILE_FAILURE = 10,
    HCCL_E_TCP_CONNECT = 11,
    HCCL_E_ROCE_CONNECT = 12,
    HCCL_E_TCP_TRANSFER = 13,
    HCCL_E_ROCE_TRANSFER = 14,
    HCCL_E_RUNTIME = 15,
    HCCL_E_DRV = 16,
    HCCL_E_PROFILING = 17,
    HCCL_E_CCE = 18,
    HCCL_E_NETWORK = 19,
    HCCL_E_AGAIN = 20,
    HCCL_E_REMOTE = 21,
    HCCL_E_SUSPENDING = 22,
    HCCL_E_RESERVED = 1042,
    HCCL_E_OPRETRY_FAIL = 23,
    HCCL_E_OOM = 24,
    HCCL_E_IN_STATUS = 1041,
} HcclResult;

/** Process-wide settings. */
typedef enum HcclConfig {
    HCCL_DETERMINISTIC = 0,
    HCCL_CONFIG_RESERVED = 1,
} HcclConfig;

/** Element types of HCCL. AscendCL numbers its types differently. */
typedef enum HcclDataType {
    HCCL_DATA_TYPE_INT8 = 0,
    HCCL_DATA_TYPE_INT16 = 1,
    HCCL_DATA_TYPE_INT32 = 2,
    HCCL_DATA_TYPE_FP16 = 3,
    HCCL_DATA_TYPE_FP32 = 4,
    HCCL_DATA_TYPE_INT64 = 5,
    HCCL_DATA_TYPE_UINT64 = 6,
    HCCL_DATA_TYPE_UINT8 = 7,
    HCCL_DATA_TYPE_UINT16 = 8,
    HCCL_DATA_TYPE_UINT32 = 9,
    HCCL_DATA_TYPE_FP64 = 10,
    HCCL_DATA_TYPE_BFP16 = 11,
    HCCL_DATA_TYPE_INT128 = 12,
    HCCL_DATA_TYPE_RESERVED = 255,
    HCCL_DATA_TYPE_HIF8 = 14,
    HCCL_DATA_TYPE_FP8E4M3 = 15,
    HCCL_DATA_TYPE_FP8E5M2 = 16,
    HCCL_DATA_TYPE_FP8E8M0 = 17,
} HcclDataType;

/** Reductions. */
typedef enum HcclReduceOp {
    HCCL_REDUCE_SUM = 0,
    HCCL_REDUCE_PROD = 1,
    HCCL_REDUCE_MAX = 2,
    HCCL_REDUCE_MIN = 3,
    HCCL_REDUCE_RESERVED = 255,
} HcclReduceOp;

/** Direction of one item of a batch. */
typedef enum HcclSendRecvType {
    HCCL_SEND = 0,
    HCCL_RECV = 1,
    HCCL_SEND_RECV_RESERVED = 2,
} HcclSendRecvType;

/** Rendezvous of a communicator: opaque bytes that the root creates and sends unchanged to all ranks. */
typedef struct HcclRootInfoDef {
    char internal[4108];
} HcclRootInfo;

/** Settings of a communicator, layout of version 11. `reserved` holds {u64 size, u32 magic, u32 version, u64 0}; the library
 * copies the smaller of that size and its own, and takes a field only if the version has it. */
typedef struct HcclCommConfigDef {
    char reserved[24];
    uint32_t hcclBufferSize;
    uint32_t hcclDeterministic;
    char hcclCommName[128];
    char hcclUdi[128];
    uint32_t hcclOpExpansionMode;
    uint32_t hcclRdmaTrafficClass;
    uint32_t hcclRdmaServiceLevel;
    uint32_t hcclWorldRankID;
    uint64_t hcclJobID;
    uint8_t aclGraphZeroCopyEnable;
    int32_t hcclExecTimeOut;
    char hcclAlgo[1600];
    char hcclRetryEnable[50];
    char hcclRetryParams[128];
    char hcclBufferName[128];
    uint32_t hcclQos;
    uint64_t hcclSymWinMaxMemSizePerRank;
    uint32_t hcclChannelSqDepth;
} HcclCommConfig;

/** Value of a process-wide setting; passed by value. */
typedef union HcclConfigValue {
    int32_t value;
} HcclConfigValue;

/** One send or receive of a batch. */
typedef struct HcclSendRecvItemDef {
    HcclSendRecvType sendRecvType;
    void *buf;
    uint64_t count;
    HcclDataType dataType;
    uint32_t remoteRank;
} HcclSendRecvItem;

/* Communicators */
HcclResult HcclGetRootInfo(HcclRootInfo *root_info);
HcclResult HcclCommInitRootInfo(uint32_t n_ranks, const HcclRootInfo *root_info, uint32_t rank, HcclComm *comm);
HcclResult HcclCommInitRootInfoConfig(uint32_t n_ranks, const HcclRootInfo *root_info, uint32_t rank,
    const HcclCommConfig *config, HcclComm *comm);
HcclResult HcclCommInitAll(uint32_t ndev, int32_t *devices, HcclComm *comms);
HcclResult HcclCommInitClusterInfo(const char *cluster_info, uint32_t rank, HcclComm *comm);
HcclResult HcclCommInitClusterInfoConfig(const char *cluster_info, uint32_t rank, HcclCommConfig *config,
    HcclComm *comm);
HcclResult HcclCreateSubCommConfig(HcclComm *comm, uint32_t rank_num, uint32_t *rank_ids, uint64_t sub_comm_id,
    uint32_t sub_comm_rank_id, HcclCommConfig *config, HcclComm *sub_comm);
HcclResult HcclCommDestroy(HcclComm comm);
HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rank_size);
HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank);
HcclResult HcclGetCommName(HcclComm comm, char *comm_name);
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *async_error);
const char *HcclGetErrorString(HcclResult code);
uint32_t HcclGetCommConfigCapability(void);
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue config_value);
HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue *config_value);
HcclResult HcclCommSuspend(HcclComm comm);
HcclResult HcclCommResume(HcclComm comm);
HcclResult HcclCommSetMemoryRange(HcclComm comm, void *base_vir_ptr, size_t size, size_t alignment, uint64_t flags);
HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void *base_vir_ptr);
HcclResult HcclCommActivateCommMemory(HcclComm comm, void *virtual_ptr, size_t size, size_t offset,
    aclrtDrvMemHandle handle, uint64_t flags);
HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void *virtual_ptr);

/* Collectives */
HcclResult HcclAllReduce(void *send_buf, void *recv_buf, uint64_t count, HcclDataType data_type, HcclReduceOp op,
    HcclComm comm, aclrtStream stream);
HcclResult HcclReduce(void *send_buf, void *recv_buf, uint64_t count, HcclDataType data_type, HcclReduceOp op,
    uint32_t root, HcclComm comm, aclrtStream stream);
HcclResult HcclReduceScatter(void *send_buf, void *recv_buf, uint64_t recv_count, HcclDataType data_type,
    HcclReduceOp op, HcclComm comm, aclrtStream stream);
HcclResult HcclReduceScatterV(void *send_buf, const void *send_counts, const void *send_displs, void *recv_buf,
    uint64_t recv_count, HcclDataType data_type, HcclReduceOp op, HcclComm comm, aclrtStream stream);
HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType data_type, uint32_t root, HcclComm comm,
    aclrtStream stream);
HcclResult HcclScatter(void *send_buf, void *recv_buf, uint64_t recv_count, HcclDataType data_type, uint32_t root,
    HcclComm comm, aclrtStream stream);
HcclResult HcclAllGather(void *send_buf, void *recv_buf, uint64_t send_count, HcclDataType data_type, HcclComm comm,
    aclrtStream stream);
HcclResult HcclAllGatherV(void *send_buf, uint64_t send_count, void *recv_buf, const void *recv_counts,
    const void *recv_displs, HcclDataType data_type, HcclComm comm, aclrtStream stream);
HcclResult HcclAlltoAll(const void *send_buf, uint64_t send_count, HcclDataType send_type, const void *recv_buf,
    uint64_t recv_count, HcclDataType recv_type, HcclComm comm, aclrtStream stream);
HcclResult HcclAlltoAllV(const void *send_buf, const void *send_counts, const void *sdispls, HcclDataType send_type,
    const void *recv_buf, const void *recv_counts, const void *rdispls, HcclDataType recv_type, HcclComm comm,
    aclrtStream stream);
/** @since 9.x */
HcclResult HcclAlltoAllVC(const void *send_buf, const void *send_count_matrix, HcclDataType send_type,
    const void *recv_buf, HcclDataType recv_type, HcclComm comm, aclrtStream stream);
HcclResult HcclSend(void *send_buf, uint64_t count, HcclDataType data_type, uint32_t dest_rank, HcclComm comm,
    aclrtStream stream);
HcclResult HcclRecv(void *recv_buf, uint64_t count, HcclDataType data_type, uint32_t src_rank, HcclComm comm,
    aclrtStream stream);
HcclResult HcclBatchSendRecv(HcclSendRecvItem *send_recv_info, uint32_t item_num, HcclComm comm, aclrtStream stream);
HcclResult HcclBarrier(HcclComm comm, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
