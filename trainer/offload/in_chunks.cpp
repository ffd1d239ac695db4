#include "trainer/offload/in_chunks.h"

#include <algorithm>
#include <array>

namespace tandem::trainer {
namespace {

class Chunks {
  public:
    Chunks(Stream& in, Stream& out, std::span<FlatState* const> states)
        : in_(in), out_(out), states_(states), chunk_(chunk_elements(in.device())) {
        const std::int64_t numel = states[0]->numel();
        for (auto& set : buffers_) {
            for (const FlatState* state : states) {
                require(state->numel() == numel, "states of {} and {} elements in one pass", numel,
                        state->numel());
                set.push_back(state->resident() ? Tensor()
                                                : Tensor::empty({std::min(chunk_, numel)}, DType::float32,
                                                                "offload_chunks", device_pool(in.device())));
            }
        }
    }

    std::int64_t first(std::int64_t chunk) const { return chunk * chunk_; }
    std::int64_t count() const { return (states_[0]->numel() + chunk_ - 1) / chunk_; }

    std::vector<Tensor> parts(std::int64_t chunk) const {
        const std::int64_t begin = first(chunk);
        const std::int64_t numel = std::min(chunk_, states_[0]->numel() - begin);
        const auto& set = buffers_[set_of(chunk)];
        std::vector<Tensor> result;
        for (std::size_t i = 0; i < states_.size(); ++i) {
            const bool resident = states_[i]->resident();
            result.push_back(resident ? states_[i]->tensor().rows(begin, numel) : set[i].rows(0, numel));
        }
        return result;
    }

    // Into the set of the chunk kChunksAlive before, when that has been written back.
    Event read(std::int64_t chunk) {
        const auto all = parts(chunk);
        in_.wait(written_[set_of(chunk)]);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!states_[i]->resident()) states_[i]->read(in_, first(chunk), all[i]);
        }
        return in_.record();
    }

    void write(std::int64_t chunk, const Event& computed) {
        const auto all = parts(chunk);
        out_.wait(computed);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!states_[i]->resident()) states_[i]->write(out_, first(chunk), all[i]);
        }
        written_[set_of(chunk)] = out_.record();
    }

  private:
    static std::size_t set_of(std::int64_t chunk) { return static_cast<std::size_t>(chunk % kChunksAlive); }

    Stream& in_;
    Stream& out_;
    std::span<FlatState* const> states_;
    std::int64_t chunk_;  // elements
    std::array<std::vector<Tensor>, kChunksAlive> buffers_;
    std::array<Event, kChunksAlive> written_;
};

}  // namespace

void in_chunks(Stream& in, Stream& out, Stream& compute, std::span<FlatState* const> states,
               const std::function<void(std::int64_t, const std::vector<Tensor>&)>& body) {
    Chunks chunks(in, out, states);
    const std::int64_t count = chunks.count();
    in.wait(compute.record());  // a GPU's chunks are the compute stream's first
    try {
        Event ready = count > 0 ? chunks.read(0) : Event();
        for (std::int64_t chunk = 0; chunk < count; ++chunk) {
            const Event here = ready;
            if (chunk + 1 < count) ready = chunks.read(chunk + 1);
            compute.wait(here);
            body(chunks.first(chunk), chunks.parts(chunk));
            chunks.write(chunk, compute.record());
        }
        in.synchronize();
        out.synchronize();
    } catch (...) {
        // The buffers must outlive outstanding copies; the first error is the one to report.
        for (Stream* io : {&in, &out}) {
            try {
                io->synchronize();
            } catch (const std::exception&) {
            }
        }
        throw;
    }
}

}  // namespace tandem::trainer
