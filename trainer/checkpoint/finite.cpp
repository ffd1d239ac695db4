#include "trainer/checkpoint/finite.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "common/model/safetensors.h"
#include "common/ops/finite.h"
#include "common/thread.h"
#include "trainer/checkpoint/weight_files.h"

namespace tandem::trainer {
namespace {

constexpr std::string_view kWeights = "weights/";

struct Found {
    std::int64_t elements = 0;
    std::int64_t first_row = -1;
};

// Counts what is not finite in `values`, a block of a tensor, and is in `before`, the same of the model (undefined: all of it).
void count_new(const Tensor& values, const Tensor& before, const TensorBlock& block, Found& found) {
    const auto now = values.values<float>();
    for (std::size_t i = 0; i < now.size(); ++i) {
        if (std::isfinite(now[i]) || (before.defined() && !std::isfinite(before.data<float>()[i]))) continue;
        if (found.elements++ == 0)
            found.first_row = block.first_row + static_cast<std::int64_t>(i) / block.columns;
    }
}

class Search {
  public:
    Search(const Manifest& manifest, const std::string& directory, const std::string& model)
        : manifest_(manifest), directory_(directory) {
        if (!model.empty()) model_.emplace(model::Safetensors::open(model));
    }

    // One rank's file.
    void look_at(std::size_t rank) {
        const auto file = model::Safetensors::open_file(directory_ + "/" + rank_file(rank));
        for (const auto& [name, entry] : manifest_.tensors) {
            if (name.starts_with("reference/") || entry.dtype != DType::float32) continue;
            const TensorBlock& held = entry.blocks.at(rank);
            if (held.numel() == 0) continue;
            require_block(file, name, entry, rank);
            Found found;
            const Tensor values = file.tensor(name);
            if (ops::find_non_finite(values).count > 0)
                count_new(values, block_of_model(name, entry, held), held, found);
            file.release(name);
            if (found.elements > 0) note(name, found);
        }
        file.require_unchanged();
    }

    std::string text() const {
        constexpr std::size_t kNamed = 3;
        std::string text;
        std::size_t named = 0;
        for (const auto& [name, found] : found_) {
            if (named++ == kNamed) return text + fmt::format(" and {} more tensors", found_.size() - kNamed);
            text += fmt::format("{}{} ({} element{}, the first in row {})", text.empty() ? "" : ", ", name,
                                found.elements, found.elements == 1 ? "" : "s", found.first_row);
        }
        return text;
    }

    std::size_t ranks() const {
        return manifest_.tensors.empty() ? 0 : manifest_.tensors.begin()->second.blocks.size();
    }

  private:
    // In float32.
    Tensor block_of_model(const std::string& name, const Manifest::TensorEntry& entry,
                          const TensorBlock& held) const {
        if (!model_ || !name.starts_with(kWeights)) return {};
        const std::string own = name.substr(kWeights.size());
        if (!model_->contains(own) || model_->shape(own) != entry.shape) return {};
        const Tensor block = Tensor::empty({held.numel()}, DType::float32, "checkpoint");
        read_weight_block(*model_, own, held, block);
        return block;
    }

    void note(const std::string& name, const Found& found) {
        const std::lock_guard guard(lock_);
        Found& all = found_[name];
        all.first_row = all.elements == 0 ? found.first_row : std::min(all.first_row, found.first_row);
        all.elements += found.elements;
    }

    const Manifest& manifest_;
    const std::string& directory_;
    std::optional<model::Safetensors> model_;
    std::mutex lock_;
    std::map<std::string, Found, std::greater<>> found_;  // weights before moments
};

}  // namespace

std::string became_non_finite(const Manifest& manifest, const std::string& directory,
                              const std::string& model) {
    Search search(manifest, directory, model);
    const std::size_t threads =
        std::min<std::size_t>(search.ranks(), std::max(1u, std::thread::hardware_concurrency()));
    std::atomic<std::size_t> next{0};
    std::vector<std::future<void>> work;  // each waits for its end where it is destroyed
    for (std::size_t t = 0; t < threads; ++t) {
        work.push_back(start_call("that reads a checkpoint", [&] {
            for (std::size_t rank = next++; rank < search.ranks(); rank = next++) search.look_at(rank);
        }));
    }
    for (auto& part : work) part.get();
    return search.text();
}

}  // namespace tandem::trainer
