// In a program of which ops take the device for a Hopper.
#include <gtest/gtest.h>

#include "tests/support/kernels_on_host_bulk.h"

namespace tandem::tests {
namespace {

class AsHopper : public ::testing::Environment {
  public:
    void SetUp() override { fibers::set_as_hopper(true); }
};
const ::testing::Environment* const as_hopper = ::testing::AddGlobalTestEnvironment(new AsHopper);

}  // namespace
}  // namespace tandem::tests
