// The GPUs, as a kind of GPU (device_backend.h), and what state is offloaded to. Without exported memory and events: no other
// process is there.
#include <utility>

#include "common/device/counting/counting.h"
#include "common/device/memory_stats.h"
#include "common/error.h"

namespace tandem::detail::counting {
namespace {

class Arena final : public VirtualArena::Impl {
  public:
    Arena(Device device, std::size_t bytes, std::string_view tag, bool pages)
        : span_{pool(device).allocate(bytes), bytes}, device_(device), tag_(memory_tag(tag)) {
        if (pages) restore_pages();
    }
    ~Arena() override {
        release_pages();
        pool(device_).release(span_.data, span_.bytes);
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Device device() const override { return device_; }
    Span span() const override { return span_; }
    bool has_pages() const override { return has_pages_; }
    void release_pages() override {
        if (std::exchange(has_pages_, false)) count_release(tag_, span_.bytes);
    }
    void restore_pages() override {
        if (!std::exchange(has_pages_, true)) count_allocation(tag_, span_.bytes);
    }
    int export_fd() const override {
        throw InvalidArgument("memory that is only counted is shared with nobody");
    }

  private:
    Span span_;
    Device device_;
    int tag_;
    bool has_pages_ = false;
};

class EmptyTier final : public Tier {
  public:
    explicit EmptyTier(std::uint64_t bytes) : bytes_(bytes) {}
    using Tier::read;
    using Tier::write;
    std::uint64_t bytes() const override { return bytes_; }
    void write(std::uint64_t, ConstSpan) override {}
    void read(std::uint64_t, Span) override {}

  private:
    std::uint64_t bytes_;
};

const Gpus& one_gpu() {
    static const Gpus one{{{{"a GPU whose memory is only counted", 0, 0, "it has no peers", ""}, ""}}, ""};
    return one;
}

}  // namespace

std::unique_ptr<Tier> make_tier(std::uint64_t bytes) {
    return std::make_unique<EmptyTier>(bytes);
}

const DeviceBackend& gpu_backend() {
    static const DeviceBackend table{
        .gpus = one_gpu,
        .pinned_pool = []() -> MemoryPool& { return pool(Device{}); },
        .make_stream = [](Device device,
                          std::string name) { return make_stream(device, std::move(name), false); },
        .pool = pool,
        .trim_pool = [](Device) {},
        .make_virtual_arena = [](Device device, std::size_t bytes, std::string_view tag,
                                 bool pages) -> std::shared_ptr<VirtualArena::Impl> {
            return std::make_shared<Arena>(device, bytes, tag, pages);
        },
    };
    return table;
}

}  // namespace tandem::detail::counting
