// What the benches of one GPU share: their arguments, and what they do without a GPU.
#pragma once

#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/device/devices.h"
#include "common/error.h"
#include "tests/emulated_gpu/emulated.h"

namespace tandem {

// What a bench measures on. Small: sizes for a rehearsal, which the emulated GPU takes too; its figures mean
// nothing, and the result says which GPU it was.
struct GpuBench {
    Device gpu;
    DeviceInfo info;
    bool small = false;
};

// main of `NAME [--small] [--out FILE.json]`: measures on the first GPU and writes what `measure` returns.
// Exit codes: 2 for bad usage and without a real GPU, 1 for any other error.
inline int run_gpu_bench(const std::string& name, int count, char** arguments,
                         const std::function<nlohmann::json(const GpuBench&)>& measure) {
    std::string out;
    bool small = false;
    for (int i = 1; i < count; ++i) {
        const std::string argument = arguments[i];
        if (argument == "--small") {
            small = true;
        } else if (argument == "--out" && i + 1 < count) {
            out = arguments[++i];
        } else {
            const bool asked = argument == "--help";
            (asked ? std::cout : std::cerr) << "usage: " << name << " [--small] [--out FILE.json]\n";
            return asked ? 0 : 2;
        }
    }
    try {
        const Device gpu{DeviceType::cuda, 0};
        require_device(gpu);
        const DeviceInfo info = device_info(gpu);
        if (is_emulated(gpu) && !small)
            throw DeviceUnavailable(
                "the first GPU is emulated (TANDEM_EMULATED_GPUS): nothing to measure (--small rehearses)");
        const nlohmann::json result = measure({gpu, info, small});
        if (!out.empty()) std::ofstream(out) << result.dump(1) << "\n";
        return 0;
    } catch (const DeviceUnavailable& error) {
        std::cerr << name << ": " << error.what() << "\n";
        return 2;
    } catch (const std::exception& error) {
        std::cerr << name << ": " << error.what() << "\n";
        return 1;
    }
}

}  // namespace tandem
