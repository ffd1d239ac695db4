// Parts of engine tensors become occurrences of patterns; patterns are divided among the ranks that hold
// them: first what only one rank holds, then, seeing what those send already, what several do.
#include "sync/plan/reshard.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "common/error.h"
#include "sync/plan/reshard_cells.h"
#include "sync/plan/reshard_check.h"
#include "sync/plan/reshard_pattern.h"

namespace tandem::sync {
namespace {

// A part of an engine's tensor.
struct Occurrence {
    std::uint32_t pattern = 0;
    std::int32_t source_tensor = 0;
    std::int32_t engine_tensor = 0;
    std::uint32_t number = 0;  // among those of its pattern
    std::int64_t target_offset = 0;
};

// Geometry as numbers: a source tensor's class, the engine's dtype, start, size and stride of a box.
using Key = std::vector<std::int64_t>;
struct KeyHash {
    std::size_t operator()(const Key& key) const {
        std::uint64_t hash = key.size();
        for (const std::int64_t word : key) {
            hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 29;
        }
        return hash;
    }
};

// Source tensors that differ in nothing but their name: shape, dtype and groups.
struct Classes {
    std::vector<int> of_tensor;                  // [source tensor]
    std::vector<std::vector<RankPiece>> pieces;  // [class]
};

Classes classify(const SourceLayout& source) {
    Classes classes;
    std::map<std::tuple<Shape, DType, std::vector<int>>, int> known;
    for (const SourceTensor& tensor : source.tensors) {
        const auto [at, fresh] = known.try_emplace({tensor.shape, tensor.dtype, tensor.groups},
                                                   static_cast<int>(classes.pieces.size()));
        if (fresh) classes.pieces.push_back(rank_pieces(source, tensor));
        classes.of_tensor.push_back(at->second);
    }
    return classes;
}

}  // namespace

struct ReshardPlan::Impl {
    SourceLayout source;
    EngineLayout engine;
    std::vector<Pattern> patterns;
    std::vector<Occurrence> occurrences;  // by engine rank, tensor, part
    std::vector<std::size_t> first;       // [engine rank], and one past the end
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> bytes_from;
    std::vector<std::uint64_t> bytes_to;
    std::uint64_t moves = 0;

    void expand(int engine_rank, std::size_t from, std::size_t to, int source_rank,
                std::vector<Move>& out) const;
    // One past the last occurrence of the tensor whose first is `from`.
    std::size_t tensor_end(std::size_t from, std::size_t end) const {
        std::size_t to = from;
        while (to < end && occurrences[to].engine_tensor == occurrences[from].engine_tensor) ++to;
        return to;
    }
};

// Occurrences [from, to) of one engine tensor; parts may interleave in it.
void ReshardPlan::Impl::expand(int engine_rank, std::size_t from, std::size_t to, int source_rank,
                               std::vector<Move>& out) const {
    const auto begin = static_cast<std::ptrdiff_t>(out.size());
    for (std::size_t i = from; i < to; ++i) {
        const Occurrence& one = occurrences[i];
        Move base;
        base.engine_rank = engine_rank;
        base.source_tensor = one.source_tensor;
        base.engine_tensor = one.engine_tensor;
        base.target_offset = one.target_offset;
        patterns[one.pattern].expand(base, one.number, source_rank, out);
    }
    const auto by_target = [](const Move& a, const Move& b) { return a.target_offset < b.target_offset; };
    if (!std::is_sorted(out.begin() + begin, out.end(), by_target)) {
        std::stable_sort(out.begin() + begin, out.end(), by_target);
    }
}

namespace {

// Finds the patterns of all engine tensors' parts.
class Matcher {
  public:
    Matcher(const SourceLayout& source, std::vector<Pattern>& patterns,
            std::vector<std::size_t>& element_bytes)
        : source_(source), classes_(classify(source)), patterns_(patterns), element_bytes_(element_bytes) {
        for (std::size_t i = 0; i < source.tensors.size(); ++i) {
            const std::string& name = source.tensors[i].name;
            enforce(by_name_.emplace(name, static_cast<int>(i)).second, "the trainer has two tensors '{}'",
                    name);
        }
    }

    void match(const engine::TensorInfo& tensor, int engine_rank, int index, std::vector<Occurrence>& out) {
        if (tensor.parts.empty()) {
            const int found = find(tensor.name, tensor, engine_rank);
            const Shape& shape = source_.tensors[static_cast<std::size_t>(found)].shape;
            enforce(shape == tensor.shape, "engine rank {}, tensor '{}' {}: the trainer's is {}", engine_rank,
                    tensor.name, to_string(tensor.shape), to_string(shape));
            add({Shape(shape.size(), 0), shape, row_major(shape)}, 0, found, tensor.dtype, index, out);
            return;
        }
        for (const engine::Part& part : tensor.parts) {
            const int found = find(part.name, tensor, engine_rank);
            check_box(part, source_.tensors[static_cast<std::size_t>(found)].shape, tensor, engine_rank);
        }
        check_coverage(tensor, engine_rank);
        for (const engine::Part& part : tensor.parts) {
            const int found = by_name_.at(part.name);
            add({part.start, part.size, part.stride}, part.offset, found, tensor.dtype, index, out);
        }
    }

  private:
    int find(const std::string& name, const engine::TensorInfo& tensor, int engine_rank) const {
        const auto found = by_name_.find(name);
        enforce(found != by_name_.end(), "engine rank {}, tensor '{}': the trainer has no tensor '{}'",
                engine_rank, tensor.name, name);
        const DType from = source_.tensors[static_cast<std::size_t>(found->second)].dtype;
        enforce(copy_casts(from, tensor.dtype),
                "engine rank {}, tensor '{}': the copy does not cast {} to {}", engine_rank, tensor.name,
                dtype_name(from), dtype_name(tensor.dtype));
        return found->second;
    }

    static void check_box(const engine::Part& part, const Shape& shape, const engine::TensorInfo& tensor,
                          int engine_rank) {
        bool inside = part.start.size() == shape.size() && part.size.size() == shape.size();
        for (std::size_t d = 0; inside && d < shape.size(); ++d) {
            inside = part.start[d] >= 0 && part.size[d] >= 0 && part.start[d] + part.size[d] <= shape[d];
        }
        enforce(inside, "engine rank {}, tensor '{}': the box {} at {} leaves '{}' {}", engine_rank,
                tensor.name, to_string(part.size), to_string(part.start), part.name, to_string(shape));
    }

    void add(const TargetBox& box, std::int64_t offset, int source_tensor, DType dtype, int index,
             std::vector<Occurrence>& out) {
        if (numel(box.size) == 0) return;
        const int of_class = classes_.of_tensor[static_cast<std::size_t>(source_tensor)];
        key_.assign({of_class, static_cast<std::int64_t>(dtype)});
        for (const Shape* list : {&box.start, &box.size, &box.stride}) {
            key_.insert(key_.end(), list->begin(), list->end());
        }
        auto found = known_.find(key_);
        if (found == known_.end()) {
            found = known_.emplace(key_, static_cast<std::uint32_t>(patterns_.size())).first;
            patterns_.emplace_back(cells_of(classes_.pieces[static_cast<std::size_t>(of_class)], box));
            element_bytes_.push_back(dtype_size(dtype));
        }
        auto& number = patterns_[found->second].occurrences;
        out.push_back({found->second, source_tensor, index, static_cast<std::uint32_t>(number++), offset});
    }

    const SourceLayout& source_;
    Classes classes_;
    std::vector<Pattern>& patterns_;
    std::vector<std::size_t>& element_bytes_;  // [pattern], as sent
    std::unordered_map<std::string_view, int> by_name_;
    std::unordered_map<Key, std::uint32_t, KeyHash> known_;
    Key key_;  // the one asked for; here to be allocated once
};

void divide_patterns(std::vector<Pattern>& patterns, const std::vector<std::size_t>& element_bytes,
                     std::size_t min_split_bytes, std::vector<std::uint64_t>& loads) {
    std::vector<SharedCell> cells;
    for (std::size_t p = 0; p < patterns.size(); ++p) {
        for (const Cell& cell : patterns[p].cells())
            cells.push_back({&cell, patterns[p].occurrences, element_bytes[p]});
    }
    const std::vector<Division> divisions = divide_all(cells, min_split_bytes, loads);
    std::size_t next = 0;
    for (Pattern& pattern : patterns) {
        for (const Cell& cell : pattern.cells()) pattern.add(cell, divisions[next++]);
        pattern.finish();
    }
}

}  // namespace

ReshardPlan ReshardPlan::make(SourceLayout source, EngineLayout engine, const ReshardOptions& options) {
    auto impl = std::make_shared<Impl>();
    impl->source = std::move(source);
    impl->engine = std::move(engine);
    enforce(impl->source.world_size >= 1, "a trainer of {} ranks", impl->source.world_size);
    std::vector<std::size_t> element_bytes;
    Matcher matcher(impl->source, impl->patterns, element_bytes);
    for (std::size_t rank = 0; rank < impl->engine.size(); ++rank) {
        impl->first.push_back(impl->occurrences.size());
        std::uint64_t bytes = 0;
        for (std::size_t t = 0; t < impl->engine[rank].size(); ++t) {
            const engine::TensorInfo& tensor = impl->engine[rank][t];
            matcher.match(tensor, static_cast<int>(rank), static_cast<int>(t), impl->occurrences);
            bytes += engine::tensor_bytes(tensor);
        }
        impl->bytes_to.push_back(bytes);
        impl->bytes += bytes;
    }
    impl->first.push_back(impl->occurrences.size());
    impl->bytes_from.assign(static_cast<std::size_t>(impl->source.world_size), 0);
    divide_patterns(impl->patterns, element_bytes, options.min_split_bytes, impl->bytes_from);
    for (const Pattern& pattern : impl->patterns) impl->moves += pattern.move_count();
    ReshardPlan plan;
    plan.impl_ = std::move(impl);
    return plan;
}

std::vector<Move> ReshardPlan::moves_to(int engine_rank) const {
    enforce(engine_rank >= 0 && engine_rank < static_cast<int>(impl_->engine.size()), "engine rank {} of {}",
            engine_rank, impl_->engine.size());
    std::vector<Move> moves;
    const auto rank = static_cast<std::size_t>(engine_rank);
    for (std::size_t from = impl_->first[rank]; from < impl_->first[rank + 1];) {
        const std::size_t to = impl_->tensor_end(from, impl_->first[rank + 1]);
        impl_->expand(engine_rank, from, to, -1, moves);
        from = to;
    }
    return moves;
}

std::vector<Move> ReshardPlan::moves_from(int source_rank) const {
    enforce(source_rank >= 0 && source_rank < impl_->source.world_size, "source rank {} of {}", source_rank,
            impl_->source.world_size);
    std::vector<Move> moves;
    std::vector<std::size_t> at(impl_->first.begin(), impl_->first.end() - 1);
    std::size_t tensors = 0;
    for (const auto& list : impl_->engine) tensors = std::max(tensors, list.size());
    for (std::size_t t = 0; t < tensors; ++t) {
        for (std::size_t rank = 0; rank < at.size(); ++rank) {
            const std::size_t end = impl_->first[rank + 1];
            if (at[rank] == end || impl_->occurrences[at[rank]].engine_tensor != static_cast<int>(t))
                continue;
            const std::size_t to = impl_->tensor_end(at[rank], end);
            impl_->expand(static_cast<int>(rank), at[rank], to, source_rank, moves);
            at[rank] = to;
        }
    }
    return moves;
}

const SourceLayout& ReshardPlan::source() const {
    return impl_->source;
}
const EngineLayout& ReshardPlan::engine() const {
    return impl_->engine;
}
std::uint64_t ReshardPlan::move_count() const {
    return impl_->moves;
}
std::size_t ReshardPlan::pattern_count() const {
    return impl_->patterns.size();
}
std::uint64_t ReshardPlan::bytes() const {
    return impl_->bytes;
}
const std::vector<std::uint64_t>& ReshardPlan::bytes_from() const {
    return impl_->bytes_from;
}
const std::vector<std::uint64_t>& ReshardPlan::bytes_to() const {
    return impl_->bytes_to;
}

}  // namespace tandem::sync
