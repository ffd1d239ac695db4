#include "tests/multiproc/sync/bodies.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/comm/launch.h"
#include "engine_adapter/receiver/client.h"
#include "sync/session/session.h"
#include "tests/multiproc/sync/engine_process.h"
#include "tests/unit/sync/test_source.h"

namespace tandem::sync {
namespace {

std::string setting(const char* name) {
    const char* value = std::getenv(name);
    require(value != nullptr, "the test did not set {}", name);
    return value;
}

class Rank {
  public:
    explicit Rank(SessionOptions options = {})
        : world_(comm::connect_from_environment(Deadline::after_ms(20'000))) {
        world_->set_timeout(std::chrono::milliseconds(10'000));
        std::vector<int> sizes;
        std::istringstream words(setting("TEST_MESH"));
        for (std::string size; std::getline(words, size, ',');) sizes.push_back(std::stoi(size));
        std::vector<std::string> axes{"dp", "cp"};
        axes.resize(sizes.size());
        Placements placements{Shard(0)};
        if (sizes.size() > 1) placements.push_back(Replicate());
        const DType dtype = dtype_from_name(setting("TEST_SOURCE"));
        const auto tensors = process_tensors(dtype);
        source_ = std::make_unique<TestSource>(tensors, DeviceMesh::create(world_, sizes, axes),
                                               std::vector<Placements>(tensors.size(), placements), dtype);
        std::unique_ptr<engine::Engine> engine;
        if (world_->rank() == 0)
            engine = engine::connect_receiver(setting("TEST_ENGINE"), Deadline::after_ms(5000));
        options.bucket_bytes = std::stoul(setting("TEST_BUCKET"));
        options.depth = 2;
        options.deadlines.load = options.deadlines.commit = options.deadlines.abort =
            std::chrono::milliseconds(5000);
        session_ = std::make_unique<Session>(world_, *source_, std::move(engine), options);
    }

    comm::Communicator& world() { return *world_; }
    TestSource& source() { return *source_; }
    Session& session() { return *session_; }

  private:
    std::shared_ptr<comm::Communicator> world_;
    std::unique_ptr<TestSource> source_;
    std::unique_ptr<Session> session_;
};

int fail(const std::string& why) {
    std::fprintf(stderr, "rank %d: %s\n", comm::rank_environment().rank, why.c_str());
    return 1;
}

int push() {
    Rank rank;
    for (int version = 1; version <= 2; ++version) {
        rank.source().set_step(version);
        const SyncReport report = rank.session().push(version);
        if (report.staging_bytes > 2 * std::stoul(setting("TEST_BUCKET")))
            return fail("staging is above its cap");
        if (memory_stats("staging").peak_bytes > 2 * std::stoul(setting("TEST_BUCKET")))
            return fail("staging peaked above its cap");
        const WeightsMatch match = rank.session().weights_match();
        if (!match.match) return fail("the engine differs in " + match.first_mismatch);
    }
    return 0;
}

int corrupt() {
    bool now = false;
    SessionOptions options;
    options.before_load = [&now](int bucket, Span slot) {
        if (now && bucket == 2) slot.data[100] ^= std::byte{4};
    };
    Rank rank(options);
    rank.source().set_step(1);
    rank.session().push(1);
    now = true;
    rank.source().set_step(2);
    try {
        rank.session().push(2);
        return fail("a corrupted bucket passed");
    } catch (const SyncError& error) {
        const std::string what = error.what();
        const bool names = what.find("bucket 2: tensor '") != std::string::npos &&
                           what.find("from rank 0 is corrupted") != std::string::npos;
        if (!names || error.bucket() != 2 || error.phase() != "load") return fail("unclear error: " + what);
    }
    now = false;
    rank.session().push(3);
    return rank.session().weights_match().match ? 0 : fail("the push after the failed one did not heal");
}

int forever() {
    Rank rank;
    try {
        for (int version = std::stoi(setting("TEST_FIRST"));; ++version) {
            rank.source().set_step(version);
            rank.session().push(version);
        }
    } catch (const Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank.world().rank(), error.what());
        return kSyncFailed;
    }
}

struct Footprint {
    long descriptors = 0;
    long resident_kib = 0;
};

Footprint footprint() {
    Footprint now;
    now.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                    std::filesystem::directory_iterator{});
    std::ifstream statm("/proc/self/statm");
    long total = 0;
    long resident = 0;
    long shared = 0;
    statm >> total >> resident >> shared;
    now.resident_kib = resident * (::sysconf(_SC_PAGESIZE) / 1024);
    return now;
}

int many() {
    Rank rank;
    rank.source().set_step(300);
    Footprint after_ten;
    for (int version = 1; version <= 300; ++version) {
        rank.session().push(version);
        if (version == 10) after_ten = footprint();
    }
    const Footprint end = footprint();
    if (end.descriptors != after_ten.descriptors)
        return fail(fmt::format("descriptors went from {} to {}", after_ten.descriptors, end.descriptors));
    if (end.resident_kib > after_ten.resident_kib + 1024)
        return fail(
            fmt::format("resident memory went from {} to {} KiB", after_ten.resident_kib, end.resident_kib));
    return 0;
}

}  // namespace

int run_body(const std::string& name) {
    if (name == "push") return push();
    if (name == "corrupt") return corrupt();
    if (name == "forever") return forever();
    if (name == "many") return many();
    return fail("no body '" + name + "'");
}

}  // namespace tandem::sync
