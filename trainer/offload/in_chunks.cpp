#include "trainer/offload/in_chunks.h"

#include <algorithm>
#include <array>

namespace tandem::trainer {
namespace {

class Chunks {
  public:
    Chunks(Stream& io, std::span<FlatState* const> states) : io_(io), states_(states) {
        const std::int64_t numel = states[0]->numel();
        for (auto& set : buffers_) {
            for (const FlatState* state : states) {
                require(state->numel() == numel, "states of {} and {} elements in one pass", numel,
                        state->numel());
                set.push_back(state->resident()
                                  ? Tensor()
                                  : Tensor::empty({std::min(kChunkElements, numel)}, DType::float32,
                                                  "offload_chunks", device_pool(io.device())));
            }
        }
    }

    std::int64_t count() const { return (states_[0]->numel() + kChunkElements - 1) / kChunkElements; }

    std::vector<Tensor> parts(std::int64_t chunk) const {
        const std::int64_t first = chunk * kChunkElements;
        const std::int64_t numel = std::min(kChunkElements, states_[0]->numel() - first);
        const auto& set = buffers_[static_cast<std::size_t>(chunk % kChunksAlive)];
        std::vector<Tensor> result;
        for (std::size_t i = 0; i < states_.size(); ++i) {
            const bool resident = states_[i]->resident();
            result.push_back(resident ? states_[i]->tensor().rows(first, numel) : set[i].rows(0, numel));
        }
        return result;
    }

    // The set's last chunk was written back before this in the stream's order.
    Event read(std::int64_t chunk) {
        const auto all = parts(chunk);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!states_[i]->resident()) states_[i]->read(io_, chunk * kChunkElements, all[i]);
        }
        return io_.record();
    }

    void write(std::int64_t chunk) {
        const auto all = parts(chunk);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!states_[i]->resident()) states_[i]->write(io_, chunk * kChunkElements, all[i]);
        }
    }

  private:
    Stream& io_;
    std::span<FlatState* const> states_;
    std::array<std::vector<Tensor>, kChunksAlive> buffers_;
};

}  // namespace

void in_chunks(Stream& io, Stream& compute, std::span<FlatState* const> states,
               const std::function<void(std::int64_t, const std::vector<Tensor>&)>& body) {
    Chunks chunks(io, states);
    const std::int64_t count = chunks.count();
    io.wait(compute.record());  // a GPU's chunks are the compute stream's first
    try {
        Event ready = count > 0 ? chunks.read(0) : Event();
        for (std::int64_t chunk = 0; chunk < count; ++chunk) {
            const Event here = ready;
            if (chunk + 1 < count) ready = chunks.read(chunk + 1);
            compute.wait(here);
            body(chunk * kChunkElements, chunks.parts(chunk));
            io.wait(compute.record());
            chunks.write(chunk);
        }
    } catch (...) {
        // The buffers must outlive what is still under way; the first error is the one to tell.
        try {
            io.synchronize();
        } catch (const std::exception&) {
        }
        throw;
    }
    io.synchronize();
}

}  // namespace tandem::trainer
