#include "sync/bench/source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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
    } else {
        reinterpret_cast<float*>(tensor.raw())[index] = value_of(bits);
    }
}

// Other values: one bit of each mantissa turned.
void turn_all(const Tensor& tensor) {
    const std::uint32_t bit = tensor.dtype() == DType::bfloat16 ? 0x00100010u : 0x00100000u;
    auto* word = reinterpret_cast<std::uint32_t*>(tensor.raw());
    const std::size_t words = tensor.bytes() / sizeof(*word);
    for (std::size_t i = 0; i < words; ++i) word[i] ^= bit;
    if (tensor.bytes() % sizeof(*word) != 0)  // the last of an odd number of bfloat16
        reinterpret_cast<bfloat16*>(tensor.raw())[tensor.numel() - 1].bits ^= 0x10;
}
void turn(const Tensor& tensor, std::int64_t index) {
    if (tensor.dtype() == DType::bfloat16) {
        reinterpret_cast<bfloat16*>(tensor.raw())[index].bits ^= 0x10;
    } else {
        float& value = reinterpret_cast<float*>(tensor.raw())[index];
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 0x100000u);
    }
}

}  // namespace

SyntheticSource::SyntheticSource(const std::vector<engine::TensorInfo>& tensors, const DeviceMesh& mesh,
                                 DType dtype, bool shard_all, Device device)
    : device_(device) {
    Placements placements{Shard(0)};
    for (int axis = 1; axis < mesh.ndim(); ++axis) placements.push_back(shard_all ? Shard(0) : Replicate());
    for (const engine::TensorInfo& info : tensors) {
        const LocalLayout layout = local_layout(info.shape, mesh.sizes(), placements, mesh.coordinates());
        const bool on_gpu = device.type == DeviceType::cuda;
        const Tensor local = Tensor::empty(layout.shape, dtype, on_gpu ? "host copy" : "synthetic weights",
                                           on_gpu ? pinned_pool() : mesh.memory());
        host_.push_back(local);
        tensors_.push_back({info.name, DTensor::from_local(local, mesh, placements, info.shape)});
        const std::int64_t first_row = layout.offsets.empty() ? 0 : layout.offsets.front();
        seeds_.push_back(tensors_.size() * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(first_row));
        Random random(seeds_.back());
        for (std::int64_t i = 0; i < local.numel(); ++i) put(local, i, random.next());
    }
    if (device.type == DeviceType::cuda) put_on_gpu();
}

void SyntheticSource::put_on_gpu() {
    constexpr std::size_t kAlign = 256;
    std::size_t bytes = 0;
    for (const Tensor& host : host_) bytes += (host.bytes() + kAlign - 1) / kAlign * kAlign;
    stream_.emplace(Stream::make(device_, "synthetic weights"));
    arena_ = ExportArena::create(device_, std::max<std::size_t>(bytes, 1), "synthetic weights");
    std::size_t at = 0;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const DTensor& now = tensors_[t].tensor;
        const Tensor local = Tensor::borrow(arena_.span().subspan(at, host_[t].bytes()), host_[t].shape(),
                                            host_[t].dtype(), device_);
        tensors_[t].tensor = DTensor::from_local(local, now.mesh(), now.placements(), now.shape());
        at += (host_[t].bytes() + kAlign - 1) / kAlign * kAlign;
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
    if (part >= 1) {
        for (const Tensor& host : host_) turn_all(host);
        return upload();
    }
    const double scale = 1 / std::log1p(-part);
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const Tensor& local = host_[t];
        Random random(seeds_[t] ^ (step_ * 0xbf58476d1ce4e5b9u));
        // The distance to the next change is geometric: each element changes with the same chance.
        const auto gap = [&] { return static_cast<std::int64_t>(std::log(random.unit()) * scale); };
        for (std::int64_t i = gap(); i < local.numel(); i += 1 + gap()) turn(local, i);
    }
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
