// tandem-engine on an emulated GPU reads its weights in place in the GPU memory of a trainer in another
// process, and that trainer ends: in order, or in the middle of everything.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/device/devices.h"
#include "common/device/export.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/multiproc/engine/serving_engine.h"
#include "tests/support/device_bytes.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

// On a GPU where TANDEM_TEST_DEVICE=cuda says so.
constexpr Device kGpu{DeviceType::cuda, 0};

// The engine's weights in GPU memory that it may open, all of them one bucket.
struct GpuWeights {
    GpuWeights(const std::vector<TensorInfo>& infos, std::uint64_t seed) {
        std::size_t bytes = 0;
        for (const TensorInfo& info : infos) bytes += tensor_bytes(info);
        host.resize(bytes);
        std::vector<WeightSlot> slots;
        std::size_t at = 0;
        for (std::size_t t = 0; t < infos.size(); ++t) {
            const std::size_t size = tensor_bytes(infos[t]);
            slots.push_back({infos[t], {host.data() + at, size}});
            plan.transfers.push_back(whole_tensor(t, infos[t], at));
            at += size;
        }
        plan.first.push_back(infos.size());
        fill_weights(slots, seed);
        for (const WeightSlot& slot : slots) checksums.push_back(ops::checksum(slot.memory));
        arena = ExportArena::create(kGpu, bytes, "weights");
        test::upload(kGpu, {host.data(), host.size()}, arena.span());
    }
    void push(Engine& engine, std::int64_t version, bool in_place) const {
        engine.attach({{arena.span(), -1, kGpu}}, plan, soon());
        engine.pause(soon());
        engine.begin(version, soon());
        if (in_place) {
            engine.adopt(0, checksums, soon());
        } else {
            engine.buckets().load(0, checksums, soon());
            engine.buckets().wait_loaded(0, soon());
        }
        engine.commit(version, manifest_checksum(version, engine.capabilities().tensors, plan, checksums),
                      soon());
        engine.resume(soon());
    }
    std::vector<std::byte> host;
    ExportArena arena;
    TransferPlan plan;
    std::vector<ops::Checksum> checksums;
};

class TrainerBesideAGpuEngine : public ServingEngine {
  protected:
    TrainerBesideAGpuEngine() : ServingEngine({"--device", "cuda"}) {}
    http::Response ask() const { return ask(*client_); }
    static http::Response ask(http::Client& client) {
        const json body = {{"input_ids", {1, 2, 3}},
                           {"sampling_params", {{"max_new_tokens", 12}, {"seed", 1}}}};
        return client.request("POST", "/generate", body.dump(), soon());
    }
    json sample(std::int64_t version) const {
        const http::Response response = ask();
        EXPECT_EQ(response.status, 200) << response.body;
        const json answer = json::parse(response.body);
        EXPECT_EQ(answer["meta_info"]["weight_version"], std::to_string(version));
        return answer["output_ids"];
    }
    // A process that brings version 2 in place. "goodbye": it then leaves in order; else it waits to be
    // killed.
    pid_t start_trainer(bool goodbye) {
        std::array<int, 2> pipe{};
        EXPECT_EQ(::pipe(pipe.data()), 0);
        const pid_t trainer = ::fork();
        if (trainer == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            const auto engine = connect();
            const GpuWeights weights(engine->capabilities().tensors, 4);
            weights.push(*engine, 2, true);
            EXPECT_EQ(::write(pipe[1], "x", 1), 1);
            if (!goodbye) ::pause();
            engine->pause(soon());
            engine->release(soon());
            engine->resume(soon());
            ::_exit(0);
        }
        char byte = 0;
        EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
        ::close(pipe[0]);
        ::close(pipe[1]);
        return trainer;
    }
};

TEST_F(TrainerBesideAGpuEngine, ATrainerThatSaysGoodbyeLeavesItsVersionWithTheEngine) {
    const json first = sample(1);
    const pid_t trainer = start_trainer(true);
    int status = 0;
    ASSERT_EQ(::waitpid(trainer, &status, 0), trainer);
    ASSERT_EQ(status, 0);
    EXPECT_NE(sample(2), first);
}

// The trainer speaks of a bucket before its stream has written it: the engine's copy comes behind its event.
TEST_F(TrainerBesideAGpuEngine, CopiesComeBehindTheTrainersEvent) {
    const pid_t trainer = ::fork();
    if (trainer == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const auto engine = connect();
        const GpuWeights weights(engine->capabilities().tensors, 4);
        Stream stream = Stream::make(kGpu, "writer");
        fill_zero(stream, weights.arena.span());
        stream.synchronize();
        SharedEvent written = SharedEvent::create(kGpu);
        Region region{weights.arena.span(), -1, kGpu};
        region.written = {{written.handle(), ::getpid()}};
        engine->attach({region}, weights.plan, soon());
        engine->pause(soon());
        engine->begin(2, soon());
        if (is_emulated(kGpu))
            emulated::launch(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
        copy(stream, {weights.host.data(), weights.host.size()}, weights.arena.span());
        written.record(stream);
        engine->buckets().load(0, weights.checksums, soon());
        engine->buckets().wait_loaded(0, soon());
        engine->commit(
            2, manifest_checksum(2, engine->capabilities().tensors, weights.plan, weights.checksums), soon());
        engine->resume(soon());
        engine->release(soon());
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(trainer, &status, 0), trainer);
    ASSERT_EQ(status, 0);
    sample(2);
}

TEST_F(TrainerBesideAGpuEngine, ATrainerThatIsKilledLeavesAnEngineThatRefusesSaysWhyAndHeals) {
    const pid_t trainer = start_trainer(false);
    const json second = sample(2);
    std::atomic<bool> stop{false};
    std::atomic<int> others{0};
    std::thread client([&] {  // requests that are under way meanwhile get an answer too
        http::Client own(url_);
        while (!stop) {
            const int code = ask(own).status;
            others += code != 200 && code != 503 ? 1 : 0;
        }
    });
    ASSERT_EQ(::kill(trainer, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(trainer, &status, 0), trainer);
    http::Response answer = ask();
    for (int i = 0; answer.status == 200 && i < 1000; ++i) answer = ask();  // until the engine has noticed
    stop = true;
    client.join();
    EXPECT_EQ(others, 0);
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.body,
                testing::AllOf(testing::HasSubstr("lay in the GPU memory of a trainer that is gone"),
                               testing::HasSubstr("publish a version")));
    const auto engine = connect();
    EXPECT_EQ(engine->held(soon()).version, 0);
    GpuWeights(engine->capabilities().tensors, 4).push(*engine, 3, false);
    EXPECT_EQ(sample(3), second);
}

}  // namespace
}  // namespace tandem::engine
