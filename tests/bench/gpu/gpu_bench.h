// What the benches of one GPU share: their arguments, and what they do without a GPU.
#pragma once

#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/device/devices.h"
#include "common/error.h"

namespace tandem {

// main of `NAME [--out FILE.json]`: measures on the first GPU and writes what `measure` returns. Exit codes:
// 2 without a real GPU, 1 for any other error.
inline int run_gpu_bench(const std::string& name, int count, char** arguments,
                         const std::function<nlohmann::json(Device, const DeviceInfo&)>& measure) {
    std::string out;
    if (count == 3 && std::string(arguments[1]) == "--out") {
        out = arguments[2];
    } else if (count != 1) {
        std::cerr << "usage: " << name << " [--out FILE.json]\n";
        return 2;
    }
    try {
        const Device gpu{DeviceType::cuda, 0};
        require_device(gpu);
        const DeviceInfo info = device_info(gpu);
        if (info.emulated)
            throw DeviceUnavailable("the first GPU is emulated (TANDEM_EMULATED_GPUS): nothing to measure");
        const nlohmann::json result = measure(gpu, info);
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
