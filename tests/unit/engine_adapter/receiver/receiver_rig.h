// A receiver over a TestTarget and memory to take weights from, in one process: what the tests of the
// receiver share. Tensor "a" is [4, 16] float32 (256 bytes), "b" is [50] bfloat16 (100 bytes).
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/device/shared_arena.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "tests/support/soon.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {

using test::soon;

template <typename E>
std::string message_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const E& error) {
        return error.what();
    }
    return "no such error";
}

// The `count` values that lie at `data`.
template <typename T>
std::vector<T> values_at(const std::byte* data, std::size_t count) {
    std::vector<T> values(count);
    std::memcpy(static_cast<void*>(values.data()), data, count * sizeof(T));
    return values;
}

class ReceiverRig : public testing::Test {
  protected:
    static constexpr std::size_t kRegion = 8192;

    explicit ReceiverRig(ReceiverOptions options = {}, bool can_alias = true)
        : target_(tensors(), can_alias),
          receiver_(std::make_unique<Receiver>(target_, options)),
          arena_(SharedArena::create("test", kRegion)),
          plan_(halves()) {}

    static std::vector<TensorInfo> tensors() {
        return {{"a", {4, 16}, DType::float32}, {"b", {50}, DType::bfloat16}};
    }
    // "a" in two halves at 0 and 256, "b" at 512; all one bucket, from rank 1.
    static TransferPlan halves() {
        return {{{0, 1, 0, DType::float32, 1, 32, 0, 0, 0, 0},
                 {0, 1, 0, DType::float32, 1, 32, 256, 0, 128, 0},
                 {1, 1, 0, DType::bfloat16, 1, 50, 512, 0, 0, 0}},
                {0, 3}};
    }
    std::vector<Region> regions() const { return {{arena_.span(), arena_.fd()}}; }

    std::unique_ptr<Engine> connect() {
        auto engine = engine::connect(receiver_->address(), soon());
        engine->attach(regions(), plan_, soon());
        return engine;
    }
    // The receiver notices the end of the last trainer on its own time.
    std::unique_ptr<Engine> connect_again() {
        for (int i = 0;; ++i) {
            try {
                return connect();
            } catch (const TransportError&) {
                if (i == 500) throw;
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        }
    }

    // Fills what the plan's transfers take with bytes of `value`.
    void stage(int value) { std::memset(arena_.data(), value, kRegion); }
    // The engine's bytes of a transfer after a copy without a cast, row by row.
    ops::Checksum checksum_of(const Transfer& t) const {
        const std::size_t row = t.row_elements * dtype_size(t.from_dtype);
        std::vector<std::byte> bytes;
        for (std::uint64_t r = 0; r < t.rows; ++r) {
            const std::byte* from = arena_.data() + t.from + r * t.from_stride;
            bytes.insert(bytes.end(), from, from + row);
        }
        return ops::checksum({bytes.data(), bytes.size()});
    }
    std::vector<ops::Checksum> checksums() const {
        std::vector<ops::Checksum> result;
        for (const Transfer& transfer : plan_.transfers) result.push_back(checksum_of(transfer));
        return result;
    }
    ops::Checksum manifest(std::int64_t version) const { return manifest(version, checksums()); }
    ops::Checksum manifest(std::int64_t version, const std::vector<ops::Checksum>& all) const {
        return manifest_checksum(version, tensors(), plan_, all);
    }
    void load(Engine& engine, int bucket, const std::vector<ops::Checksum>& all) {
        const std::size_t first = plan_.first[static_cast<std::size_t>(bucket)];
        const std::size_t last = plan_.first[static_cast<std::size_t>(bucket) + 1];
        engine.buckets().load(bucket, std::span(all).subspan(first, last - first), soon());
    }
    // A whole version of the bytes that lie in the arena.
    void push_staged(Engine& engine, std::int64_t version) {
        const auto all = checksums();
        engine.begin(version, soon());
        for (int b = 0; b < static_cast<int>(plan_.buckets()); ++b) load(engine, b, all);
        for (int b = 0; b < static_cast<int>(plan_.buckets()); ++b)
            EXPECT_GE(engine.buckets().wait_loaded(b, soon()), 0.0);
        engine.commit(version, manifest(version, all), soon());
    }
    void push(Engine& engine, std::int64_t version, int value) {
        stage(value);
        push_staged(engine, version);
    }
    void expect_weights(int value) const {
        for (std::size_t t = 0; t < target_.weights().size(); ++t) {
            const Span memory = target_.reading(t);
            for (std::size_t i = 0; i < memory.bytes; ++i) {
                ASSERT_EQ(std::to_integer<int>(memory.data[i]), value)
                    << target_.weights()[t].info.name << " byte " << i;
            }
        }
    }
    void wait_for_aborts(int count) const {
        for (int i = 0; i < 500 && target_.aborts() < count; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_EQ(target_.aborts(), count);
    }

    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
    SharedArena arena_;
    TransferPlan plan_;
};

}  // namespace tandem::engine
