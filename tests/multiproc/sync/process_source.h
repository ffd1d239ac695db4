// The model of these tests and its values, for ranks and engine alike.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "tests/unit/sync/session/test_source.h"

namespace tandem::sync {

// Uneven rows, tiny tensors, rows and tensors larger than the tests' buckets; about 1.3 million elements.
inline std::vector<engine::TensorInfo> process_tensors(DType dtype) {
    return {{"embed", {2111, 256}, dtype, {}}, {"norm", {7}, dtype, {}},
            {"q", {640, 480}, dtype, {}},      {"one", {1}, dtype, {}},
            {"wide", {3, 50000}, dtype, {}},   {"gate", {971, 311}, dtype, {}},
            {"tail", {5, 2, 3}, dtype, {}}};
}

// A version holds one of a few steps' values, so that a rank need not compute them anew for every push.
constexpr int kSteps = 4;
inline int step_of(std::int64_t version) {
    return static_cast<int>(version % kSteps);
}

// From step to step a few elements of each 32 change, everywhere: a mixture shows, and a delta has work.
inline float process_value(std::size_t t, std::size_t i, int step) {
    return element_value(t, i, step - (step + static_cast<int>(i * 7919 % 32)) % 32);
}

class ProcessSource final : public WeightSource {
  public:
    ProcessSource(const DeviceMesh& mesh, const Placements& placements, DType dtype)
        : source_(process_tensors(dtype), mesh,
                  std::vector<Placements>(process_tensors(dtype).size(), placements), dtype, process_value) {
        for (int step = 0; step < kSteps; ++step) {
            source_.set_step(step);
            auto& copies = steps_.emplace_back();
            for (const NamedTensor& tensor : source_.tensors()) {
                const Span local = tensor.tensor.local().span();
                copies.emplace_back(local.data, local.data + local.bytes);
            }
        }
    }

    void set_version(std::int64_t version) {
        const auto& copies = steps_[static_cast<std::size_t>(step_of(version))];
        for (std::size_t t = 0; t < copies.size(); ++t)
            std::memcpy(source_.tensors()[t].tensor.local().raw(), copies[t].data(), copies[t].size());
    }
    const std::vector<NamedTensor>& tensors() const override { return source_.tensors(); }
    Event ready() const override { return {}; }

  private:
    TestSource source_;
    std::vector<std::vector<std::vector<std::byte>>> steps_;  // [step][tensor]
};

}  // namespace tandem::sync
