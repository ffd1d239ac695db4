#include "sync/plan/engine_layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>

#include "common/align.h"
#include "common/error.h"

namespace tandem::sync {
namespace {

using engine::Part;
using engine::TensorInfo;
using model::Cut;
using model::ParameterSpec;
using model::Role;

// Indices [start, start + size) of the dim along which a tensor is cut.
struct Slice {
    int dim = -1;  // -1: whole
    std::int64_t start = 0;
    std::int64_t size = 0;
};

// The place of an engine rank: among the ranks that cut attention and dense layers, among the groups that
// divide the experts, and among the ranks that cut an expert.
struct Place {
    int tp = 1, tp_rank = 0;
    int ep = 1, ep_rank = 0;
    int expert_tp = 1, expert_tp_rank = 0;
};

Slice even_slice(const ParameterSpec& tensor, int dim, int ways, int rank) {
    enforce(dim < static_cast<int>(tensor.shape.size()), "tensor '{}' {}: cannot be cut along dim {}",
            tensor.name, to_string(tensor.shape), dim);
    const std::int64_t n = tensor.shape[static_cast<std::size_t>(dim)];
    enforce(n % ways == 0, "tensor '{}' {}: dim {} does not divide by tensor parallelism {}", tensor.name,
            to_string(tensor.shape), dim, ways);
    return {dim, n / ways * rank, n / ways};
}

Slice head_slice(const ParameterSpec& tensor, const Place& place) {
    enforce(!tensor.shape.empty() && tensor.shape[0] % tensor.heads == 0, "tensor '{}' {}: has not {} heads",
            tensor.name, to_string(tensor.shape), tensor.heads);
    const std::int64_t head = tensor.shape[0] / tensor.heads;
    if (tensor.heads % place.tp == 0) return even_slice(tensor, 0, place.tp, place.tp_rank);
    // Several ranks may share a head of keys and values.
    const bool shared = tensor.role == Role::k || tensor.role == Role::v;
    enforce(shared && place.tp % tensor.heads == 0,
            "tensor '{}': {} heads do not divide by tensor parallelism {}", tensor.name, tensor.heads,
            place.tp);
    return {0, place.tp_rank / (place.tp / tensor.heads) * head, head};
}

Slice vocabulary_slice(const ParameterSpec& tensor, const Place& place) {
    enforce(!tensor.shape.empty(), "tensor '{}' has no rows, and cannot be a vocabulary's", tensor.name);
    const VocabularyRows rows = vocabulary_rows(tensor.shape[0], place.tp, place.tp_rank);
    return {0, rows.start, rows.size};
}

// "model.layers.3.mlp.experts." of an expert's tensor.
std::string_view expert_prefix(std::string_view name) {
    constexpr std::string_view kWord = ".experts.";
    return name.substr(0, name.find(kWord) + kWord.size());
}

// Of each tensor of the model: how many experts there are where it is one's; 0: of none.
std::vector<std::int64_t> experts_beside(const std::vector<ParameterSpec>& model) {
    std::vector<std::int64_t> counts(model.size());
    std::map<std::string_view, std::int64_t> of;  // by the name up to the expert's number
    const auto group = [](const ParameterSpec& spec) { return expert_prefix(spec.name); };
    for (const ParameterSpec& spec : model) {
        if (spec.cut != Cut::expert) continue;
        enforce(spec.shape.size() == 2, "tensor '{}' {}: is not an expert's matrix", spec.name,
                to_string(spec.shape));
        enforce(spec.expert >= 0, "tensor '{}': no expert's number ('.experts.N.') in its name", spec.name);
        enforce(spec.role == Role::gate || spec.role == Role::up || spec.role == Role::down,
                "tensor '{}': is no gate_proj, up_proj or down_proj", spec.name);
        std::int64_t& count = of[group(spec)];
        count = std::max(count, spec.expert + 1);
    }
    for (std::size_t i = 0; i < model.size(); ++i) {
        if (model[i].cut == Cut::expert) counts[i] = of.at(group(model[i]));
    }
    return counts;
}

Slice slice_of(const ParameterSpec& tensor, const Place& place) {
    switch (tensor.cut) {
        case Cut::replicate:
            return {};
        case Cut::column:
            return tensor.heads > 0 ? head_slice(tensor, place)
                                    : even_slice(tensor, 0, place.tp, place.tp_rank);
        case Cut::row:
            return even_slice(tensor, 1, place.tp, place.tp_rank);
        case Cut::expert:
            return even_slice(tensor, tensor.role == Role::down ? 1 : 0, place.expert_tp,
                              place.expert_tp_rank);
        case Cut::vocabulary:
            return vocabulary_slice(tensor, place);
    }
    return {};
}

Part part_of(const ParameterSpec& tensor, const Slice& slice) {
    Part part{tensor.name, Shape(tensor.shape.size(), 0), tensor.shape, 0, Shape(tensor.shape.size(), 1)};
    if (slice.dim >= 0) {
        part.start[static_cast<std::size_t>(slice.dim)] = slice.start;
        part.size[static_cast<std::size_t>(slice.dim)] = slice.size;
    }
    for (std::size_t d = part.size.size(); d-- > 1;) part.stride[d - 1] = part.stride[d] * part.size[d];
    return part;
}

// Fused tensors: their members in order. The fused name takes the place of the module's.
struct Fusion {
    std::array<Role, 3> members;
    std::string_view name;
};
constexpr std::array kFusions{Fusion{{Role::q, Role::k, Role::v}, "qkv_proj"},
                              Fusion{{Role::gate, Role::up, Role::up}, "gate_up_proj"}};

// "model.layers.0.self_attn.qkv_proj.bias" of model.layers.0.self_attn.k_proj.bias
std::string fused_name(const std::string& name, std::string_view module) {
    const std::size_t last = name.rfind('.');
    enforce(last != std::string::npos && last > 0, "tensor '{}': its name has no module", name);
    const std::size_t before = name.rfind('.', last - 1);
    return name.substr(0, before + 1) + std::string(module) + name.substr(last);
}

// One engine rank's tensors, built in the model's order; a fused tensor stands where its first member does.
class RankLayout {
  public:
    RankLayout(const Place& place, bool fused, DType dtype) : place_(place), fused_(fused), dtype_(dtype) {}

    // `experts`: that there are beside it.
    void add(const ParameterSpec& tensor, std::int64_t experts) {
        if (tensor.cut == Cut::expert) return add_expert(tensor, experts);
        const Slice slice = slice_of(tensor, place_);
        for (const Fusion& fusion : kFusions) {
            const auto& members = fusion.members;
            if (fused_ && std::find(members.begin(), members.end(), tensor.role) != members.end())
                return add_fused(tensor, slice, fusion);
        }
        add_alone(tensor, slice);
    }
    std::vector<TensorInfo> take() { return std::move(tensors_); }

  private:
    void add_alone(const ParameterSpec& tensor, const Slice& slice) {
        const bool whole = slice.dim < 0 || slice.size == tensor.shape[static_cast<std::size_t>(slice.dim)];
        Part part = part_of(tensor, slice);
        TensorInfo info{tensor.name, part.size, dtype_, {}};
        if (!whole) info.parts.push_back(std::move(part));
        tensors_.push_back(std::move(info));
    }

    // The fused tensor of that name, made on its first member; grows by the part's rows.
    void add_fused(const ParameterSpec& tensor, const Slice& slice, const Fusion& fusion) {
        const std::string name = fused_name(tensor.name, fusion.name);
        Part part = part_of(tensor, slice);
        const auto [at, fresh] = by_name_.try_emplace(name, tensors_.size());
        if (fresh) {
            enforce(tensor.role == fusion.members[0], "tensor '{}': the first part of '{}' has to come first",
                    tensor.name, name);
            tensors_.push_back({name, part.size, dtype_, {std::move(part)}});
            return;
        }
        TensorInfo& info = tensors_[at->second];
        enforce(info.shape.size() == part.size.size() &&
                    std::equal(info.shape.begin() + 1, info.shape.end(), part.size.begin() + 1),
                "tensor '{}' {}: does not fit into '{}' {}", tensor.name, to_string(part.size), name,
                to_string(info.shape));
        part.offset = numel(info.shape);
        info.shape[0] += part.size[0];
        info.parts.push_back(std::move(part));
    }

    // w13: each expert's gate above its up; w2: its down. Experts come in any order, each at its place.
    void add_expert(const ParameterSpec& tensor, std::int64_t experts) {
        enforce(experts % place_.ep == 0, "tensor '{}': {} experts do not divide by expert parallelism {}",
                tensor.name, experts, place_.ep);
        const std::int64_t local = experts / place_.ep;
        const std::int64_t slot = tensor.expert - local * place_.ep_rank;
        if (slot < 0 || slot >= local) return;
        const Slice slice = slice_of(tensor, place_);
        if (!fused_) return add_alone(tensor, slice);
        const bool down = tensor.role == Role::down;
        Part part = part_of(tensor, slice);
        const std::string name =
            std::string(expert_prefix(tensor.name)) + (down ? "w2_weight" : "w13_weight");
        const std::int64_t rows = down ? part.size[0] : 2 * part.size[0];
        const auto [at, fresh] = by_name_.try_emplace(name, tensors_.size());
        if (fresh) tensors_.push_back({name, {local, rows, part.size[1]}, dtype_, {}});
        part.offset = (slot * rows + (tensor.role == Role::up ? part.size[0] : 0)) * part.size[1];
        tensors_[at->second].parts.push_back(std::move(part));
    }

    Place place_;
    bool fused_;
    DType dtype_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string, std::size_t> by_name_;  // fused ones
};

}  // namespace

VocabularyRows vocabulary_rows(std::int64_t vocabulary, int tp, int rank) {
    constexpr std::int64_t kPadding = 64;
    std::int64_t padded = round_up(vocabulary, kPadding);
    if (padded % tp != 0) padded = round_up(vocabulary, kPadding * tp);
    const std::int64_t each = padded / tp;
    const std::int64_t start = std::min(each * rank, vocabulary);
    const std::int64_t size = std::min(each, vocabulary - start);
    return {start, size, each - size};
}

EngineLayout engine_layout(const std::vector<ParameterSpec>& model, const EngineParallel& parallel,
                           DType dtype) {
    const int ranks = std::max(parallel.tp, parallel.ep);
    enforce(parallel.tp >= 1 && parallel.ep >= 1 && ranks % parallel.tp == 0 && ranks % parallel.ep == 0,
            "an engine of tensor parallelism {} and expert parallelism {}: one must divide the other",
            parallel.tp, parallel.ep);
    const std::vector<std::int64_t> experts = experts_beside(model);
    EngineLayout layout;
    for (int rank = 0; rank < ranks; ++rank) {
        const int expert_tp = ranks / parallel.ep;
        const Place place{parallel.tp,      rank % parallel.tp, parallel.ep,
                          rank / expert_tp, expert_tp,          rank % expert_tp};
        RankLayout one(place, parallel.fused, dtype);
        for (std::size_t i = 0; i < model.size(); ++i) one.add(model[i], experts[i]);
        layout.push_back(one.take());
    }
    return layout;
}

}  // namespace tandem::sync
