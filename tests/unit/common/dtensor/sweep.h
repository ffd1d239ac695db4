// Redistributes between every two layouts of a mesh and holds result and gradient against the oracle, byte
// for byte. Run by ranks as threads (tests/unit/common/dtensor) and by real processes (tests/multiproc/dtensor).
#pragma once

#include "common/dtensor/dtensor.h"
#include "common/error.h"
#include "tests/unit/common/dtensor/oracle.h"

namespace tandem::oracle {

struct Options {
    Placements sources;  // what an axis may be before
    Placements targets;  // and after
    std::vector<Shape> shapes;
    int shapes_per_pair = 0;  // 0: all; else that many, taken in turn
};

// R, S and SS of every dim, then the Partials.
inline Options options_for(int ndim, const std::vector<int>& split_factors, const Placements& partials,
                           const std::vector<std::int64_t>& dims) {
    Options options;
    options.targets.push_back(Replicate());
    for (int d = 0; d < ndim; ++d) options.targets.push_back(Shard(d));
    for (int d = 0; d < ndim; ++d) {
        for (const int factor : split_factors) options.targets.push_back(StridedShard(d, factor));
    }
    options.sources = options.targets;
    options.sources.insert(options.sources.end(), partials.begin(), partials.end());
    options.shapes.push_back({});
    for (int d = 0; d < ndim; ++d) {
        std::vector<Shape> longer;
        for (const Shape& shape : options.shapes) {
            for (const std::int64_t n : dims) {
                longer.push_back(shape);
                longer.back().push_back(n);
            }
        }
        options.shapes = std::move(longer);
    }
    return options;
}

inline void expect_piece(const Tensor& got, const Tensor& expected, const char* what, const Shape& shape,
                         const DeviceMesh& mesh, const Placements& from, const Placements& to) {
    if (same_bytes(got, expected)) return;
    throw std::runtime_error(fmt::format("{} of {} from {} to {} on rank {}: got {}, expected {}", what,
                                         to_string(shape), to_string(from), to_string(to), mesh.rank(),
                                         text_of(got), text_of(expected)));
}

// What this rank holds of every shape in a layout, by the oracle.
inline std::vector<Tensor> pieces(const DeviceMesh& mesh, const std::vector<Shape>& shapes,
                                  const Placements& layout, float factor = 1.0f) {
    std::vector<Tensor> result;
    for (const Shape& shape : shapes)
        result.push_back(piece(shape, mesh.sizes(), layout, mesh.coordinates(), factor));
    return result;
}

// Collective over the mesh. Returns how many redistributions were checked; throws naming the first wrong one.
// The oracle is slow, so each layout's pieces are made once.
inline int sweep(const DeviceMesh& mesh, const Options& options) {
    constexpr float kUpstream = 3.0f;  // gradients are other values than the tensor's
    const auto axes = static_cast<std::size_t>(mesh.ndim());
    const std::vector<Shape>& shapes = options.shapes;
    const std::vector<Placements> targets = every_layout(options.targets, axes);
    std::vector<std::vector<Tensor>> results, upstreams;  // [target][shape]
    for (const Placements& to : targets) {
        results.push_back(pieces(mesh, shapes, to));
        upstreams.push_back(pieces(mesh, shapes, to, kUpstream));
    }
    const std::size_t count =
        options.shapes_per_pair == 0 ? shapes.size() : static_cast<std::size_t>(options.shapes_per_pair);
    std::size_t turn = 0;
    int checked = 0;
    for (const Placements& from : every_layout(options.sources, axes)) {
        const Placements gradient_to = gradient_placements(from);
        const std::vector<Tensor> sources = pieces(mesh, shapes, from);
        const std::vector<Tensor> gradients = pieces(mesh, shapes, gradient_to, kUpstream);
        for (std::size_t t = 0; t < targets.size(); ++t) {
            const Placements& to = targets[t];
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t s = turn++ % shapes.size();
                const DTensor source = DTensor::from_local(sources[s], mesh, from, shapes[s]);
                const DTensor result = source.redistribute(to);
                expect_piece(result.local(), results[t][s], "value", shapes[s], mesh, from, to);
                const DTensor upstream = DTensor::from_local(upstreams[t][s], mesh, to, shapes[s]);
                const DTensor gradient = redistribute_backward(upstream, from, to);
                if (gradient.placements() != gradient_to)
                    throw std::runtime_error("gradient at the wrong placements");
                expect_piece(gradient.local(), gradients[s], "gradient", shapes[s], mesh, from, to);
                ++checked;
            }
        }
    }
    return checked;
}

}  // namespace tandem::oracle
