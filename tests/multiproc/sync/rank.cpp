#include "tests/multiproc/sync/rank.h"

#include <cstdlib>
#include <sstream>

#include "common/comm/launch.h"
#include "common/error.h"
#include "engine_adapter/connect.h"

namespace tandem::sync {

Mode Rank::mode_of_test() {
    return mode_from_name(setting("TEST_MODE"));
}

Rank::Rank() : world_(comm::connect_from_environment(Deadline::after_ms(20'000))) {
    if (relayed()) two_.emplace();
    world_->set_timeout(2 * std::chrono::milliseconds(std::stoi(setting("TEST_PATIENCE"))));
    std::vector<int> sizes;
    std::istringstream words(setting("TEST_MESH"));
    for (std::string size; std::getline(words, size, ',');) sizes.push_back(std::stoi(size));
    std::vector<std::string> axes{"dp", "cp"};
    axes.resize(sizes.size());
    Placements placements{Shard(0)};
    if (sizes.size() > 1) placements.push_back(Replicate());
    source_ = std::make_unique<ProcessSource>(DeviceMesh::create(world_, sizes, axes), placements,
                                              dtype_from_name(setting("TEST_SOURCE")));
}

void Rank::connect(const std::string& engine, SessionOptions options, Mode mode) {
    session_.reset();
    const std::chrono::milliseconds patience(std::stoi(setting("TEST_PATIENCE")));
    std::unique_ptr<engine::Engine> handle;
    if (world_->rank() == 0) handle = engine::connect(engine, Deadline::after(patience), {.rollback = true});
    options.mode = mode;
    options.bucket_bytes = std::stoul(setting("TEST_BUCKET"));
    options.depth = 2;
    Deadlines& deadlines = options.deadlines;
    deadlines.prepare = deadlines.pause = deadlines.begin = deadlines.load = deadlines.commit = patience;
    deadlines.abort = deadlines.resume = patience / 2;
    deadlines.transfer = 2 * patience;
    session_ = std::make_unique<Session>(world_, *source_, std::move(handle), options);
}

}  // namespace tandem::sync
