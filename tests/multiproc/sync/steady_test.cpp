// Many syncs in a row: what they use must not grow.
#include "tests/multiproc/sync/bodies.h"
#include "tests/multiproc/sync/job.h"

namespace tandem::sync {
namespace {

TEST(Steady, TwoThousandSyncsKeepMemoryDescriptorsAndSharedMemoryFlat) {
    EngineProcess engine(DType::float32, DType::bfloat16);
    const comm::LaunchResult end = run({}, "many", engine.address(),
                                       {"TEST_MANY=500", "TEST_ENGINE_PID=" + std::to_string(engine.pid())});
    EXPECT_EQ(end.exit_code, 0) << end.message;
    EXPECT_EQ(engine.status().version, 2000);
    EXPECT_EQ(engine.whole_or_refusing(), "ok");
    expect_released(engine);
}

}  // namespace
}  // namespace tandem::sync
