// A trainer's transfer plan, unpacked and checked as the receiver does it. What is accepted must be what the
// rest of the receiver takes for granted: it covers every byte of every tensor once, and its buckets can be
// copied without a further question.
//   first byte, mod 2:   0 numbers of transfers and of buckets, a byte each, and the payload of an attach
//                        1 transfers of small numbers: a byte a field, and one that ends a bucket when it is odd
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "common/error.h"
#include "engine_adapter/channel/channel.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/receiver/attachment.h"
#include "engine_adapter/receiver/weight_writer.h"
#include "tests/fuzz/target.h"

namespace {

using namespace tandem;
using namespace tandem::engine;

constexpr std::size_t kFields = 10;  // of a transfer of small numbers

void require_that(bool holds) {
    if (!holds) std::abort();
}

// Memory of just so many bytes, so that the address sanitizer sees the next one.
class Exact {
  public:
    explicit Exact(std::size_t bytes) : memory_(new std::byte[bytes]), bytes_(bytes) {
        for (std::size_t i = 0; i < bytes; ++i) memory_[i] = static_cast<std::byte>(i * 37 + i / 256);
    }
    Span span() const { return {memory_.get(), bytes_}; }

  private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t bytes_;
};

// An engine rank's tensors and a trainer's regions.
struct Rig {
    std::vector<Exact> memory;
    std::vector<WeightSlot> weights;
    std::vector<MappedRegion> regions;

    Rig() {
        const std::vector<TensorInfo> tensors{{"a", {4, 16}, DType::float32},
                                              {"b", {50}, DType::bfloat16},
                                              {"c", {3, 7}, DType::uint8},
                                              {"none", {0, 4}, DType::float32}};
        for (const TensorInfo& tensor : tensors)
            weights.push_back({tensor, memory.emplace_back(tensor_bytes(tensor)).span()});
        for (const std::size_t bytes : {std::size_t{1024}, std::size_t{100}})
            regions.push_back({memory.emplace_back(bytes).span(), {}, nullptr});
    }
};

TransferPlan small_plan(std::string_view fields) {
    TransferPlan plan;
    for (std::size_t at = 0; at + kFields <= fields.size(); at += kFields) {
        const auto field = [&](std::size_t i) { return static_cast<std::uint8_t>(fields[at + i]); };
        Transfer& t = plan.transfers.emplace_back();
        t.tensor = field(0);
        t.region = field(1);
        t.from_dtype.number = field(2) % (static_cast<std::uint32_t>(DType::int8) + 1);
        t.rows = field(3);
        t.row_elements = field(4);
        t.from = field(5);
        t.from_stride = field(6);
        t.to = field(7);
        t.to_stride = field(8);
        if (field(9) % 2 == 1) plan.first.push_back(plan.transfers.size());
    }
    return plan;
}

TransferPlan packed_plan(std::string_view bytes) {
    const std::string payload(bytes.substr(2));
    const ConstSpan span{reinterpret_cast<const std::byte*>(payload.data()), payload.size()};
    TransferPlan plan =
        messages::unpack_plan(span, static_cast<std::uint8_t>(bytes[0]), static_cast<std::uint8_t>(bytes[1]));
    const std::vector<std::byte> again = messages::pack_plan(plan);
    require_that(again.size() == payload.size() &&
                 std::memcmp(again.data(), payload.data(), payload.size()) == 0);
    return plan;
}

void require_each_byte_once(const Attachment& attached, const Rig& rig) {
    std::vector<std::vector<int>> written;
    for (const WeightSlot& weight : rig.weights) written.emplace_back(weight.memory.bytes);
    for (const Transfer& t : attached.plan().transfers) {
        const std::size_t width = dtype_size(rig.weights[t.tensor].info.dtype);
        for (std::uint64_t row = 0; row < t.rows; ++row) {
            for (std::uint64_t byte = 0; byte < t.row_elements * width; ++byte)
                ++written[t.tensor].at(t.to + row * t.to_stride + byte);
        }
    }
    for (const auto& tensor : written) {
        for (const int times : tensor) require_that(times == 1);
    }
}

// As a load and a verify do it.
void copy_all(const Attachment& attached) {
    WeightWriter writer(Device{});
    for (std::size_t b = 0; b < attached.plan().buckets(); ++b) {
        const auto transfers = attached.plan().bucket(b);
        const std::vector<ops::Checksum> copied =
            writer.write_all(attached.device(), transfers.size(),
                             [&](std::size_t i) { return attached.copy_of(transfers[i]); });
        const auto& read = writer.checksums(transfers.size(),
                                            [&](std::size_t i) { return attached.reading_of(transfers[i]); });
        require_that(copied == read);
    }
}

void read_in_place(const Attachment& attached, const Rig& rig) {
    for (const std::uint64_t shift : {std::uint64_t{0}, std::uint64_t{64}, ~std::uint64_t{0} - 3}) {
        try {
            const std::vector<Span> places = attached.in_place(shift);
            for (std::size_t i = 0; i < places.size(); ++i) {
                require_that(places[i].bytes == rig.weights[i].memory.bytes);
                ops::checksum(places[i]);
            }
        } catch (const ProtocolError&) {
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    const Rig rig;
    try {
        TransferPlan plan = data[0] % 2 == 0 ? packed_plan(rest) : small_plan(rest);
        const Attachment attached(rig.regions, std::move(plan), rig.weights);
        require_each_byte_once(attached, rig);
        copy_all(attached);
        read_in_place(attached, rig);
    } catch (const ProtocolError&) {  // MalformedMessage too
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const TransferPlan plan{{{0, 1, 0, DType::float32, 1, 32, 0, 0, 0, 0},
                             {0, 1, 0, DType::float32, 1, 32, 256, 0, 128, 0},
                             {1, 1, 0, DType::bfloat16, 1, 50, 512, 0, 0, 0},
                             {2, 0, 1, DType::uint8, 3, 7, 5, 14, 0, 7}},
                            {0, 2, 4}};
    const std::vector<std::byte> packed = messages::pack_plan(plan);
    // "a" by columns, one half cast from bfloat16; "b" in one row; "c" from below.
    const std::string b{1, 0, 1, 1, 50, 0, 0, 0, 0, 1};
    const std::string small =
        std::string{0, 0, 1, 4, 8, 100, 48, 0, 64, 0} + std::string{0, 0, 0, 4, 8, 0, 32, 32, 64, 1} + b +
        std::string{2, 1, 4, 1, 7, 0, 0, 14, 0, 0} + std::string{2, 1, 4, 2, 7, 7, 7, 0, 7, 1};
    return {std::string{0, 4, 2} + std::string(reinterpret_cast<const char*>(packed.data()), packed.size()),
            std::string(1, '\1') + small, std::string(1, '\1') + b};
}
