#include "common/ops/cuda/staging.cuh"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "common/ops/cuda/check.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr std::size_t kSmallest = 64 << 10;

struct Kept {
    std::mutex mutex;
    std::list<std::unique_ptr<StagingBlock>> blocks;
};

// Never destroyed: at the end of the process the driver may be gone before it.
Kept& kept() {
    static Kept* const instance = new Kept;
    return *instance;
}

std::size_t rounded(std::size_t bytes) {
    std::size_t size = kSmallest;
    while (size < bytes) size *= 2;
    return size;
}

// A stream is done with its blocks in the order in which they were given back: if the oldest of a size is
// busy, so are the others, which are not asked.
std::unique_ptr<StagingBlock> take_free(int device, std::size_t bytes) {
    Kept& all = kept();
    const std::lock_guard lock(all.mutex);
    std::vector<std::pair<std::size_t, cudaStream_t>> busy;
    for (auto at = all.blocks.begin(); at != all.blocks.end(); ++at) {
        const std::pair kind((*at)->memory.bytes(), (*at)->stream);
        if ((*at)->device != device || kind.first < bytes) continue;
        if (std::find(busy.begin(), busy.end(), kind) != busy.end()) continue;
        if (cudaEventQuery((*at)->used) != cudaSuccess) {
            cudaGetLastError();  // "not ready" must not be the next call's error
            busy.push_back(kind);
            continue;
        }
        std::unique_ptr<StagingBlock> block = std::move(*at);
        all.blocks.erase(at);
        return block;
    }
    return nullptr;
}

}  // namespace

StagingBlock::StagingBlock(std::size_t bytes, int device_in)
    : device(device_in), memory(bytes, "ops staging", pinned_pool()) {
    check("ops staging", "cudaEventCreateWithFlags", cudaEventCreateWithFlags(&used, cudaEventDisableTiming));
}

StagingBlock::~StagingBlock() {
    if (used != nullptr) cudaEventDestroy(used);
}

std::unique_ptr<StagingBlock> take_staging(int device, cudaStream_t stream, std::size_t bytes) {
    std::unique_ptr<StagingBlock> block = take_free(device, bytes);
    if (!block) block = std::make_unique<StagingBlock>(rounded(bytes), device);
    block->stream = stream;
    return block;
}

void give_back(std::unique_ptr<StagingBlock> block) {
    Kept& all = kept();
    const std::lock_guard lock(all.mutex);
    const auto larger = std::find_if(all.blocks.begin(), all.blocks.end(), [&](const auto& other) {
        return other->memory.bytes() > block->memory.bytes();
    });
    all.blocks.insert(larger,
                      std::move(block));  // the smallest that will do is found first, the oldest of it
}

}  // namespace tandem::ops::cuda
