// Pinned blocks on their way, over events of our own: which block is taken, and how many are asked whether
// they are free. The functions of CUDA's runtime that staging.cu calls are here; nothing else is linked.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/ops/cuda/staging.cuh"

namespace {

std::set<cudaEvent_t> g_busy;
int g_queries = 0;

}  // namespace

extern "C" {
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = reinterpret_cast<cudaEvent_t>(new char);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete reinterpret_cast<char*>(event);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    ++g_queries;
    return g_busy.count(event) > 0 ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
    return "an error";
}
const char* cudaGetErrorString(cudaError_t) {
    return "as the test says";
}
}

namespace tandem::ops::cuda {
namespace {

const auto kStream = reinterpret_cast<cudaStream_t>(std::uintptr_t{1});
const auto kOther = reinterpret_cast<cudaStream_t>(std::uintptr_t{2});

// As Work::upload does it; the device is the test's own, for blocks are kept for the process.
cudaEvent_t upload(int device, cudaStream_t stream, std::size_t bytes = 1000) {
    std::unique_ptr<StagingBlock> block = take_staging(device, stream, bytes);
    EXPECT_GE(block->memory.bytes(), bytes);
    const cudaEvent_t event = block->used;
    g_busy.insert(event);
    give_back(std::move(block));
    return event;
}

TEST(Staging, AsksOneBlockHoweverManyAreOnTheirWay) {
    for (int i = 0; i < 200; ++i) upload(0, kStream);
    g_queries = 0;
    upload(0, kStream);
    EXPECT_EQ(g_queries, 1);
}

TEST(Staging, TheOldestIsUsedAgainFirst) {
    std::vector<cudaEvent_t> events;
    for (int i = 0; i < 50; ++i) events.push_back(upload(1, kStream));
    g_queries = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {  // the GPU follows, one behind the other
        g_busy.erase(events[i]);
        EXPECT_EQ(upload(1, kStream), events[i]);
    }
    EXPECT_EQ(g_queries, 50);
}

// A stream that stands still does not make another one's uploads take new memory each.
TEST(Staging, AStreamThatStandsStillHoldsNobodyElseUp) {
    for (int i = 0; i < 3; ++i) upload(2, kStream);
    const cudaEvent_t first = upload(2, kOther);
    for (int i = 0; i < 20; ++i) {
        g_busy.erase(first);
        EXPECT_EQ(upload(2, kOther), first);
    }
}

TEST(Staging, TheSmallestThatWillDoIsTaken) {
    const cudaEvent_t large = upload(3, kStream, 1 << 20), small = upload(3, kStream, 1000);
    EXPECT_NE(large, small);
    g_busy.clear();
    EXPECT_EQ(upload(3, kStream, 1000), small);
    EXPECT_EQ(upload(3, kStream, 1000), large);  // the small one is on its way
}

}  // namespace
}  // namespace tandem::ops::cuda
