// Ten thousand single bits turned over at random places of the data in flight: each must be noticed, by the
// name of the tensor that it belongs to.
#include <gmock/gmock.h>

#include <random>

#include "common/log.h"
#include "tests/unit/sync/session/forwarding_engine.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

// Between session and engine: turns one bit of one random bucket of each version, right before the engine is
// told of it, and turns it back when the version is over.
class FlippingEngine final : public ForwardingEngine {
  public:
    struct Shared {
        std::mt19937_64 random{11};
        bool armed = false;
        std::string tensor;  // that the bit belongs to; empty: no bit turned
        int transfers_hit = 0;
    };
    FlippingEngine(std::unique_ptr<engine::Engine> engine, std::shared_ptr<Shared> shared)
        : ForwardingEngine(std::move(engine)), shared_(std::move(shared)) {}

    void attach(const std::vector<engine::Region>& regions, const engine::TransferPlan& plan,
                Deadline deadline) override {
        regions_ = regions;
        plan_ = plan;
        engine_->attach(regions, plan, deadline);
    }
    void begin(std::int64_t version, Deadline deadline) override {
        shared_->tensor.clear();
        bucket_ = static_cast<int>(shared_->random() % plan_.buckets());
        engine_->begin(version, deadline);
    }
    void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override {
        if (shared_->armed && bucket == bucket_ && !checksums.empty()) {
            const std::uint64_t pick =
                plan_.first[static_cast<std::size_t>(bucket)] + shared_->random() % checksums.size();
            const engine::Transfer& transfer = plan_.transfers[pick];
            const std::uint64_t row_bytes = transfer.row_elements * dtype_size(transfer.from_dtype);
            const std::uint64_t row = shared_->random() % transfer.rows;
            flip(transfer, transfer.from + row * transfer.from_stride + shared_->random() % row_bytes);
        }
        engine_->buckets().load(bucket, checksums, deadline);
    }
    void load_delta(int bucket, std::span<const engine::DeltaEntry> entries, Deadline deadline) override {
        if (shared_->armed && shared_->tensor.empty() && !entries.empty()) {
            const engine::DeltaEntry& entry = entries[shared_->random() % entries.size()];
            flip(plan_.transfers[entry.transfer], entry.offset + shared_->random() % entry.bytes);
        }
        engine_->buckets().load_delta(bucket, entries, deadline);
    }
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override {
        engine_->commit(version, manifest, deadline);
        restore();
    }
    void abort(const std::string& reason, Deadline deadline) override {
        engine_->abort(reason, deadline);
        restore();
    }

  private:
    void flip(const engine::Transfer& transfer, std::uint64_t at) {
        shared_->tensor = engine_->capabilities().tensors[transfer.tensor].name;
        at_ = regions_[transfer.region].memory.data + at;
        bit_ = static_cast<std::byte>(1u << (shared_->random() % 8));
        *at_ ^= bit_;
        ++shared_->transfers_hit;
    }
    void restore() {
        if (at_ != nullptr) *at_ ^= bit_;
        at_ = nullptr;
    }

    std::shared_ptr<Shared> shared_;
    std::vector<engine::Region> regions_;
    engine::TransferPlan plan_;
    int bucket_ = 0;
    std::byte* at_ = nullptr;
    std::byte bit_{};
};

struct Case {
    Mode mode;
    DType source;
    int flips;
};

// `flips` pushes that must each fail by the tensor's name; with delta, a good push before each, so that the
// failing one carries changes and not everything.
void expect_all_noticed(const Case& test) {
    const LogLevel level = set_log_level(LogLevel::off);
    auto shared = std::make_shared<FlippingEngine::Shared>();
    TestTarget target(test_tensors(DType::bfloat16));
    SessionOptions options;
    options.mode = test.mode;
    options.bucket_bytes = 16384;
    options.depth = 2;
    int noticed = 0;
    int named = 0;
    std::string unnamed;
    with_session(
        {{2}, {Shard(0)}}, target, test.source, options,
        [&](comm::Communicator& world, Session& session, TestSource& source) {
            int version = 0;
            for (int i = 0; i < test.flips; ++i) {
                if (test.mode == Mode::delta) {
                    session.push(++version);
                    const Tensor& local =
                        source.tensors()[static_cast<std::size_t>(i) % 2 * 2].tensor.local();
                    for (int k = 0; k < 20; ++k) local.raw()[(i * 37 + k * 53) % 1500] ^= std::byte{0x40};
                }
                if (world.rank() == 0) shared->armed = true;
                std::string what;
                try {
                    session.push(++version);
                } catch (const SyncError& error) {
                    what = error.what();
                }
                if (world.rank() != 0) continue;
                shared->armed = false;
                noticed += what.empty() ? 0 : 1;
                const bool by_name = what.find("tensor '" + shared->tensor + "'") != std::string::npos;
                named += by_name ? 1 : 0;
                if (!by_name && unnamed.empty()) unnamed = shared->tensor + " in: " + what;
            }
            if (world.rank() == 0) shared->armed = false;
            session.push(++version);  // and the next one heals
            EXPECT_TRUE(session.weights_match().match);
        },
        [&](std::unique_ptr<engine::Engine> engine) {
            return std::make_unique<FlippingEngine>(std::move(engine), shared);
        });
    EXPECT_EQ(shared->transfers_hit, test.flips);
    EXPECT_EQ(noticed, test.flips);
    EXPECT_EQ(named, test.flips) << unnamed;
    set_log_level(level);
}

TEST(Flips, FourThousandInGather) {
    expect_all_noticed({Mode::gather, DType::bfloat16, 2000});
    expect_all_noticed({Mode::gather, DType::float32, 2000});
}

TEST(Flips, ThreeThousandInDirect) {
    expect_all_noticed({Mode::direct, DType::bfloat16, 3000});
}

TEST(Flips, ThreeThousandInDelta) {
    expect_all_noticed({Mode::delta, DType::bfloat16, 3000});
}

}  // namespace
}  // namespace tandem::sync
