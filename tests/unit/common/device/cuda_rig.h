// The CUDA device layer over a fake driver that a test sets and reads.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/device/cuda/driver.h"
#include "tests/unit/common/device/fake_driver.h"

namespace tandem {

using testing::FakeDriver;

inline const Device kGpu{DeviceType::cuda, 0};

class Cuda : public ::testing::Test {
  protected:
    Cuda() {
        fake = FakeDriver{};
        cuda::replace_driver(fake.table());
    }
    ~Cuda() override { cuda::replace_driver(nullptr, "the test is over"); }

    template <typename Error, typename Work>
    static std::string message(Work&& work) {
        try {
            work();
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing was thrown";
    }
    void again() { cuda::replace_driver(fake.table()); }

    FakeDriver& fake = FakeDriver::get();
};

}  // namespace tandem
