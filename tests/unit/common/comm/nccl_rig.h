// The nccl backend on an emulated GPU over a table of NCCL's functions of our own (fake_nccl.h).
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <memory>

#include "common/comm/launch.h"
#include "common/comm/nccl/communicator.h"
#include "tests/unit/common/comm/fake_nccl.h"

namespace tandem::comm::nccl {

using World = std::shared_ptr<Communicator>;

inline const Device kGpu{DeviceType::cuda, 0};

// `body` on each of `size` ranks.
inline void run(int size, const std::function<void(const World& world)>& body) {
    run_threads(size, [&](const World& host) {
        const Stream compute = Stream::make_compute(kGpu);
        body(make_world(host, kGpu, fake::api()));
    });
}

class Nccl : public ::testing::Test {
  protected:
    void SetUp() override { fake::reset(); }
    void TearDown() override { EXPECT_EQ(fake::alive(), 0); }
};

}  // namespace tandem::comm::nccl
