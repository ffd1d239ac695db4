// Session::weights_match: full tensors compared, brought to the engines by another path than the strategy's.
#include <cstring>
#include <unordered_map>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/error.h"
#include "common/ops/half.h"
#include "common/ops/shared/half.h"
#include "sync/codec/naive.h"
#include "sync/session/session.h"

namespace tandem::sync {
namespace {

float element_of(const std::byte* from, DType dtype, std::int64_t i) {
    if (dtype == DType::float32) return reinterpret_cast<const float*>(from)[i];
    if (dtype == DType::bfloat16) return static_cast<float>(reinterpret_cast<const bfloat16*>(from)[i]);
    return static_cast<float>(reinterpret_cast<const float16*>(from)[i]);
}

void put_element(std::byte* to, DType dtype, std::int64_t i, float value) {
    if (dtype == DType::float32)
        reinterpret_cast<float*>(to)[i] = value;
    else if (dtype == DType::bfloat16)
        reinterpret_cast<bfloat16*>(to)[i] = bfloat16(value);
    else
        reinterpret_cast<float16*>(to)[i] = float16(ops::shared::half_bits(value));
}

// One element at a time, on purpose: the reference that the fused copy is compared with.
void cast_elements(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype,
                   std::int64_t count) {
    if (from_dtype == to_dtype) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * dtype_size(from_dtype));
    } else {
        enforce(ops::copy_casts(from_dtype, to_dtype), "no cast from {} to {}", dtype_name(from_dtype),
                dtype_name(to_dtype));
        for (std::int64_t i = 0; i < count; ++i)
            put_element(to, to_dtype, i, element_of(from, from_dtype, i));
    }
}

// Copies a box of the full tensor into an engine's tensor, line by line.
void place_part(const Tensor& full, const engine::Part& part, DType to_dtype, std::byte* to) {
    const std::size_t dims = part.size.size();
    const std::int64_t line = dims == 0 ? 1 : part.size.back();
    const std::int64_t step = dims == 0 ? 1 : part.stride.back();
    const std::int64_t elements = numel(part.size);
    const std::size_t from_width = dtype_size(full.dtype());
    const std::size_t to_width = dtype_size(to_dtype);
    Shape index(dims, 0);
    for (std::int64_t done = 0; done < elements; done += line) {
        std::int64_t from = 0;
        std::int64_t at = part.offset;
        for (std::size_t d = 0; d < dims; ++d) {
            from = from * full.shape()[d] + part.start[d] + index[d];
            at += index[d] * part.stride[d];
        }
        const std::byte* source = full.raw() + static_cast<std::size_t>(from) * from_width;
        for (std::int64_t i = 0; i < (step == 1 ? 1 : line); ++i) {
            cast_elements(source + static_cast<std::size_t>(i) * from_width, full.dtype(),
                          to + static_cast<std::size_t>(at + i * step) * to_width, to_dtype,
                          step == 1 ? line : 1);
        }
        for (std::size_t d = dims - (dims > 0 ? 1 : 0); d-- > 0;) {  // the next line's index
            if (++index[d] < part.size[d]) break;
            index[d] = 0;
        }
    }
}

// The tensors that engines should hold, built one by one; each is compared when its last part is there.
class Expected {
  public:
    Expected(const ReshardPlan& plan, const std::vector<std::vector<ops::Checksum>>& held)
        : plan_(plan), held_(held) {
        for (std::size_t e = 0; e < plan.engine().size(); ++e) {
            for (std::size_t t = 0; t < plan.engine()[e].size(); ++t) {
                const engine::TensorInfo& info = plan.engine()[e][t];
                for (std::size_t p = 0; p < info.parts.size(); ++p)
                    users_[info.parts[p].name].push_back({e, t, p});
                if (info.parts.empty()) users_[info.name].push_back({e, t, 0});
            }
        }
    }

    void add(const std::string& name, const Tensor& full) {
        for (const User& user : users_[name]) {
            const engine::TensorInfo& info = plan_.engine()[user.engine][user.tensor];
            Tensor whole = full;  // where the engine holds just that
            if (!info.parts.empty() || info.dtype != full.dtype()) {
                Partial& partial = partial_[user.engine << 32 | user.tensor];
                if (!partial.tensor.defined())
                    partial.tensor = Tensor::empty(info.shape, info.dtype, "sync verify");
                if (info.parts.empty()) {
                    cast_elements(full.raw(), full.dtype(), partial.tensor.raw(), info.dtype, full.numel());
                } else {
                    place_part(full, info.parts[user.part], info.dtype, partial.tensor.raw());
                }
                if (++partial.parts < info.parts.size()) continue;
                whole = partial.tensor;
            }
            const bool same = held_[user.engine][user.tensor] == ops::checksum(whole.span());
            if (!same && first_mismatch_.empty()) first_mismatch_ = info.name;
            partial_.erase(user.engine << 32 | user.tensor);
        }
    }
    const std::string& first_mismatch() const { return first_mismatch_; }

  private:
    struct User {
        std::size_t engine, tensor, part;
    };
    struct Partial {
        Tensor tensor;
        std::size_t parts = 0;
    };
    const ReshardPlan& plan_;
    const std::vector<std::vector<ops::Checksum>>& held_;
    std::unordered_map<std::string, std::vector<User>> users_;
    std::unordered_map<std::size_t, Partial> partial_;
    std::string first_mismatch_;
};

// The role of a source tensor of the plan in quantisation.
struct Role {
    const QuantizedTensor* quantized = nullptr;
    bool made = false;  // scales: the trainer does not hold them
};
std::vector<Role> roles_of(const Setup& setup) {
    std::vector<Role> roles(setup.plan.source().tensors.size());
    for (const QuantizedTensor& one : setup.quantized) {
        roles[static_cast<std::size_t>(one.values)].quantized = &one;
        roles[static_cast<std::size_t>(one.scales)].made = true;
    }
    return roles;
}

// Shards of a GPU are gathered on the host, apart from every strategy: each through the same pinned
// buffer, which holds it until the next. (Fresh pages for each would take most of the comparison's time.)
DTensor on_host(const DTensor& tensor, Buffer& buffer) {
    const Tensor& local = tensor.local();
    if (local.device().type == DeviceType::cpu) return tensor;
    Stream stream = Stream::make(local.device(), "sync verify");
    if (buffer.bytes() < local.bytes()) buffer = Buffer(local.bytes(), "sync verify", pinned_pool());
    const Tensor host = Tensor::borrow(buffer.span().subspan(0, local.bytes()), local.shape(), local.dtype());
    copy(stream, local, host);
    stream.synchronize();
    return DTensor::from_local(host, tensor.mesh(), tensor.placements(), tensor.shape());
}

// The whole tensor on rank 0, which may hold nothing of it. Collective.
Tensor full_on_rank_0(comm::Communicator& world, const SourceTensor& info, const SourceGroup& group,
                      const NamedTensor* mine, Buffer& buffer) {
    Tensor full = mine != nullptr ? on_host(mine->tensor, buffer).full_tensor() : Tensor();
    const int holder = group.ranks.front();
    for (const int rank : group.ranks) {
        if (rank == 0) return full;
    }
    if (!full.defined()) full = Tensor::empty(info.shape, info.dtype, "sync verify");
    world.broadcast(full.span(), holder);
    return full;
}

}  // namespace

WeightsMatch Session::weights_match() {
    comm::Communicator& world = *world_;
    const std::chrono::milliseconds deadline = options_.deadlines.commit;
    PushStatus status;
    std::vector<std::vector<ops::Checksum>> held;
    try {
        source_.ready().wait(Deadline::after(deadline));
    } catch (const std::exception& error) {
        status.fail("prepare", fmt::format("rank {}", world.rank()), -1, error.what());
    }
    each_engine(engines_, status, "checksums", -1, [&](engine::Engine& engine, std::size_t) {
        held.push_back(engine.checksums(Deadline::after(deadline)));
    });
    throw_on_any_failure(world, status, "comparing weights");
    std::unordered_map<std::string, const NamedTensor*> mine;
    for (const NamedTensor& tensor : source_.tensors()) mine[tensor.name] = &tensor;
    Expected expected(setup_.plan, held);
    const SourceLayout& layout = setup_.plan.source();
    const auto roles = roles_of(setup_);
    Buffer buffer;  // of a GPU's shards
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        if (roles[t].made) continue;  // with the weight that it belongs to
        SourceTensor tensor = layout.tensors[t];
        const QuantizedTensor* quantized = roles[t].quantized;
        if (quantized != nullptr) tensor.dtype = quantized->held;
        const auto here = mine.find(tensor.name);
        const SourceGroup& group = layout.groups[static_cast<std::size_t>(tensor.groups.front())];
        const Tensor full =
            full_on_rank_0(world, tensor, group, here == mine.end() ? nullptr : here->second, buffer);
        if (engines_.empty()) continue;
        if (quantized == nullptr) {
            expected.add(tensor.name, full);
            continue;
        }
        const NaiveQuantized naive = quantize_naively(full, layout.tensors[t].dtype);
        expected.add(tensor.name, naive.values);
        expected.add(layout.tensors[static_cast<std::size_t>(quantized->scales)].name, naive.scales);
    }
    WeightsMatch result;
    result.first_mismatch = broadcast_text(world, expected.first_mismatch());
    result.match = result.first_mismatch.empty();
    return result;
}

}  // namespace tandem::sync
