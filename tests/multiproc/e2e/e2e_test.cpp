// The promise of the whole service, from outside: a real engine process under fire, a sharded trainer that
// pushes version after version, and every sample it ever answered checked against the weights it names.
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/http/client.h"
#include "engine_adapter/connect.h"
#include "sync/session/session.h"
#include "tests/multiproc/e2e/rig.h"
#include "tests/multiproc/engine/program.h"
#include "tests/support/soon.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::e2e {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr double kTolerance = 1e-5;

class EndToEnd : public testing::Test {
  protected:
    void SetUp() override {
        engine::write_tiny_model(directory.path(), config, 1);
        std::filesystem::remove(directory.file("model.safetensors"));
        program = std::make_unique<engine::Program>(
            std::vector<std::string>{"serve", "--model", directory.path(), "--listen", "127.0.0.1:0",
                                     "--load-format", "dummy", "--dtype", "float32", "--threads", "1"});
        url = program->url();
        ASSERT_FALSE(url.empty()) << program->output();
    }

    // Runs body(session, source, rank) on every rank of a fresh trainer; small buckets, so that a push has
    // many.
    using Body = std::function<void(sync::Session&, ShardedSet&, int)>;
    void train(const Body& body, const std::function<void(int, Span)>& before_load = {}) const {
        comm::run_threads(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
            ShardedSet source(sets, DeviceMesh::create(world, {kRanks}, {"dp"}));
            std::unique_ptr<engine::Engine> port;
            if (world->rank() == 0) port = engine::connect(url, test::soon());
            sync::SessionOptions options;
            options.bucket_bytes = 4096;
            options.before_load = before_load;
            sync::Session session(world, source, std::move(port), options);
            body(session, source, world->rank());
        });
    }

    // Which sets could have made the sample.
    std::vector<std::size_t> fits(const Sample& sample) {
        std::vector<std::size_t> result;
        for (std::size_t set = 0; set < sets.count(); ++set) {
            const double error = sets.misfit(sample, set);
            if (error > kTolerance) {
                nearest_miss = std::min(nearest_miss, error);
                continue;
            }
            worst_fit = std::max(worst_fit, error);
            result.push_back(set);
        }
        return result;
    }
    void expect_made_by_its_version(const Sample& sample) {
        ASSERT_EQ(sample.output.size(), sample.logprobs.size());
        ASSERT_FALSE(sample.output.empty());
        EXPECT_THAT(fits(sample), testing::ElementsAre(sets.of_version(sample.version)))
            << "version " << sample.version << ", " << sample.output.size() << " tokens";
    }

    const model::ModelConfig config = engine::tiny_config();
    WeightSets sets{config, 3};
    const model::TemporaryDirectory directory;
    std::unique_ptr<engine::Program> program;
    std::string url;
    double worst_fit = 0;
    double nearest_miss = 1e9;
};

TEST_F(EndToEnd, EverySampleUnderFireIsMadeByTheOneVersionItNames) {
    constexpr std::int64_t kVersions = 40;
    std::unique_ptr<Hammer> hammer;
    train([&](sync::Session& session, ShardedSet& source, int rank) {
        for (std::int64_t version = 1; version <= kVersions; ++version) {
            source.hold(sets.of_version(version));
            const sync::SyncReport report = session.push(version);
            EXPECT_GT(report.buckets, 2);
            if (rank != 0) continue;
            if (version == 1) hammer = std::make_unique<Hammer>(url, 4);
            EXPECT_TRUE(hammer->wait_for(version, 8)) << "version " << version;
        }
    });
    ASSERT_TRUE(hammer);
    const std::vector<Sample> samples = hammer->stop();
    EXPECT_THAT(hammer->refusals(), testing::IsEmpty());

    std::set<std::int64_t> versions;
    for (const Sample& sample : samples) {
        versions.insert(sample.version);
        expect_made_by_its_version(sample);
    }
    EXPECT_EQ(versions.size(), static_cast<std::size_t>(kVersions));
    EXPECT_EQ(*versions.begin(), 1);
    EXPECT_EQ(*versions.rbegin(), kVersions);
    std::cout << samples.size() << " samples of " << versions.size() << " versions: own set within "
              << worst_fit << ", other sets at least " << nearest_miss << " away\n";
}

TEST_F(EndToEnd, ACorruptedBucketFailsOnEveryRankAndTheNextPushServesAgain) {
    bool corrupt = false;  // written and read on rank 0 between and during its own pushes
    std::vector<std::string> errors(kRanks);
    const auto flip = [&](int bucket, Span slot) {
        if (corrupt && bucket == 1) slot.data[40] ^= std::byte{1};
    };
    const auto check = [&](std::int64_t version, std::uint64_t number) {
        const Sample sample = ask(url, number);
        EXPECT_EQ(sample.version, version);
        expect_made_by_its_version(sample);
    };
    train(
        [&](sync::Session& session, ShardedSet& source, int rank) {
            source.hold(sets.of_version(1));
            session.push(1);
            if (rank == 0) {
                check(1, 1);
                corrupt = true;
            }
            source.hold(sets.of_version(2));
            try {
                session.push(2);
            } catch (const sync::SyncError& error) {
                errors[static_cast<std::size_t>(rank)] = error.what();
                EXPECT_EQ(error.bucket(), 1);
            }
            EXPECT_EQ(session.state(), sync::State::failed);
            if (rank == 0) {
                corrupt = false;
                http::Client client(url);
                const http::Response refusal =
                    client.request("POST", "/generate", R"({"input_ids": [1]})", test::soon());
                EXPECT_EQ(refusal.status, 503);
                EXPECT_THAT(refusal.body, HasSubstr("corrupted"));
                EXPECT_THAT(refusal.body, HasSubstr("bucket 1"));
            }
            source.hold(sets.of_version(3));
            session.push(3);
            if (rank == 0) check(3, 2);
            EXPECT_EQ(session.version(), 3);
        },
        flip);
    EXPECT_THAT(errors[0],
                testing::ContainsRegex("bucket 1: tensor '[a-z_0-9.]+' .*from rank [01] is corrupt"));
    EXPECT_EQ(errors[1], errors[0]);
}

}  // namespace
}  // namespace tandem::e2e
