// The ranks of an engine of a model, each with what it holds, for tests.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/model/parameters.h"
#include "sync/plan/engine_layout.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::sync {

struct EngineRanks {
    explicit EngineRanks(const EngineLayout& layout, Device device = {}) {
        for (const auto& held : layout) {
            for (const engine::TensorInfo& tensor : held) bytes += engine::tensor_bytes(tensor);
            targets.push_back(std::make_unique<engine::TestTarget>(held, true, device));
            pointers.push_back(targets.back().get());
        }
    }
    std::vector<std::unique_ptr<engine::TestTarget>> targets;
    std::vector<engine::TestTarget*> pointers;
    std::size_t bytes = 0;
};

// Whole, as a trainer names them.
inline std::vector<engine::TensorInfo> tensors_of(const std::vector<model::ParameterSpec>& model,
                                                  DType dtype) {
    std::vector<engine::TensorInfo> tensors;
    for (const model::ParameterSpec& tensor : model)
        tensors.push_back({tensor.name, tensor.shape, dtype, {}});
    return tensors;
}

}  // namespace tandem::sync
