// The sync with every part in its own process: what lands, and what a corrupted bucket does.
#include <tuple>

#include "tests/multiproc/sync/bodies.h"
#include "tests/multiproc/sync/job.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

TEST(SyncProcesses, EveryModeMeshAndCastLandsByteForByte) {
    for (const auto& [mesh, source, held] : {std::tuple{"1,1", DType::float32, DType::bfloat16},
                                             {"2,1", DType::bfloat16, DType::bfloat16},
                                             {"2,2", DType::float32, DType::bfloat16},
                                             {"2,2", DType::float32, DType::float32}}) {
        EngineProcess engine(source, held);
        for (const Mode mode : {Mode::gather, Mode::direct, Mode::alias, Mode::delta}) {
            SCOPED_TRACE(fmt::format("{} {} {}", mode_name(mode), mesh, dtype_name(held)));
            const comm::LaunchResult end = run({mode, mesh, source}, "push", engine.address());
            EXPECT_EQ(end.exit_code, 0) << end.message;
            const EngineStatus status = engine.status();
            EXPECT_EQ(status.version, 2);
            EXPECT_FALSE(status.refusing);
            EXPECT_EQ(status.in_place, mode == Mode::alias);
            EXPECT_EQ(engine.ask("check 2"), "ok");
            EXPECT_THAT(engine.ask("check 1"), HasSubstr("is not of version 1"));
        }
    }
}

TEST(SyncProcesses, ACorruptedBucketFailsByNameAndTheNextPushSucceeds) {
    EngineProcess engine(DType::float32, DType::bfloat16);
    const comm::LaunchResult end = run({Mode::gather, "2,2"}, "corrupt", engine.address());
    EXPECT_EQ(end.exit_code, 0) << end.message;
    EXPECT_EQ(engine.status().version, 3);
    EXPECT_EQ(engine.ask("check 3"), "ok");
}

}  // namespace
}  // namespace tandem::sync
