/* An operator of each family that only other people's programs call. */
#include "check.h"

static aclrtStream stream = NULL;

#define RUN(operator, ...)                                                     \
    do {                                                                       \
        uint64_t bytes = 0;                                                    \
        aclOpExecutor *executor = NULL;                                        \
        void *workspace = NULL;                                                \
        CHECK(operator##GetWorkspaceSize(__VA_ARGS__, &bytes, &executor));     \
        if (bytes > 0) {                                                       \
            CHECK(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));  \
        }                                                                      \
        CHECK(operator(workspace, bytes, executor, stream));                   \
        CHECK(aclrtSynchronizeStream(stream));                                 \
        if (workspace != NULL) {                                               \
            CHECK(aclrtFree(workspace));                                       \
        }                                                                      \
    } while (0)

static aclTensor *tensor(void *device, aclDataType type, int rank, const int64_t *dims) {
    aclTensor *made = aclCreateTensor(dims, (uint64_t)rank, type, NULL, 0, ACL_FORMAT_ND, dims, (uint64_t)rank, device);
    EXPECT(made != NULL);
    return made;
}

#define TENSOR(device, type, ...) \
    tensor(device, type, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

/* Device memory of 16-bit words. */
static void *words(size_t count, uint16_t word) {
    void *device = NULL;
    uint16_t *host = (uint16_t *)malloc(count * sizeof(word));
    EXPECT(host != NULL);
    for (size_t i = 0; i < count; i++) {
        host[i] = word;
    }
    CHECK(aclrtMalloc(&device, count * sizeof(word), ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(device, count * sizeof(word), host, count * sizeof(word), ACL_MEMCPY_HOST_TO_DEVICE));
    free(host);
    return device;
}

static void expect_words(const void *device, size_t count, uint16_t word) {
    uint16_t host[64];
    EXPECT(count <= 64);
    CHECK(aclrtMemcpy(host, count * sizeof(word), device, count * sizeof(word), ACL_MEMCPY_DEVICE_TO_HOST));
    for (size_t i = 0; i < count; i++) {
        EXPECT(host[i] == word);
    }
}

/* 32-bit integers on the device. */
static void *integers(size_t count, const int32_t *values) {
    void *device = NULL;
    CHECK(aclrtMalloc(&device, count * sizeof(int32_t), ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(device, count * sizeof(int32_t), values, count * sizeof(int32_t), ACL_MEMCPY_HOST_TO_DEVICE));
    return device;
}

static void attention(void) {
    char layout[] = "BSND";
    float *q = filled(32, 0.5F), *k = filled(32, 0.25F), *v = filled(32, 3.0F), *out = filled(32, 0.0F);
    float *max = filled(64, 0.0F), *sum = filled(64, 0.0F);
    RUN(aclnnFlashAttentionScoreV3, TENSOR(q, ACL_FLOAT, 1, 4, 2, 4), TENSOR(k, ACL_FLOAT, 1, 4, 2, 4),
        TENSOR(v, ACL_FLOAT, 1, 4, 2, 4), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.5, 1.0, 65536, 65536, 2, layout,
        0, 0, 1, TENSOR(max, ACL_FLOAT, 1, 2, 4, 8), TENSOR(sum, ACL_FLOAT, 1, 2, 4, 8), NULL,
        TENSOR(out, ACL_FLOAT, 1, 4, 2, 4));
    expect_filled(out, 32, 3.0F);
    expect_filled(sum, 64, 4.0F);

    /* 1 as BFLOAT16 is 0x3F80; keys of 0 leave the state. */
    const int32_t lengths[] = {2};
    void *result = words(4, 0), *last = words(4, 0);
    RUN(aclnnChunkGatedDeltaRule, TENSOR(words(4, 0x3F80), ACL_BF16, 2, 1, 2), TENSOR(words(4, 0), ACL_BF16, 2, 1, 2),
        TENSOR(words(4, 0x3F80), ACL_BF16, 2, 1, 2), TENSOR(words(2, 0x3F80), ACL_BF16, 2, 1),
        TENSOR(words(4, 0x3F80), ACL_BF16, 1, 1, 2, 2), TENSOR(integers(1, lengths), ACL_INT32, 1), NULL, 1.0F,
        TENSOR(result, ACL_BF16, 2, 1, 2), TENSOR(last, ACL_BF16, 1, 1, 2, 2));
    expect_words(result, 4, 0x4000);
    expect_words(last, 4, 0x3F80);

    char mode[] = "Norm";
    const int32_t tables[] = {1}, lens[] = {2};
    void *keys = words(8, 0), *values = words(8, 0);
    RUN(aclnnGatherPaKvCache, TENSOR(words(16, 7), ACL_FLOAT16, 2, 2, 1, 4), TENSOR(words(16, 9), ACL_FLOAT16, 2, 2, 1, 4),
        TENSOR(integers(1, tables), ACL_INT32, 1, 1), TENSOR(integers(1, lens), ACL_INT32, 1),
        TENSOR(keys, ACL_FLOAT16, 2, 1, 4), TENSOR(values, ACL_FLOAT16, 2, 1, 4), NULL, mode, false);
    expect_words(keys, 8, 7);
    expect_words(values, 8, 9);
}

static void experts(void) {
    const int32_t chosen[] = {1, 0, 1, 0}, rows[] = {9, 9, 9, 9}, ones[] = {0x01010101};
    float *x = filled(4, 5.0F), *out = filled(8, 0.0F);
    void *places = integers(4, rows);
    RUN(aclnnMoeInitRoutingV3, TENSOR(x, ACL_FLOAT, 2, 2), TENSOR(integers(4, chosen), ACL_INT32, 2, 2), NULL, NULL, -1, 0,
        2, 0, 0, false, -1, NULL, 0, TENSOR(out, ACL_FLOAT, 4, 2), TENSOR(places, ACL_INT32, 4), NULL, NULL);
    expect_filled(out, 8, 5.0F);
    int32_t found[4];
    CHECK(aclrtMemcpy(found, sizeof(found), places, sizeof(found), ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(found[0] == 2 && found[1] == 0 && found[2] == 3 && found[3] == 1);

    float *permuted = filled(8, 0.0F);
    RUN(aclnnMoeTokenPermuteWithRoutingMap, TENSOR(x, ACL_FLOAT, 2, 2), TENSOR(integers(1, ones), ACL_BOOL, 2, 2), NULL, 4,
        false, TENSOR(permuted, ACL_FLOAT, 4, 2), NULL, TENSOR(places, ACL_INT32, 4));
    expect_filled(permuted, 8, 5.0F);
    float *sums = filled(4, 0.0F);
    RUN(aclnnMoeInitRoutingV2Grad, TENSOR(permuted, ACL_FLOAT, 4, 2), TENSOR(places, ACL_INT32, 4), 2, 0, 0,
        TENSOR(sums, ACL_FLOAT, 2, 2));
    expect_filled(sums, 4, 10.0F);
}

static void samples(void) {
    const int64_t border[] = {1, 1, 1, 1};
    float *x = filled(4, 5.0F), *wide = filled(16, 0.0F), *y = filled(4, 0.0F);
    aclIntArray *padding = aclCreateIntArray(border, 4);
    RUN(aclnnCircularPad2d, TENSOR(x, ACL_FLOAT, 1, 2, 2), padding, TENSOR(wide, ACL_FLOAT, 1, 4, 4));
    expect_filled(wide, 16, 5.0F);
    RUN(aclnnGlobalAveragePool, TENSOR(x, ACL_FLOAT, 1, 1, 4), TENSOR(y, ACL_FLOAT, 1, 1, 1));
    expect_filled(y, 1, 5.0F);
    RUN(aclnnLgamma, TENSOR(filled(4, 1.0F), ACL_FLOAT, 4), TENSOR(y, ACL_FLOAT, 4));
    expect_filled(y, 4, 0.0F);
    const aclTensor *factors[] = {TENSOR(x, ACL_FLOAT, 2, 2), TENSOR(filled(4, 2.0F), ACL_FLOAT, 2, 2)};
    RUN(aclnnEinsum, aclCreateTensorList(factors, 2), "ij,jk->ik", TENSOR(y, ACL_FLOAT, 2, 2));
    expect_filled(y, 4, 20.0F);
}

int main(void) {
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    attention();
    experts();
    samples();
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf("the families ran\n");
    return 0;
}
