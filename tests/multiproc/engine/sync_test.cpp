// Versions into a running tandem-engine, as a trainer in another process brings them: loaded, in place, and
// cut off in the middle.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "common/device/shared_arena.h"
#include "tests/multiproc/engine/serving_engine.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

// The engine's weights laid out in shared memory, each tensor a bucket.
struct Weights {
    Weights(const std::vector<TensorInfo>& infos, std::uint64_t seed) {
        std::size_t bytes = 0;
        for (const TensorInfo& info : infos) bytes += tensor_bytes(info);
        arena = SharedArena::create("weights", bytes);
        std::vector<WeightSlot> slots;
        std::size_t at = 0;
        for (std::size_t t = 0; t < infos.size(); ++t) {
            const std::size_t size = tensor_bytes(infos[t]);
            slots.push_back({infos[t], arena.span().subspan(at, size)});
            plan.transfers.push_back(whole_tensor(t, infos[t], at));
            plan.first.push_back(t + 1);
            at += size;
        }
        fill_weights(slots, seed);
        for (const WeightSlot& slot : slots) checksums.push_back(ops::checksum(slot.memory));
    }
    void attach(Engine& engine) const { engine.attach({{arena.span(), arena.fd()}}, plan, soon()); }
    void load(Engine& engine, std::size_t buckets) const {
        for (std::size_t b = 0; b < buckets; ++b)
            engine.buckets().load(static_cast<int>(b), {&checksums[b], 1}, soon());
        for (std::size_t b = 0; b < buckets; ++b) engine.buckets().wait_loaded(static_cast<int>(b), soon());
    }
    void commit(Engine& engine, std::int64_t version) const {
        engine.commit(version, manifest_checksum(version, engine.capabilities().tensors, plan, checksums),
                      soon());
    }
    void push(Engine& engine, std::int64_t version) const {
        engine.pause(soon());
        engine.begin(version, soon());
        load(engine, plan.buckets());
        commit(engine, version);
        engine.resume(soon());
    }
    void push_in_place(Engine& engine, std::int64_t version) const {
        engine.pause(soon());
        engine.begin(version, soon());
        engine.adopt(0, checksums, soon());
        commit(engine, version);
        engine.resume(soon());
    }

    SharedArena arena;
    TransferPlan plan;
    std::vector<ops::Checksum> checksums;
};

class SyncIntoServe : public ServingEngine {
  protected:
    http::Response ask() {
        const json body = {{"input_ids", {1, 2, 3}},
                           {"sampling_params", {{"max_new_tokens", 12}, {"seed", 1}}},
                           {"return_logprob", true}};
        return client_->request("POST", "/generate", body.dump(), soon());
    }
    // Tokens and log-probs of a fixed request; checks the version that it says.
    json sample(std::int64_t version) {
        const http::Response response = ask();
        EXPECT_EQ(response.status, 200) << response.body;
        const json answer = json::parse(response.body);
        EXPECT_EQ(answer["meta_info"]["weight_version"], std::to_string(version));
        return {answer["output_ids"], answer["meta_info"]["output_token_logprobs"]};
    }
};

TEST_F(SyncIntoServe, LoadedAndInPlaceGiveTheSameAndOutliveTheTrainer) {
    const json first = sample(1);
    auto engine = connect();
    EXPECT_TRUE(engine->capabilities().alias);
    EXPECT_EQ(engine->held(soon()).version, 1);
    EXPECT_EQ(engine->held(soon()).manifest, ops::Checksum{});  // nobody here sent it
    const Weights same(engine->capabilities().tensors, 3);
    const Weights other(engine->capabilities().tensors, 4);
    same.attach(*engine);
    same.push(*engine, 2);
    EXPECT_EQ(sample(2), first);
    other.attach(*engine);
    other.push(*engine, 3);
    const json second = sample(3);
    EXPECT_NE(second, first);
    // The engine takes its bytes from what is attached: other's, which are not what `same` announces.
    engine->pause(soon());
    engine->begin(4, soon());
    EXPECT_THROW(same.load(*engine, 1), ProtocolError);
    engine->resume(soon());
    EXPECT_EQ(ask().status, 503);
    {
        const Weights brief(engine->capabilities().tensors, 3);
        brief.attach(*engine);
        brief.push_in_place(*engine, 5);
        EXPECT_EQ(sample(5), first);
        EXPECT_EQ(engine->checksums(soon()), brief.checksums);
        const json sums = client_->post_json("/weights_checker", json::object(), soon());
        EXPECT_EQ(sums["ranks"][0]["checksums"][engine->capabilities().tensors[0].name],
                  ops::to_hex(brief.checksums[0]));
        engine.reset();
    }
    EXPECT_EQ(sample(5), first);  // its trainer, and the trainer's memory, are gone
    engine = connect();
    other.attach(*engine);
    EXPECT_EQ(sample(5), first);
    other.push(*engine, 6);
    EXPECT_EQ(sample(6), second);
}

TEST_F(SyncIntoServe, ATrainerKilledInTheMiddleLeavesAnEngineThatRefusesAndHeals) {
    const std::vector<TensorInfo> tensors = connect()->capabilities().tensors;
    const Weights other(tensors, 4);
    for (const std::size_t buckets : {std::size_t{0}, std::size_t{5}}) {
        const pid_t trainer = ::fork();
        if (trainer == 0) {
            const auto engine = connect();
            other.attach(*engine);
            engine->pause(soon());
            engine->begin(2, soon());
            other.load(*engine, buckets);
            ::raise(SIGKILL);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(trainer, &status, 0), trainer);
        ASSERT_TRUE(WIFSIGNALED(status));
        if (buckets == 0) {
            sample(1);  // nothing had been written
            continue;
        }
        const http::Response refused = ask();
        EXPECT_EQ(refused.status, 503);
        EXPECT_THAT(refused.body, testing::HasSubstr("left no whole version"));
        const auto engine = connect();
        EXPECT_EQ(engine->held(soon()).version, 0);
        other.attach(*engine);
        other.push(*engine, 3);
        sample(3);
    }
}

// How long it takes: tandem-sync bench --mode alias.
TEST_F(SyncIntoServe, InPlaceVersionAfterVersion) {
    const auto engine = connect();
    const Weights weights(engine->capabilities().tensors, 4);
    weights.attach(*engine);
    for (std::int64_t version = 2; version < 23; ++version) {
        weights.push_in_place(*engine, version);
        EXPECT_EQ(engine->held(soon()).version, version);
    }
    EXPECT_EQ(engine->checksums(soon()), weights.checksums);
}

}  // namespace
}  // namespace tandem::engine
