#include "sync/plan/engine_layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <unordered_map>

#include "common/align.h"
#include "common/error.h"

namespace tandem::sync {
namespace {

using engine::Part;
using engine::TensorInfo;

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

bool ends_with_any(std::string_view name, const std::vector<std::string_view>& ends) {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
}

// A key or value projection, whose heads several ranks may share.
bool has_shared_heads(std::string_view name) {
    return ends_with_any(name, {"k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias"});
}

Slice even_slice(const ModelTensor& tensor, int dim, int ways, int rank) {
    enforce(dim < static_cast<int>(tensor.shape.size()), "tensor '{}' {}: cannot be cut along dim {}",
            tensor.name, to_string(tensor.shape), dim);
    const std::int64_t n = tensor.shape[static_cast<std::size_t>(dim)];
    enforce(n % ways == 0, "tensor '{}' {}: dim {} does not divide by tensor parallelism {}", tensor.name,
            to_string(tensor.shape), dim, ways);
    return {dim, n / ways * rank, n / ways};
}

Slice head_slice(const ModelTensor& tensor, const Place& place) {
    enforce(!tensor.shape.empty() && tensor.shape[0] % tensor.heads == 0, "tensor '{}' {}: has not {} heads",
            tensor.name, to_string(tensor.shape), tensor.heads);
    const std::int64_t head = tensor.shape[0] / tensor.heads;
    if (tensor.heads % place.tp == 0) return even_slice(tensor, 0, place.tp, place.tp_rank);
    enforce(has_shared_heads(tensor.name) && place.tp % tensor.heads == 0,
            "tensor '{}': {} heads do not divide by tensor parallelism {}", tensor.name, tensor.heads,
            place.tp);
    return {0, place.tp_rank / (place.tp / tensor.heads) * head, head};
}

Slice vocabulary_slice(const ModelTensor& tensor, const Place& place) {
    enforce(!tensor.shape.empty(), "tensor '{}' has no rows, and cannot be a vocabulary's", tensor.name);
    const VocabularyRows rows = vocabulary_rows(tensor.shape[0], place.tp, place.tp_rank);
    return {0, rows.start, rows.size};
}

// An expert's number and tensor, read from the name once for all engine ranks.
struct Expert {
    std::string prefix;  // "model.layers.3.mlp.experts."; empty: of no expert
    std::int64_t number = 0;
    std::int64_t of = 0;
};

Expert expert_named(const std::string& name) {
    constexpr std::string_view kWord = ".experts.";
    const std::size_t at = name.find(kWord);
    enforce(at != std::string::npos, "tensor '{}': no '.experts.N.' in the name of an expert's tensor", name);
    const char* begin = name.data() + at + kWord.size();
    const char* end = name.data() + name.size();
    Expert expert{name.substr(0, at + kWord.size()), 0, 0};
    const auto [stop, error] = std::from_chars(begin, end, expert.number);
    enforce(error == std::errc() && stop != end && *stop == '.' && expert.number >= 0,
            "tensor '{}': no expert's number in its name", name);
    return expert;
}

// [tensor of the model]
std::vector<Expert> experts_of(const std::vector<ModelTensor>& model) {
    std::vector<Expert> experts(model.size());
    std::map<std::string, std::int64_t> counts;
    for (std::size_t i = 0; i < model.size(); ++i) {
        if (model[i].parallel != TensorParallel::expert) continue;
        enforce(model[i].shape.size() == 2, "tensor '{}' {}: is not an expert's matrix", model[i].name,
                to_string(model[i].shape));
        experts[i] = expert_named(model[i].name);
        std::int64_t& count = counts[experts[i].prefix];
        count = std::max(count, experts[i].number + 1);
    }
    for (Expert& expert : experts) expert.of = expert.prefix.empty() ? 0 : counts.at(expert.prefix);
    return experts;
}

bool is_down(std::string_view name) {
    return name.ends_with("down_proj.weight");
}

Slice slice_of(const ModelTensor& tensor, const Place& place) {
    switch (tensor.parallel) {
        case TensorParallel::replicate:
            return {};
        case TensorParallel::column:
            return tensor.heads > 0 ? head_slice(tensor, place)
                                    : even_slice(tensor, 0, place.tp, place.tp_rank);
        case TensorParallel::row:
            return even_slice(tensor, 1, place.tp, place.tp_rank);
        case TensorParallel::expert:
            return even_slice(tensor, is_down(tensor.name) ? 1 : 0, place.expert_tp, place.expert_tp_rank);
        case TensorParallel::vocabulary:
            return vocabulary_slice(tensor, place);
    }
    return {};
}

Part part_of(const ModelTensor& tensor, const Slice& slice) {
    Part part{tensor.name, Shape(tensor.shape.size(), 0), tensor.shape, 0, Shape(tensor.shape.size(), 1)};
    if (slice.dim >= 0) {
        part.start[static_cast<std::size_t>(slice.dim)] = slice.start;
        part.size[static_cast<std::size_t>(slice.dim)] = slice.size;
    }
    for (std::size_t d = part.size.size(); d-- > 1;) part.stride[d - 1] = part.stride[d] * part.size[d];
    return part;
}

// Fused tensors: their members in order, by the end of their names.
struct Fusion {
    std::array<std::string_view, 3> members;
    std::string_view fused;
};
constexpr std::array kFusions{
    Fusion{{"q_proj.weight", "k_proj.weight", "v_proj.weight"}, "qkv_proj.weight"},
    Fusion{{"q_proj.bias", "k_proj.bias", "v_proj.bias"}, "qkv_proj.bias"},
    Fusion{{"gate_proj.weight", "up_proj.weight", ""}, "gate_up_proj.weight"},
    Fusion{{"gate_proj.bias", "up_proj.bias", ""}, "gate_up_proj.bias"},
};

// One engine rank's tensors, built in the model's order; a fused tensor stands where its first member does.
class RankLayout {
  public:
    RankLayout(const Place& place, bool fused, DType dtype) : place_(place), fused_(fused), dtype_(dtype) {}

    void add(const ModelTensor& tensor, const Expert& expert) {
        if (tensor.parallel == TensorParallel::expert) return add_expert(tensor, expert);
        const Slice slice = slice_of(tensor, place_);
        if (fused_) {
            for (const Fusion& fusion : kFusions) {
                for (const std::string_view member : fusion.members) {
                    if (!member.empty() && ends_on_word(tensor.name, member)) {
                        return add_fused(tensor, slice, fusion, member);
                    }
                }
            }
        }
        add_alone(tensor, slice);
    }
    std::vector<TensorInfo> take() { return std::move(tensors_); }

  private:
    static bool ends_on_word(std::string_view name, std::string_view end) {
        return name.ends_with(end) &&
               (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
    }

    void add_alone(const ModelTensor& tensor, const Slice& slice) {
        const bool whole = slice.dim < 0 || slice.size == tensor.shape[static_cast<std::size_t>(slice.dim)];
        Part part = part_of(tensor, slice);
        TensorInfo info{tensor.name, part.size, dtype_, {}};
        if (!whole) info.parts.push_back(std::move(part));
        tensors_.push_back(std::move(info));
    }

    // The fused tensor of that name, made on its first member; grows by the part's rows.
    void add_fused(const ModelTensor& tensor, const Slice& slice, const Fusion& fusion,
                   std::string_view member) {
        const std::string name =
            tensor.name.substr(0, tensor.name.size() - member.size()) + std::string(fusion.fused);
        Part part = part_of(tensor, slice);
        const auto [at, fresh] = by_name_.try_emplace(name, tensors_.size());
        if (fresh) {
            enforce(member == fusion.members[0], "tensor '{}': its '{}' has to come first", tensor.name,
                    fusion.members[0]);
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
    void add_expert(const ModelTensor& tensor, const Expert& expert) {
        enforce(expert.of % place_.ep == 0, "tensor '{}': {} experts do not divide by expert parallelism {}",
                tensor.name, expert.of, place_.ep);
        const std::int64_t local = expert.of / place_.ep;
        const std::int64_t slot = expert.number - local * place_.ep_rank;
        if (slot < 0 || slot >= local) return;
        const Slice slice = slice_of(tensor, place_);
        if (!fused_) return add_alone(tensor, slice);
        const bool down = is_down(tensor.name);
        const bool up = tensor.name.ends_with(".up_proj.weight");
        enforce(down || up || tensor.name.ends_with(".gate_proj.weight"),
                "tensor '{}': is no gate_proj, up_proj or down_proj", tensor.name);
        Part part = part_of(tensor, slice);
        const std::string name = expert.prefix + (down ? "w2_weight" : "w13_weight");
        const std::int64_t rows = down ? part.size[0] : 2 * part.size[0];
        const auto [at, fresh] = by_name_.try_emplace(name, tensors_.size());
        if (fresh) tensors_.push_back({name, {local, rows, part.size[1]}, dtype_, {}});
        part.offset = (slot * rows + (up ? part.size[0] : 0)) * part.size[1];
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

EngineLayout engine_layout(const std::vector<ModelTensor>& model, const EngineParallel& parallel,
                           DType dtype) {
    const int ranks = std::max(parallel.tp, parallel.ep);
    enforce(parallel.tp >= 1 && parallel.ep >= 1 && ranks % parallel.tp == 0 && ranks % parallel.ep == 0,
            "an engine of tensor parallelism {} and expert parallelism {}: one must divide the other",
            parallel.tp, parallel.ep);
    const std::vector<Expert> experts = experts_of(model);
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
