#include "sync/bench/source.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "common/align.h"
#include "common/ops/shared/half.h"
#include "common/thread.h"

namespace tandem::sync {
namespace {

// xorshift: fast enough to write billions of values.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed == 0 ? 1 : seed) {}
    std::uint64_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_;
    }
    double unit() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }  // (0, 1]

  private:
    std::uint64_t state_;
};

float value_of(std::uint64_t bits) {  // in [-1, 1)
    return static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31f;
}

void put(const Tensor& tensor, std::int64_t index, std::uint64_t bits) {
    if (tensor.dtype() == DType::bfloat16) {
        reinterpret_cast<bfloat16*>(tensor.raw())[index] = bfloat16(value_of(bits));
    } else if (tensor.dtype() == DType::float16) {
        reinterpret_cast<float16*>(tensor.raw())[index] = float16(ops::shared::half_bits(value_of(bits)));
    } else {
        reinterpret_cast<float*>(tensor.raw())[index] = value_of(bits);
    }
}

// Other values for the elements from `begin`, an even number: one bit of each mantissa turned.
void turn_all(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
    const bool narrow = dtype_size(tensor.dtype()) == 2;
    const std::uint32_t bit = narrow ? 0x00100010u : 0x00100000u;
    const std::size_t width = dtype_size(tensor.dtype());
    auto* word = reinterpret_cast<std::uint32_t*>(tensor.raw() + static_cast<std::size_t>(begin) * width);
    const std::size_t words = static_cast<std::size_t>(end - begin) * width / sizeof(*word);
    for (std::size_t i = 0; i < words; ++i) word[i] ^= bit;
    if (narrow && (end - begin) % 2 != 0)  // the last of an odd number
        reinterpret_cast<std::uint16_t*>(tensor.raw())[end - 1] ^= 0x10;
}
void turn(const Tensor& tensor, std::int64_t index) {
    if (dtype_size(tensor.dtype()) == 2) {
        reinterpret_cast<std::uint16_t*>(tensor.raw())[index] ^= 0x10;
    } else {
        float& value = reinterpret_cast<float*>(tensor.raw())[index];
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 0x100000u);
    }
}

constexpr std::int64_t kBlock = 1 << 20;  // elements that one thread makes at a time

}  // namespace

template <typename Work>
void SyntheticSource::each_block(const Work& work) {
    struct Block {
        std::size_t tensor;
        std::int64_t begin;
    };
    std::vector<Block> blocks;
    for (std::size_t t = 0; t < host_.size(); ++t) {
        for (std::int64_t at = 0; at < host_[t].numel(); at += kBlock) blocks.push_back({t, at});
    }
    std::atomic<std::size_t> next{0};
    const auto run = [&](std::size_t) {
        for (std::size_t b = next++; b < blocks.size(); b = next++) {
            const auto [t, begin] = blocks[b];
            work(host_[t], begin, std::min(begin + kBlock, host_[t].numel()),
                 seeds_[t] ^ static_cast<std::uint64_t>(begin) * 0xd6e8feb86659fd93ull);
        }
    };
    run_on_threads(std::min(threads_, blocks.size()), "that fills tensors", run);
}

SyntheticSource::SyntheticSource(const std::vector<engine::TensorInfo>& tensors, const DeviceMesh& all,
                                 const Holdings& held, DType dtype, Device device)
    : device_(device),
      threads_(std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(all.size()))) {
    const bool on_gpu = device.type == DeviceType::cuda;
    MemoryPool& memory = on_gpu ? pinned_pool() : all.memory();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (!held.has(t)) continue;
        const auto& [mesh, placements] = held.of(t);
        const Shape& shape = tensors[t].shape;
        const LocalLayout layout = local_layout(shape, mesh.sizes(), placements, mesh.coordinates());
        host_.push_back(
            Tensor::empty(layout.shape, dtype, on_gpu ? "host copy" : "synthetic weights", memory));
        tensors_.push_back({tensors[t].name, DTensor::from_local(host_.back(), mesh, placements, shape)});
        std::uint64_t seed = (t + 1) * 0x9e3779b97f4a7c15ull;
        for (const std::int64_t offset : layout.offsets)
            seed = seed * (&offset == layout.offsets.data() ? 1 : 0x9fb21c651e98df25ull) +
                   static_cast<std::uint64_t>(offset);
        seeds_.push_back(seed);
    }
    each_block([](const Tensor& tensor, std::int64_t begin, std::int64_t end, std::uint64_t seed) {
        Random random(seed);
        for (std::int64_t i = begin; i < end; ++i) put(tensor, i, random.next());
    });
    if (device.type == DeviceType::cuda) put_on_gpu();
}

void SyntheticSource::put_on_gpu() {
    constexpr std::size_t kAlign = 256;
    std::size_t bytes = 0;
    for (const Tensor& host : host_) bytes += round_up(host.bytes(), kAlign);
    stream_.emplace(Stream::make(device_, "synthetic weights"));
    arena_ = ExportArena::create(device_, std::max<std::size_t>(bytes, 1), "synthetic weights");
    std::size_t at = 0;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const DTensor& now = tensors_[t].tensor;
        const Tensor local = Tensor::borrow(arena_.span().subspan(at, host_[t].bytes()), host_[t].shape(),
                                            host_[t].dtype(), device_);
        tensors_[t].tensor = DTensor::from_local(local, now.mesh(), now.placements(), now.shape());
        at += round_up(host_[t].bytes(), kAlign);
    }
    upload();
}

void SyntheticSource::upload() {
    if (!stream_) return;
    for (std::size_t t = 0; t < tensors_.size(); ++t) copy(*stream_, host_[t], tensors_[t].tensor.local());
    stream_->synchronize();
}

void SyntheticSource::change(double part) {
    ++step_;
    if (part <= 0) return;
    const double scale = part >= 1 ? 0 : 1 / std::log1p(-part);
    each_block([&](const Tensor& tensor, std::int64_t begin, std::int64_t end, std::uint64_t seed) {
        if (part >= 1) return turn_all(tensor, begin, end);
        Random random(seed ^ (step_ * 0xbf58476d1ce4e5b9u));
        // The distance to the next change is geometric: each element changes with the same chance.
        const auto gap = [&] { return static_cast<std::int64_t>(std::log(random.unit()) * scale); };
        for (std::int64_t i = begin + gap(); i < end; i += 1 + gap()) turn(tensor, i);
    });
    upload();
}

void SyntheticSource::move_into(Session& session) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const Tensor place = session.writable(t);
        const DTensor& now = tensors_[t].tensor;
        if (!place.defined() || place.raw() == now.local().raw()) continue;
        if (stream_) {
            copy(*stream_, host_[t], place);
            stream_->synchronize();
        } else {
            std::memcpy(place.raw(), now.local().raw(), place.bytes());
            host_[t] = place;
        }
        tensors_[t].tensor = DTensor::from_local(place, now.mesh(), now.placements(), now.shape());
    }
}

}  // namespace tandem::sync
