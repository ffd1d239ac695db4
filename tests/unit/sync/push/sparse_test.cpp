// Pushes into a vLLM by its backend "sparse_nccl": that only what changed travels, that the server then holds all of the
// version, to the byte, and when it must be sent whole. GPUs are emulated.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "engine_adapter/gpu_staging/changed_runs.h"
#include "engine_adapter/vllm/server.h"
#include "tests/support/error_of.h"
#include "tests/unit/sync/push/backends_fixture.h"

namespace tandem::sync {
namespace {

using engine::ChangedRun;
using engine::ChangedRuns;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Sparse : public Backends {
  protected:
    // A session of one rank whose weights are `values_`, and a server of as many workers that holds zeros.
    void start(DType dtype = DType::float32, int workers = 1, Device weights = {}) {
        session_.reset();
        tensors_ = test_tensors(dtype);
        serve(zeros(tensors_), {.backend = "sparse_nccl", .workers = workers},
              std::string(dtype_name(dtype)));
        values_.clear();
        version_ = 0;
        for (const TensorInfo& tensor : tensors_)
            values_.emplace_back(static_cast<std::size_t>(numel(tensor.shape)), 0.0f);
        world_ = comm::solo();
        source_ = std::make_unique<TestSource>(
            tensors_, make_mesh(world_, {1}), std::vector<Placements>(tensors_.size(), {Shard(0)}), dtype,
            [this](std::size_t t, std::size_t i, int) { return values_[t][i]; }, weights);
        Engines engines;
        engines.push_back(engine::connect(server_->url(), soon(), options()));
        session_ = std::make_unique<Session>(world_, *source_, std::move(engines), options_for(Mode::gather));
    }
    ~Sparse() override { session_.reset(); }

    // Changes about that share of all elements, and returns of how many the bits in the server's dtype differ.
    std::size_t change(double share, std::mt19937& generator) {
        std::size_t changed = 0;
        std::uniform_real_distribution<double> draw(0, 1);
        for (std::vector<float>& tensor : values_) {
            for (float& value : tensor) {
                if (draw(generator) >= share) continue;
                ++changed;
                // A zero of the other sign is another value, to the bit.
                const bool flips = value == 0 && generator() % 2 == 0;
                value = flips ? -value : value == 0.5f ? 0.25f : value == 0.25f ? 0.0f : 0.5f;
            }
        }
        return changed;
    }
    std::int64_t push(std::int64_t version = 0) {
        source_->set_step(0);
        version_ = version > 0 ? version : version_ + 1;
        session_->push(version_);
        return version_;
    }
    void expect_held(std::int64_t version) const {
        for (std::size_t t = 0; t < tensors_.size(); ++t) {
            std::string wanted(engine::tensor_bytes(tensors_[t]), '\0');
            const std::size_t width = dtype_size(tensors_[t].dtype);
            for (std::size_t i = 0; i < values_[t].size(); ++i)
                put_value(reinterpret_cast<std::byte*>(wanted.data() + i * width), tensors_[t].dtype,
                          values_[t][i]);
            EXPECT_TRUE(server_->weights().at(tensors_[t].name) == wanted) << tensors_[t].name;
        }
        EXPECT_EQ(server_->weight_version(), std::to_string(version));
        EXPECT_FALSE(server_->paused());
        EXPECT_FALSE(backend_->update_open());
        EXPECT_THAT(server_->violations(), IsEmpty());
    }
    // Elements that the last update named.
    std::size_t sent() const {
        std::size_t sum = 0;
        for (const auto& call : backend_->patches()) {
            for (const auto& [name, count] : call) sum += count;
        }
        return sum;
    }
    std::size_t all() const {
        std::size_t sum = 0;
        for (const auto& tensor : values_) sum += tensor.size();
        return sum;
    }

    std::vector<TensorInfo> tensors_;
    std::vector<std::vector<float>> values_;
    std::int64_t version_ = 0;
    std::shared_ptr<comm::Communicator> world_;
    std::unique_ptr<TestSource> source_;
    std::unique_ptr<Session> session_;
};

TEST_F(Sparse, WhatChangedIsSentAndTheServerHoldsAllOfIt) {
    std::mt19937 generator(7);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::uint64_t packed_bytes :
             {std::uint64_t{1} << 20, std::uint64_t{3000}, std::uint64_t{0}}) {
            packed_bytes_ = packed_bytes;
            start(dtype, packed_bytes == 0 ? 2 : 1, packed_bytes == 3000 ? kGpu : Device{});
            change(0.9, generator);
            std::int64_t version = push();
            expect_held(version);
            EXPECT_EQ(sent(), all()) << "nothing was known of the server's weights";
            for (const double share : {0.001, 0.01, 0.2, 0.6, 1.0, 0.05, 0.003}) {
                const std::size_t changed = change(share, generator);
                version = push();
                expect_held(version);
                EXPECT_GE(sent(), changed);
                if (share <= 0.05) {
                    EXPECT_EQ(sent(), changed) << share << " of " << dtype_name(dtype);
                }
            }
            EXPECT_EQ(backend_->groups(), 1);
            for (const std::size_t bytes : backend_->received()) {
                if (packed_bytes > 0) {
                    EXPECT_LE(bytes, packed_bytes);
                }
            }
        }
    }
}

TEST_F(Sparse, WhereNothingChangedTheWorkersAreToldNothing) {
    std::mt19937 generator(8);
    start();
    change(1, generator);
    push();
    const std::int64_t version = push();
    expect_held(version);
    EXPECT_THAT(calls_in_pause(),
                testing::ElementsAre("POST /pause", "POST /update_weight_version", "POST /reset_prefix_cache",
                                     "POST /update_weight_version", "GET /weight_info", "POST /resume"));
    values_[2][5] = 7;
    expect_held(push());
    EXPECT_EQ(backend_->patches(), (std::vector<VllmBackendStandIn::Patches>{{{tensors_[2].name, 1}}}));
}

TEST_F(Sparse, AFailureInsideLeavesItRefusingAndAWholeVersionHealsIt) {
    std::mt19937 generator(9);
    start();
    change(1, generator);
    push();
    change(0.01, generator);
    const std::string last = tensors_[4].name;
    backend_->set_before_load([&](const std::string& name) {
        if (name == last) throw Error("no room for it");
    });
    EXPECT_THAT(test::error_of([&] { push(); }),
                AllOf(HasSubstr("/update_weights"), HasSubstr("no room for it")));
    EXPECT_TRUE(server_->paused());
    EXPECT_EQ(server_->weight_version(), "loading 2");
    backend_->set_before_load({});
    change(0.01, generator);
    expect_held(push());
    EXPECT_EQ(sent(), all());
    const std::size_t changed = change(0.01, generator);
    expect_held(push());
    EXPECT_EQ(sent(), changed);
}

TEST_F(Sparse, AfterAnyFailureTheNextVersionIsWhole) {
    std::mt19937 generator(10);
    for (const char* route : {"/pause", "/start_weight_update", "/update_weights", "/finish_weight_update",
                              "/reset_prefix_cache", "/update_weight_version"}) {
        start();
        change(1, generator);
        push();
        const auto before = server_->weights();
        change(0.02, generator);
        server_->set_failure(route, 500);
        EXPECT_THAT(test::error_of([&] { push(); }), HasSubstr(route));
        if (std::string_view(route) == "/pause") {
            EXPECT_FALSE(server_->paused());
            EXPECT_EQ(server_->weights(), before);
        } else if (std::string_view(route) != "/update_weight_version") {
            EXPECT_TRUE(server_->paused()) << route;
        }
        server_->mend();
        expect_held(push());
        EXPECT_EQ(sent(), all()) << route;
    }
}

TEST_F(Sparse, AVersionOfSomebodyElseInBetweenIsReplacedWhole) {
    std::mt19937 generator(11);
    start();
    change(1, generator);
    push();
    engine::VllmServer other(server_->url(), "");
    other.pause(engine::InFlight::wait, soon());
    other.reload_weights(server_->model(), soon());
    other.set_weight_version("77", soon());
    other.reset_prefix_cache(soon());
    other.resume(soon());
    change(0.01, generator);
    expect_held(push(78));
    EXPECT_EQ(sent(), all());
    EXPECT_EQ(backend_->groups(), 2);  // who knows whose workers they were
}

// As memory.engine_sleep = all has it sleep: its weights are kept, so what changed is enough.
TEST_F(Sparse, AServerThatSleptWithItsWeightsKeptIsSentWhatChanged) {
    std::mt19937 generator(14);
    start();
    change(1, generator);
    push();
    engine::VllmServer other(server_->url(), "");
    other.post("/sleep?level=1&mode=wait", "", soon());
    const std::size_t changed = change(0.01, generator);
    push();
    EXPECT_TRUE(server_->paused());
    EXPECT_TRUE(other.wake_up("kv_cache", soon()));
    expect_held(version_);
    EXPECT_EQ(sent(), changed);
}

TEST_F(Sparse, APushByItselfIsWhole) {
    const std::string next = model("next", 5);
    serve(model("old", 1), {.backend = "sparse_nccl", .workers = 2});
    const ServerOutcome outcome = Backends::push(next);
    EXPECT_TRUE(outcome.whole) << outcome.error;
    expect_served(next, "1");
}

TEST_F(Sparse, NaNIsRefusedBeforeThePause) {
    std::mt19937 generator(12);
    for (const bool whole : {true, false}) {
        start(DType::bfloat16);
        change(1, generator);
        if (!whole) push();
        const auto before = server_->weights();
        values_[5][17] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_THAT(test::error_of([&] { push(); }), AllOf(HasSubstr(tensors_[5].name + " holds NaN")));
        EXPECT_EQ(server_->weights(), before);
        EXPECT_FALSE(server_->paused());
        const std::vector<std::string> calls = server_->calls();
        EXPECT_EQ(std::count(calls.begin(), calls.end(), "POST /pause"), whole ? 0 : 1);
        values_[5][17] = 1;
        expect_held(push());
    }
}

TEST_F(Sparse, AServerWithATensorThatCannotBeSentIsToldHowToStart) {
    const std::string old =
        zeros({{"model.norm.weight", {7}, DType::float32, {}}, {"q", {4, 4}, DType::int32, {}}});
    serve(old, {.backend = "sparse_nccl"});
    const ServerOutcome outcome = Backends::push(model("next", 2));
    EXPECT_FALSE(outcome.whole);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(server_->url()), HasSubstr("q is of int32"),
                                     HasSubstr("{\"backend\":\"nccl\"}")));
    expect_served(old, "default");
}

TEST(ChangedRuns, RefusesWhatCannotBeSent) {
    const engine::PackedLayout layout;
    const auto refusal = [&](Shape shape, DType dtype) {
        const std::vector<TensorInfo> tensors{{"model.w", std::move(shape), dtype, {}}};
        return test::error_of([&] { const ChangedRuns runs(tensors, layout, 1 << 30); });
    };
    EXPECT_THAT(
        refusal({std::int64_t{1} << 16, std::int64_t{1} << 15}, DType::bfloat16),
        HasSubstr("model.w has 2147483648 elements: changes are sent with int32 indices, up to 2147483647"));
    EXPECT_THAT(refusal({4}, DType::int8), HasSubstr("model.w is of int8"));
    EXPECT_THAT(refusal({4}, DType::float8_e4m3fn), HasSubstr("model.w is of float8_e4m3fn"));
}

// What is listed takes no more of the host than the weights have bytes, however much has changed.
TEST(ChangedRuns, ListsAtMostAsManyBytesAsAVersionHas) {
    const std::vector<TensorInfo> tensors{{"a", {1000, 50}, DType::bfloat16, {}},
                                          {"b", {3000}, DType::float32, {}}};
    const engine::PackedLayout layout = engine::lay_out_packed(tensors, 1 << 20);
    std::mt19937 generator(13);
    std::vector<std::byte> base(layout.bytes);
    std::vector<std::byte> staged = base;
    for (std::size_t i = 0; i < staged.size(); i += 4)
        staged[i] = std::byte{1};  // half of the bfloat16 elements
    const std::vector<std::byte> old = base;
    Stream stream = Stream::make_inline();
    const ChangedRuns changed(tensors, layout, 6000);
    const std::vector<ChangedRun> runs =
        changed.since(stream, {staged.data(), staged.size()}, {base.data(), base.size()});
    EXPECT_EQ(base, staged);
    std::size_t listed = 0;
    std::size_t unlisted = 0;
    std::vector<std::byte> patched = old;
    for (const ChangedRun& run : runs) {
        const std::size_t width = dtype_size(tensors[run.tensor].dtype);
        EXPECT_LE(run.bytes(width), 6000u);
        (run.listed() ? listed : unlisted) += run.bytes(width);
        for (std::uint64_t i = 0; i < run.count; ++i) {
            std::uint64_t element = run.first + i;
            if (run.listed())
                element =
                    static_cast<std::uint64_t>(reinterpret_cast<const std::int32_t*>(run.indices.data())[i]);
            const std::size_t at = layout.begin[run.tensor] + element * width;
            std::memcpy(patched.data() + at,
                        run.listed() ? run.values.data() + i * width : staged.data() + at, width);
        }
    }
    EXPECT_EQ(patched, staged);
    EXPECT_GT(listed, 0u);
    EXPECT_GT(unlisted, 0u);
    EXPECT_LE(listed, layout.bytes);
}

}  // namespace
}  // namespace tandem::sync
