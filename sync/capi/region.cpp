#include "sync/capi/region.h"

#include <cstdint>
#include <utility>

#include "common/device/memory.h"
#include "common/error.h"

namespace tandem::sync::capi {
namespace {

template <typename Managed>
struct Region {
    Region(std::shared_ptr<comm::Communicator> of, std::size_t bytes)
        : world(std::move(of)),
          buffer(bytes, "published weights", world->memory()),
          length(static_cast<std::int64_t>(bytes)) {
        managed.tensor.data = buffer.data();
        managed.tensor.ndim = 1;
        managed.tensor.shape = &length;
        managed.tensor.strides = &stride;
        managed.context = this;
        managed.deleter = [](Managed* self) { delete static_cast<Region*>(self->context); };
    }

    std::shared_ptr<comm::Communicator> world;  // before the buffer, whose memory it is
    Buffer buffer;
    std::int64_t length;
    std::int64_t stride = 1;
    Managed managed;
};

template <typename Managed>
Managed* make(std::shared_ptr<comm::Communicator> world, std::size_t bytes) {
    enforce(bytes > 0, "a region of no bytes");
    return &(new Region<Managed>(std::move(world), bytes))->managed;
}

}  // namespace

dlpack::ManagedVersioned* make_versioned_region(std::shared_ptr<comm::Communicator> world,
                                                std::size_t bytes) {
    return make<dlpack::ManagedVersioned>(std::move(world), bytes);
}

dlpack::Managed* make_region(std::shared_ptr<comm::Communicator> world, std::size_t bytes) {
    return make<dlpack::Managed>(std::move(world), bytes);
}

}  // namespace tandem::sync::capi
