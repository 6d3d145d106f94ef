// Loads and stores of a kernel through `__gm__` pointers, without a GlobalTensor.
//
// A card's scalar unit does them, so they are checked and counted like GetValue and SetValue of global memory. The
// kernel's source is compiled with the instrumentation of the thread sanitizer, which calls a function before each
// access; those functions are defined here, and no sanitizer is linked. The card's memory may be at another place of
// this host than its address says. A page at the address then takes the bytes before a load, and gives them back after
// a store: at the latest when the core's next operation begins.
#pragma once

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tensor.h"

namespace ascend_host {

// A loop without any call of the operator API has to end too.
constexpr uint64_t MAX_BARE = 400'000'000;

// Pages of host memory that this launch touched, so that they are not looked up again.
struct HostPages {
    std::array<uint64_t, 256> pages{};
    uint64_t launch = 0;
};

ASCEND_HOST_PLAIN inline uint64_t page_of(const uint8_t *place) { return uint64_t(place) / page_bytes(); }

// Makes a page at the kernel's address accessible.
ASCEND_HOST_PLAIN inline void open_page(Launch &launch, const Use &use, uint64_t page) {
    for (const uint64_t known : launch.mirrored)
        if (known == page) return;
    if (mprotect(reinterpret_cast<void *>(page * page_bytes()), page_bytes(), PROT_READ | PROT_WRITE) != 0)
        current->fail(use, "range", "an address that this host can make accessible", text("page ", page));
    launch.mirrored.push_back(page);
}

// Whether the page may be read: an address of nothing would end the process.
ASCEND_HOST_PLAIN inline bool is_readable(const uint8_t *place) {
    uint8_t byte;
    const iovec own{&byte, 1}, there{const_cast<uint8_t *>(place), 1};
    return process_vm_readv(getpid(), &own, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

// The region of an address, or null for memory of this host.
ASCEND_HOST_PLAIN inline Region *bare_region(Launch &launch, const Use &use, const uint8_t *place, uint64_t bytes) {
    for (Region &region : launch.regions)
        if (place >= region.base && place < region.base + region.bytes) return &launch.find(use, place, bytes);
    static thread_local HostPages known;
    if (known.launch != launch.number) known.pages = {}, known.launch = launch.number;
    // Page 0 is no page of this host, and an empty slot.
    uint64_t &slot = known.pages[page_of(place) % known.pages.size()];
    if (slot == page_of(place) && slot != 0) return nullptr;
    const bool is_mirrored = std::find(launch.mirrored.begin(), launch.mirrored.end(), page_of(place)) !=
                             launch.mirrored.end();
    std::string why;
    Region *found = launch.learn(place, why);
    if (found != nullptr || is_mirrored || !is_readable(place)) return &launch.find(use, place, bytes);
    slot = page_of(place);
    return nullptr;
}

// The kernel is about to load or store `bytes` bytes.
ASCEND_HOST_PLAIN inline void look_at(Core &core, const uint8_t *place, uint64_t bytes, bool is_write) {
    Launch &launch = *core.launch;
    const Use use{is_write ? "store" : "load", "through a `__gm__` pointer", core.last};
    if (bare_region(launch, use, place, bytes) == nullptr) return;
    if (++core.bare_accesses > MAX_BARE) core.fail(use, "end", "a kernel that ends", text(MAX_BARE, " accesses"));
    --core.calls;
    const uint32_t time = core.begin(use, PIPE_S, is_write ? SCALAR_STORE_CYCLES : SCALAR_LOAD_CYCLES);
    if (!is_write) launch.check_scalar_cache(use, place, bytes);
    uint8_t *here = launch.access(use, PIPE_S, time, place, bytes, is_write, false);
    ++(is_write ? launch.counts.bare_stores : launch.counts.bare_loads);
    if (here == place) return;
    for (uint64_t page = page_of(place); page <= page_of(place + bytes - 1); ++page) open_page(launch, use, page);
    auto *mirror = const_cast<uint8_t *>(place);
    std::memcpy(mirror, here, bytes);
    if (is_write) core.pending_from = mirror, core.pending_to = here, core.pending_bytes = bytes;
}

ASCEND_HOST_PLAIN inline void bare(const void *address, uint64_t bytes, bool is_write) {
    Core *core = current;
    if (core == nullptr || core->is_inside) return;
    core->settle();
    const auto *place = static_cast<const uint8_t *>(address);
    // No function is called here: its own accesses would come back to this one.
    if (uint64_t(place) - uint64_t(core->ub_begin) < UB_BYTES ||
        uint64_t(place) - uint64_t(core->stack_begin) < core->stack_bytes)
        return;
    core->is_inside = true;
    {
        std::exception_ptr why;
        try {
            look_at(*core, place, bytes, is_write);
        } catch (...) {
            why = std::current_exception();
        }
        if (why) core->launch->abandon(why);
    }
    core->is_inside = false;
}

}  // namespace ascend_host

#ifdef ASCEND_HOST_INSTRUMENTED
// What an instrumented source calls. Ordinary code of the same library calls them too, and is told apart by address.
#define ASCEND_HOST_HOOK(NAME, BYTES, IS_WRITE)                                           \
    extern "C" __attribute__((weak)) ASCEND_HOST_PLAIN void __tsan_##NAME(void *place) { \
        ascend_host::bare(place, BYTES, IS_WRITE);                                        \
    }
#define ASCEND_HOST_HOOKS(BYTES)                             \
    ASCEND_HOST_HOOK(read##BYTES, BYTES, false)              \
    ASCEND_HOST_HOOK(write##BYTES, BYTES, true)              \
    ASCEND_HOST_HOOK(unaligned_read##BYTES, BYTES, false)    \
    ASCEND_HOST_HOOK(unaligned_write##BYTES, BYTES, true)    \
    ASCEND_HOST_HOOK(volatile_read##BYTES, BYTES, false)     \
    ASCEND_HOST_HOOK(volatile_write##BYTES, BYTES, true)     \
    ASCEND_HOST_HOOK(unaligned_volatile_read##BYTES, BYTES, false) \
    ASCEND_HOST_HOOK(unaligned_volatile_write##BYTES, BYTES, true)
ASCEND_HOST_HOOKS(1)
ASCEND_HOST_HOOKS(2)
ASCEND_HOST_HOOKS(4)
ASCEND_HOST_HOOKS(8)
ASCEND_HOST_HOOKS(16)
#undef ASCEND_HOST_HOOKS
#undef ASCEND_HOST_HOOK

#define ASCEND_HOST_HOOK extern "C" __attribute__((weak)) ASCEND_HOST_PLAIN
ASCEND_HOST_HOOK void __tsan_read_range(void *place, size_t bytes) { ascend_host::bare(place, bytes, false); }
ASCEND_HOST_HOOK void __tsan_write_range(void *place, size_t bytes) { ascend_host::bare(place, bytes, true); }
ASCEND_HOST_HOOK void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    ascend_host::bare(from, bytes, false), ascend_host::bare(to, bytes, true);
    return std::memcpy(to, from, bytes);
}
ASCEND_HOST_HOOK void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    ascend_host::bare(from, bytes, false), ascend_host::bare(to, bytes, true);
    return std::memmove(to, from, bytes);
}
ASCEND_HOST_HOOK void *__tsan_memset(void *to, int value, size_t bytes) {
    ascend_host::bare(to, bytes, true);
    return std::memset(to, value, bytes);
}
// Of the standard library: guards of static variables and counts of references.
#define ASCEND_HOST_ATOMIC(BITS, TYPE)                                                                           \
    ASCEND_HOST_HOOK TYPE __tsan_atomic##BITS##_load(const volatile TYPE *place, int) {                          \
        return __atomic_load_n(place, __ATOMIC_SEQ_CST);                                                         \
    }                                                                                                            \
    ASCEND_HOST_HOOK void __tsan_atomic##BITS##_store(volatile TYPE *place, TYPE value, int) {                   \
        __atomic_store_n(place, value, __ATOMIC_SEQ_CST);                                                        \
    }                                                                                                            \
    ASCEND_HOST_HOOK TYPE __tsan_atomic##BITS##_exchange(volatile TYPE *place, TYPE value, int) {                \
        return __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST);                                              \
    }                                                                                                            \
    ASCEND_HOST_HOOK TYPE __tsan_atomic##BITS##_fetch_add(volatile TYPE *place, TYPE value, int) {               \
        return __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);                                               \
    }                                                                                                            \
    ASCEND_HOST_HOOK TYPE __tsan_atomic##BITS##_fetch_sub(volatile TYPE *place, TYPE value, int) {               \
        return __atomic_fetch_sub(place, value, __ATOMIC_SEQ_CST);                                               \
    }                                                                                                            \
    ASCEND_HOST_HOOK TYPE __tsan_atomic##BITS##_fetch_or(volatile TYPE *place, TYPE value, int) {                \
        return __atomic_fetch_or(place, value, __ATOMIC_SEQ_CST);                                                \
    }                                                                                                            \
    ASCEND_HOST_HOOK int __tsan_atomic##BITS##_compare_exchange_strong(volatile TYPE *place, TYPE *expected,     \
                                                                      TYPE value, int, int) {                    \
        return __atomic_compare_exchange_n(place, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
    }
ASCEND_HOST_ATOMIC(8, char)
ASCEND_HOST_ATOMIC(16, short)
ASCEND_HOST_ATOMIC(32, int)
ASCEND_HOST_ATOMIC(64, long)
#undef ASCEND_HOST_ATOMIC
ASCEND_HOST_HOOK void __tsan_init() {}
ASCEND_HOST_HOOK void __tsan_func_entry(void *) {}
ASCEND_HOST_HOOK void __tsan_func_exit() {}
ASCEND_HOST_HOOK void __tsan_vptr_update(void **, void *) {}
ASCEND_HOST_HOOK void __tsan_vptr_read(void **) {}
#undef ASCEND_HOST_HOOK
#endif
