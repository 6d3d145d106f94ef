// A C++ program with handles owned by objects, which are destroyed in reverse order.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl.h"
#include "hccl.h"

namespace {

void check(int code, const char *call) {
    if (code != 0) {
        const char *message = aclGetRecentErrMsg();
        throw std::runtime_error(std::string(call) + ": " + (message != nullptr ? message : "no message"));
    }
}

struct Runtime {
    Runtime() { check(aclInit(nullptr), "aclInit"); }
    ~Runtime() { (void)aclFinalize(); }
};

struct Device {
    explicit Device(int32_t id) : id(id) { check(aclrtSetDevice(id), "aclrtSetDevice"); }
    ~Device() { (void)aclrtResetDevice(id); }
    int32_t id;
};

struct Free {
    void operator()(void *memory) const { (void)aclrtFree(memory); }
};

std::unique_ptr<void, Free> allocate(size_t bytes) {
    void *memory = nullptr;
    check(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    return std::unique_ptr<void, Free>(memory);
}

}  // namespace

int main() {
    try {
        Runtime runtime;
        Device device(1);
        auto memory = allocate(sizeof(int64_t) * 3);
        std::vector<int64_t> out = {1, -2, 3};
        std::vector<int64_t> in(3);
        const size_t bytes = out.size() * sizeof(int64_t);
        check(aclrtMemcpy(memory.get(), bytes, out.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
        check(aclrtMemcpy(in.data(), bytes, memory.get(), bytes, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
        int32_t devices[] = {0, 1};
        HcclComm comms[2] = {};
        check(HcclCommInitAll(2, devices, comms), "HcclCommInitAll");
        for (HcclComm comm : comms) {
            check(HcclCommDestroy(comm), "HcclCommDestroy");
        }
        if (in != out) {
            throw std::runtime_error("the bytes differ");
        }
        try {
            allocate(0);
            throw std::logic_error("an allocation of no bytes was given");
        } catch (const std::runtime_error &error) {
            if (std::string(error.what()).size() <= sizeof "aclrtMalloc: ") {
                throw std::logic_error("a refusal without a message");
            }
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    std::puts("objects came and went");
    return 0;
}
