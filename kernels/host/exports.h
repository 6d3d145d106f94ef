// The one function that a library of kernels exports; included by one file of it.
#pragma once

#include "library.h"

const AscendHostKernels *ascend_host_kernels_1() {
    static const std::vector<AscendHostEntry> entries = [] {
        std::vector<AscendHostEntry> all;
        for (const ascend_host::Entry &entry : ascend_host::entries())
            all.push_back({entry.name.c_str(), entry.parameters.data(), entry.parameters.size()});
        return all;
    }();
    static const AscendHostKernels kernels{entries.data(), entries.size(), ascend_host::run_entry};
    return &kernels;
}
