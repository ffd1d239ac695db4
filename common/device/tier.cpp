// The part common to all tiers, and the tier of pinned host memory.
#include "common/device/tier.h"

#include "common/device/memory.h"
#include "common/device/memory_stats.h"
#include "common/error.h"

namespace tandem {
namespace {

void require_cpu(const Stream& stream) {
    require(stream.device().type == DeviceType::cpu,
            "stream '{}' is on {}, and an offload file takes streams of the CPU only: use a pinned tier",
            stream.name(), to_string(stream.device()));
}

class PinnedTier final : public Tier {
  public:
    PinnedTier(std::uint64_t bytes, std::string_view tag) {
        if (tag.empty()) {
            bare_ = {pinned_pool().allocate(bytes), bytes};
        } else {
            counted_ = Buffer(bytes, tag, pinned_pool());
        }
        Stream now = Stream::make_inline();
        fill_zero(now, memory());
    }
    ~PinnedTier() override {
        if (bare_.data != nullptr) pinned_pool().release(bare_.data, bare_.bytes);
    }
    PinnedTier(const PinnedTier&) = delete;
    PinnedTier& operator=(const PinnedTier&) = delete;
    std::uint64_t bytes() const override { return memory().bytes; }
    void write(std::uint64_t offset, ConstSpan from) override {
        Stream now = Stream::make_inline();
        write(now, offset, from);
    }
    void read(std::uint64_t offset, Span to) override {
        Stream now = Stream::make_inline();
        read(now, offset, to);
    }
    void write(Stream& stream, std::uint64_t offset, ConstSpan from) override {
        copy(stream, from, range(offset, from.bytes));
    }
    void read(Stream& stream, std::uint64_t offset, Span to) override {
        copy(stream, range(offset, to.bytes), to);
    }

  private:
    Span range(std::uint64_t offset, std::size_t length) const {
        require(offset <= bytes() && length <= bytes() - offset, "pinned memory: bytes [{}, +{}) of {}",
                offset, length, bytes());
        return memory().subspan(offset, length);
    }
    Span memory() const { return bare_.data != nullptr ? bare_ : counted_.span(); }
    Buffer counted_;
    Span bare_;
};

}  // namespace

void Tier::write(Stream& stream, std::uint64_t offset, ConstSpan from) {
    require_cpu(stream);
    stream.enqueue([this, offset, from] { write(offset, from); });
}

void Tier::read(Stream& stream, std::uint64_t offset, Span to) {
    require_cpu(stream);
    stream.enqueue([this, offset, to] { read(offset, to); });
}

std::unique_ptr<Tier> make_pinned_tier(std::uint64_t bytes, std::string_view tag) {
    return std::make_unique<PinnedTier>(bytes, tag);
}

ReleasedPages::~ReleasedPages() {
    detail::count_allocation(tag_, range_.bytes);
}

}  // namespace tandem
