// Changes that an engine reads in a trainer's memory, which becomes something else between their check and
// their use.
//   byte 0   mod 4: the codec; bit 2: what is fuzzed (below); bit 3: elements of 4 bytes, else 2
//   byte 1   rows, mod 5        byte 2   elements of a row        byte 3   elements between two rows, mod 8
//   byte 4, 5   bytes of the encoding, which follows, at most all that is left; behind it: what its memory becomes
// Either the receiver's Changes: what lands in the weights is what was verified, whatever comes later. Or the
// innermost writer with marks that nobody has checked: it stays within its bounds.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "common/error.h"
#include "common/ops/cpu/delta_apply.h"
#include "engine_adapter/receiver/changes.h"
#include "tests/fuzz/target.h"

namespace {

using namespace tandem;
using namespace tandem::engine;
using ops::DeltaCodec;
using Bytes = std::vector<std::byte>;

constexpr std::byte kBefore{0xee};  // of the weights

void require_that(bool holds) {
    if (!holds) std::abort();
}

// Memory of just so many bytes, so that the address sanitizer sees the next one.
class Exact {
  public:
    explicit Exact(std::size_t bytes, std::byte value = kBefore)
        : memory_(new std::byte[bytes]), bytes_(bytes) {
        std::fill_n(memory_.get(), bytes, value);
    }
    explicit Exact(std::string_view bytes) : Exact(bytes.size()) { become(bytes); }
    void become(std::string_view bytes) {
        if (const std::size_t count = std::min(bytes.size(), bytes_); count > 0)
            std::memcpy(memory_.get(), bytes.data(), count);
    }
    Span span() const { return {memory_.get(), bytes_}; }

  private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t bytes_;
};

struct Input {
    DeltaCodec codec;
    std::size_t width, rows, row_elements, gap;
    std::string_view encoding, later;

    std::size_t elements() const { return rows * row_elements; }
    std::size_t row_bytes() const { return row_elements * width; }
    std::size_t stride() const { return row_bytes() + gap * width; }
};

// By the words of delta.h, element by element. None: the encoding makes no sense.
std::optional<Bytes> applied(const Input& in) {
    std::vector<std::size_t> changed;
    std::size_t values_at = 0, end = in.encoding.size();
    const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(in.encoding[at]); };
    if (in.codec == DeltaCodec::dense) {
        for (std::size_t e = 0; e < in.elements(); ++e) changed.push_back(e);
    } else if (in.codec == DeltaCodec::bitmap) {
        values_at = (in.elements() + 7) / 8;
        if (values_at > end) return {};
        for (std::size_t bit = 0; bit < values_at * 8; ++bit)
            if ((byte(bit / 8) >> (bit % 8) & 1u) != 0) changed.push_back(bit);
    } else if (in.codec == DeltaCodec::gaps) {
        std::uint32_t count = 0;
        if (end < sizeof count) return {};
        std::memcpy(&count, in.encoding.data(), sizeof count);
        values_at = sizeof count;
        const std::size_t gaps_at = values_at + std::size_t{count} * in.width;
        if (gaps_at > end) return {};
        std::size_t next = 0;
        for (std::size_t at = gaps_at; at < end; ++at) {
            next += byte(at);
            if (byte(at) != 255) changed.push_back(next++);
        }
        if (changed.size() != count || (end > gaps_at && byte(end - 1) == 255)) return {};
        end = gaps_at;
    }
    if (end - values_at != changed.size() * in.width) return {};
    if (!changed.empty() && changed.back() >= in.elements()) return {};
    Bytes weights(in.rows * in.stride(), kBefore);
    for (std::size_t i = 0; i < changed.size(); ++i) {
        const std::size_t to =
            changed[i] / in.row_elements * in.stride() + changed[i] % in.row_elements * in.width;
        std::memcpy(weights.data() + to, in.encoding.data() + values_at + i * in.width, in.width);
    }
    return weights;
}

// An engine with one tensor: columns that change, and some that do not. Its plan takes them from region 1;
// the encodings lie in region 0.
void through_the_receiver(const Input& in) {
    if (in.elements() == 0) return;
    const auto columns = static_cast<std::int64_t>(in.row_elements + in.gap);
    const DType dtype = in.width == 2 ? DType::bfloat16 : DType::float32;
    Exact region(in.encoding);
    const Exact values(in.rows * in.stride());
    const Exact memory(in.rows * in.stride());
    const std::vector<WeightSlot> weights{
        {{"x", {static_cast<std::int64_t>(in.rows), columns}, dtype}, memory.span()}};
    TransferPlan plan{{{0, 0, 1, dtype, in.rows, in.row_elements, 0, in.stride(), 0, in.stride()}}, {0, 1}};
    if (in.gap > 0) {
        plan.transfers.push_back(
            {0, 0, 1, dtype, in.rows, in.gap, in.row_bytes(), in.stride(), in.row_bytes(), in.stride()});
        plan.first = {0, 2};
    }
    const Attachment attached({{region.span(), {}, nullptr}, {values.span(), {}, nullptr}}, plan, weights);
    WeightWriter writer(Device{});
    Changes changes(weights, writer);
    const DeltaEntry entry{0, static_cast<std::uint32_t>(in.codec), 0, in.encoding.size(),
                           ops::checksum(region.span())};
    const std::optional<Bytes> expected = applied(in);
    try {
        changes.check(0, entry, attached, "");
        changes.take(0, {&entry, 1}, attached);
    } catch (const ProtocolError&) {
        require_that(!expected ||
                     in.encoding.size() > in.elements() * in.width);  // far longer than its elements
        return;
    }
    const bool dense = in.codec == DeltaCodec::dense;
    if (!dense) region.become(in.later);  // dense is written as it lies there, and compared afterwards
    try {
        changes.apply();
    } catch (const ProtocolError&) {
        require_that(!expected);
        return;
    }
    require_that(expected && std::memcmp(expected->data(), memory.span().data, expected->size()) == 0);
}

// What was checked becomes something else; or was never checked at all.
void past_the_check(const Input& in) {
    if (in.codec != DeltaCodec::gaps && in.codec != DeltaCodec::bitmap) return;
    Exact encoding(in.encoding);
    ops::detail::DeltaParts parts;
    try {
        parts = ops::detail::check_delta(in.codec, encoding.span(), in.width, in.elements());
    } catch (const ProtocolError&) {
        const std::size_t half = in.encoding.size() / 2;
        parts = {encoding.span().subspan(0, half), encoding.span().subspan(half, in.encoding.size() - half)};
    }
    encoding.become(in.later);
    // The last row ends with its last element.
    const Exact target(in.elements() == 0 ? 0 : (in.rows - 1) * in.stride() + in.row_bytes());
    const Span memory = target.span();
    try {
        ops::detail::write_delta(in.codec, parts,
                                 {memory.data, in.width, in.rows, in.row_elements, in.stride()});
    } catch (const ProtocolError&) {
    }
    for (std::size_t at = 0; at < memory.bytes; ++at)
        require_that(at % in.stride() < in.row_bytes() || memory.data[at] == kBefore);
}

std::string seed(DeltaCodec codec, unsigned flags, int rows, int row_elements, int gap,
                 const std::string& encoding, const std::string& later) {
    return std::string{static_cast<char>(static_cast<unsigned>(codec) | flags),
                       static_cast<char>(rows),
                       static_cast<char>(row_elements),
                       static_cast<char>(gap),
                       static_cast<char>(encoding.size()),
                       0} +
           encoding + later;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t kHead = 6;
    if (size < kHead) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(data) + kHead, size - kHead);
    const std::size_t length = std::min<std::size_t>(data[4] + 256u * data[5], rest.size());
    const Input in{static_cast<DeltaCodec>(data[0] % 4),
                   (data[0] & 8u) != 0 ? 4u : 2u,
                   data[1] % 5u,
                   data[2],
                   data[3] % 8u,
                   rest.substr(0, length),
                   rest.substr(length)};
    (data[0] & 4u) == 0 ? through_the_receiver(in) : past_the_check(in);
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::string gaps = std::string{2, 0, 0, 0} + "aabb" + std::string{3, 5};
    const std::string far = std::string{1, 0, 0, 0} + "aaaa" + std::string{'\xff', 9};
    const std::string bitmap = std::string{'\x81', 1} + "aabbcc";
    std::vector<std::string> seeds{seed(DeltaCodec::none, 0, 2, 5, 1, "", ""),
                                   seed(DeltaCodec::dense, 0, 2, 2, 1, "aabbccdd", "xx")};
    for (const unsigned flags : {0u, 4u}) {
        seeds.push_back(seed(DeltaCodec::gaps, flags, 2, 6, 3, gaps, std::string(7, '\xfe')));
        seeds.push_back(seed(DeltaCodec::gaps, flags | 8u, 3, 99, 0, far, std::string(40, '\0')));
        seeds.push_back(seed(DeltaCodec::bitmap, flags, 3, 4, 1, bitmap, std::string(8, '\xff')));
    }
    return seeds;
}
