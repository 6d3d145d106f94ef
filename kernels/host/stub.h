// What a program calls by `ACLRT_LAUNCH_KERNEL(name)`: the launch that CANN's `ascendc_library` makes for it, through the C
// functions of the library that the program runs on.
#pragma once

#include <dlfcn.h>

#include <mutex>

#include "library.h"

namespace ascend_host {

template <size_t index, class Kernel>
struct ParameterOf;
template <size_t index, class... T>
struct ParameterOf<index, void (*)(T...)> {
    using type = std::tuple_element_t<index, std::tuple<std::remove_const_t<T>...>>;
};

// As the program passes a parameter: an address as `void *`, a structure by its address, 16 bits of a float as an
// integer.
template <size_t index, class Kernel>
struct Stub {
    using Own = typename ParameterOf<index, Kernel>::type;
    static constexpr bool is_narrow = sizeof(Own) == 2 && !std::is_integral_v<Own>;
    using Type = std::conditional_t<std::is_pointer_v<Own> || (std::is_class_v<Own> && !is_narrow), void *,
                                    std::conditional_t<is_narrow, uint16_t, Own>>;
    static std::pair<const void *, size_t> value(const Type &given) {
        if constexpr (std::is_class_v<Own> && !is_narrow) return {given, sizeof(Own)};
        else return {&given, sizeof(Own)};
    }
};

// The functions of AscendCL that a launch takes, from whatever library of it the program has.
struct AscendCl {
    int (*get_device)(int32_t *);
    int (*load)(const char *, void *, void **);
    int (*get_function)(void *, const char *, void **);
    int (*arguments_init)(void *, void **);
    int (*arguments_append)(void *, void *, size_t, void **);
    int (*arguments_finalize)(void *);
    int (*launch)(void *, uint32_t, void *, void *, void *, void *);

    static AscendCl find() {
        const auto named = [](auto &function, const char *name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
            return function != nullptr;
        };
        AscendCl all{};
        const bool is_whole =
            named(all.get_device, "aclrtGetDevice") && named(all.load, "aclrtBinaryLoadFromFile") &&
            named(all.get_function, "aclrtBinaryGetFunction") && named(all.arguments_init, "aclrtKernelArgsInit") &&
            named(all.arguments_append, "aclrtKernelArgsAppend") &&
            named(all.arguments_finalize, "aclrtKernelArgsFinalize") &&
            named(all.launch, "aclrtLaunchKernelWithConfig");
        return is_whole ? all : AscendCl{};
    }
};

// A kernel of this very library as the calling thread's card has it.
inline int function_of(const AscendCl &acl, const char *name, void **function) {
    static std::mutex lock;
    static std::map<int32_t, void *> binaries;
    Dl_info own;
    int32_t card = 0;
    int code = acl.get_device(&card);
    if (code != 0) return code;
    const std::lock_guard<std::mutex> held(lock);
    const auto known = binaries.find(card);
    // A card that was reset has forgotten its binaries.
    if (known != binaries.end() && acl.get_function(known->second, name, function) == 0) return 0;
    if (dladdr(reinterpret_cast<const void *>(&run_entry), &own) == 0) return -1;
    char *path = realpath(own.dli_fname, nullptr);
    if (path == nullptr) return -1;
    void *binary = nullptr;
    code = acl.load(path, nullptr, &binary);
    std::free(path);
    if (code != 0) return code;
    binaries[card] = binary;
    return acl.get_function(binary, name, function);
}

// Gives the code of the first call that fails, -1 where the program has no AscendCL.
inline uint32_t launch_by_name(const char *name, uint32_t blocks, void *stream,
                               const std::vector<std::pair<const void *, size_t>> &values) {
    static const AscendCl acl = AscendCl::find();
    if (acl.launch == nullptr) return uint32_t(-1);
    void *function = nullptr, *arguments = nullptr, *place = nullptr;
    int code = function_of(acl, name, &function);
    if (code == 0) code = acl.arguments_init(function, &arguments);
    for (const auto &[bytes, size] : values)
        if (code == 0) code = acl.arguments_append(arguments, const_cast<void *>(bytes), size, &place);
    if (code == 0) code = acl.arguments_finalize(arguments);
    if (code == 0) code = acl.launch(function, blocks, stream, nullptr, arguments, nullptr);
    return uint32_t(code);
}

}  // namespace ascend_host
