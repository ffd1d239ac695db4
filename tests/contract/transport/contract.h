// The contract of every transport. A backend joins with a factory that gives one connected transport, memory
// to take weights from, and the weights at the other end.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "common/error.h"
#include "engine_adapter/transport/transport.h"
#include "tests/support/soon.h"

namespace tandem::engine {

using test::soon;

// One end to end set-up. The engine at the other end holds TransportRig::tensors() and a whole version of
// them (all bytes zero); nothing is attached.
class TransportRig {
  public:
    static constexpr std::size_t kBytes = 1 << 20;
    static std::vector<TensorInfo> tensors() {
        return {{"a", {kBytes / 2}, DType::bfloat16}, {"b", {512, 512}, DType::float32}};
    }
    static constexpr std::size_t kRegionBytes = 4 << 20;

    virtual ~TransportRig() = default;
    virtual Transport& transport() = 0;
    virtual std::vector<Region> regions() = 0;  // two of kRegionBytes each
    // write: from the host into a region; the bytes are there when it returns. weights: of a tensor, as they
    // are now.
    virtual void write(std::size_t region, std::size_t offset, ConstSpan bytes) = 0;
    virtual std::vector<std::byte> weights(int tensor) = 0;
    void open(std::int64_t version) {  // begin, after attach
        connection_->request({{"op", "begin"}, {"version", version}}, "begin", Deadline::after_ms(20'000));
    }
    virtual void stop_engine() = 0;

  protected:
    std::shared_ptr<Connection> connection_;
};

using RigFactory = std::function<std::unique_ptr<TransportRig>()>;
struct Backend {
    std::string name;
    RigFactory make;
    bool takes_changes = true;  // load_delta
};
inline void PrintTo(const Backend& backend, std::ostream* out) {
    *out << backend.name;
}

class TransportContract : public testing::TestWithParam<Backend> {
  protected:
    TransportContract() {
        // Bytes that tell where they lie; as bfloat16 and as float32 they are ordinary numbers.
        for (std::size_t r = 0; r < 2; ++r) {
            std::vector<std::uint16_t> words(TransportRig::kRegionBytes / 2);
            for (std::size_t i = 0; i < words.size(); ++i)
                words[i] = static_cast<std::uint16_t>(0x3f00u + (i * 7 + r * 31 + (i >> 7)) % 251);
            images_[r].resize(TransportRig::kRegionBytes);
            std::memcpy(images_[r].data(), words.data(), images_[r].size());
            rig_->write(r, 0, {images_[r].data(), images_[r].size()});
        }
    }

    // "a" in 64 buckets of one piece, "b" in one bucket of four pieces: both halves of its columns, the upper
    // rows from region 1.
    static TransferPlan plan() {
        TransferPlan result;
        constexpr std::uint64_t kPiece = TransportRig::kBytes / 64;
        for (std::uint64_t i = 0; i < 64; ++i) {
            result.transfers.push_back(
                {0, 5, 0, DType::bfloat16, 1, kPiece / 2, (63 - i) * kPiece, 0, i * kPiece, 0});
            result.first.push_back(i + 1);
        }
        for (std::uint64_t i = 0; i < 4; ++i) {
            const std::uint64_t to = i % 2 * 1024 + i / 2 * 256 * 2048;
            result.transfers.push_back({1, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i / 2),
                                        DType::float32, 256, 256, 1 << 20 | i << 18, 1024, to, 2048});
        }
        result.first.push_back(68);
        return result;
    }
    // Row by row.
    std::vector<std::byte> bytes_of(const Transfer& t) const {
        const std::size_t row = t.row_elements * dtype_size(t.from_dtype);
        std::vector<std::byte> bytes;
        for (std::uint64_t r = 0; r < t.rows; ++r) {
            const std::byte* from = images_[t.region].data() + t.from + r * t.from_stride;
            bytes.insert(bytes.end(), from, from + row);
        }
        return bytes;
    }
    std::vector<ops::Checksum> checksums_of(int bucket) const {
        std::vector<ops::Checksum> result;
        const auto b = static_cast<std::size_t>(bucket);
        for (std::size_t i = plan_.first[b]; i < plan_.first[b + 1]; ++i) {
            const auto bytes = bytes_of(plan_.transfers[i]);
            result.push_back(ops::checksum({bytes.data(), bytes.size()}));
        }
        return result;
    }
    void load(int bucket) { transport_.load(bucket, checksums_of(bucket), soon()); }
    void expect_transfer(const Transfer& t) const {
        const auto bytes = bytes_of(t);
        const std::size_t row = bytes.size() / t.rows;
        const std::vector<std::byte> weights = rig_->weights(static_cast<int>(t.tensor));
        for (std::uint64_t r = 0; r < t.rows; ++r) {
            ASSERT_EQ(std::memcmp(weights.data() + t.to + r * t.to_stride, bytes.data() + r * row, row), 0)
                << "tensor " << t.tensor << " at " << t.to << ", row " << r;
        }
    }
    void expect_bucket(int bucket) const {
        const auto b = static_cast<std::size_t>(bucket);
        for (std::size_t i = plan_.first[b]; i < plan_.first[b + 1]; ++i) expect_transfer(plan_.transfers[i]);
    }
    void flip(std::size_t region, std::size_t offset) {
        images_[region][offset] ^= std::byte{1};
        rig_->write(region, offset, {images_[region].data() + offset, 1});
    }
    void attach_and_open() {
        transport_.attach(regions_, plan_, soon());
        rig_->open(2);
    }

    std::unique_ptr<TransportRig> rig_ = GetParam().make();
    Transport& transport_ = rig_->transport();
    const std::vector<Region> regions_ = rig_->regions();
    std::vector<std::byte> images_[2];  // what the regions hold
    TransferPlan plan_ = plan();
};

}  // namespace tandem::engine
