#include "sync/session/finite.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/ops/finite.h"
#include "common/thread.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync {
namespace {

// A tensor's rows that one thread takes at once.
struct RowsToCheck {
    std::size_t tensor;
    std::int64_t first, count;
    ops::NonFinite found;
};

constexpr std::int64_t kElementsToCheck = 1 << 22;

std::vector<RowsToCheck> cut(const std::vector<NamedTensor>& tensors) {
    std::vector<RowsToCheck> parts;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor& local = tensors[i].tensor.local();
        if (local.numel() == 0) continue;
        const std::int64_t rows = local.ndim() == 0 ? 1 : local.dim(0);
        const std::int64_t at_once = std::max<std::int64_t>(1, kElementsToCheck / (local.numel() / rows));
        for (std::int64_t first = 0; first < rows; first += at_once)
            parts.push_back({i, first, std::min(at_once, rows - first), {}});
    }
    return parts;
}

Tensor rows_of(const Tensor& tensor, const RowsToCheck& part) {
    return tensor.ndim() == 0 ? tensor : tensor.rows(part.first, part.count);
}

// A GPU is busy with one part.
void check_on_gpu(const std::vector<NamedTensor>& tensors, std::vector<RowsToCheck>& parts, Device device,
                  const std::function<bool()>& stop) {
    Stream stream = Stream::make(device, "finite");
    for (RowsToCheck& part : parts) {
        if (stop && stop()) return;
        part.found = ops::find_non_finite(stream, rows_of(tensors[part.tensor].tensor.local(), part));
    }
}

void check_on_cpu(const std::vector<NamedTensor>& tensors, std::vector<RowsToCheck>& parts,
                  const std::function<bool()>& stop) {
    std::atomic<std::size_t> next{0};
    const auto work = [&](std::size_t) {
        for (std::size_t i = next++; i < parts.size() && !(stop && stop()); i = next++)
            parts[i].found = ops::find_non_finite(rows_of(tensors[parts[i].tensor].tensor.local(), parts[i]));
    };
    run_on_threads(
        std::min<std::size_t>({4, std::max(1u, std::thread::hardware_concurrency()), parts.size()}),
        "that looks for what is not finite", work);
}

}  // namespace

std::vector<NonFiniteTensor> find_non_finite(const WeightSource& source, const std::function<bool()>& stop) {
    const std::vector<NamedTensor>& tensors = source.tensors();
    std::vector<RowsToCheck> parts = cut(tensors);
    const Device device = parts.empty() ? Device{} : tensors[parts[0].tensor].tensor.local().device();
    device == Device{} ? check_on_cpu(tensors, parts, stop) : check_on_gpu(tensors, parts, device, stop);
    std::vector<NonFiniteTensor> result;
    for (const RowsToCheck& part : parts) {
        if (part.found.count == 0) continue;
        const NamedTensor& tensor = tensors[part.tensor];
        if (result.empty() || result.back().name != tensor.name) {
            const Tensor rows = rows_of(tensor.tensor.local(), part);
            const std::int64_t row = part.found.first / (rows.numel() / part.count);
            const std::int64_t there = tensor.tensor.shape().empty()
                                           ? 0
                                           : index_at(tensor.tensor.layout().runs[0], part.first + row);
            result.push_back({tensor.name, 0, there});
        }
        result.back().elements += part.found.count;
    }
    return result;
}

std::string text_of(const std::vector<NonFiniteTensor>& tensors) {
    if (tensors.empty()) return "";
    const NonFiniteTensor& first = tensors.front();
    std::string text =
        fmt::format("{} has {} that {} infinite or NaN, the first in row {}", first.name,
                    first.elements == 1 ? "1 element" : fmt::format("{} elements", first.elements),
                    first.elements == 1 ? "is" : "are", first.first_row);
    const std::size_t others = tensors.size() - 1;
    if (others > 0)
        text += others == 1 ? "; so has 1 other tensor" : fmt::format("; so have {} other tensors", others);
    return text;
}

std::string non_finite_text(const WeightSource& source, comm::Communicator& world) {
    for (std::string& text : gather_texts(world, text_of(find_non_finite(source)))) {
        if (!text.empty()) return std::move(text);
    }
    return "";
}

nlohmann::json json_of(const std::vector<NonFiniteTensor>& tensors) {
    nlohmann::json list = nlohmann::json::array();
    for (const NonFiniteTensor& tensor : tensors)
        list.push_back(
            {{"tensor", tensor.name}, {"elements", tensor.elements}, {"first_row", tensor.first_row}});
    return list;
}

}  // namespace tandem::sync
