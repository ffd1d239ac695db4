#include "common/ops/cuda/kept_tables.h"

#include <cstring>
#include <list>
#include <mutex>
#include <vector>

#include "common/device/stream.h"

namespace tandem::ops {

struct KeptTables::State {
    struct Table {
        std::vector<std::byte> bytes;
        Memory memory;
    };
    std::mutex mutex;
    std::list<Table> tables;  // the last used first
    std::size_t bytes = 0;
};

KeptTables::KeptTables() : state_(std::make_unique<State>()) {}
KeptTables::~KeptTables() = default;

KeptTables& KeptTables::of(Stream& stream) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    std::shared_ptr<void>& kept = stream.kept_by_ops();
    if (!kept) kept = std::make_shared<KeptTables>();
    return *static_cast<KeptTables*>(kept.get());
}

KeptTables::Memory KeptTables::find(std::span<const std::byte> bytes, const std::function<Memory()>& make) {
    if (bytes.size() > kMostBytes) return make();
    const std::lock_guard lock(state_->mutex);
    auto& tables = state_->tables;
    for (auto at = tables.begin(); at != tables.end(); ++at) {
        if (at->bytes.size() != bytes.size() ||
            std::memcmp(at->bytes.data(), bytes.data(), bytes.size()) != 0)
            continue;
        tables.splice(tables.begin(), tables, at);
        return at->memory;
    }
    tables.push_front({{bytes.begin(), bytes.end()}, make()});
    state_->bytes += bytes.size();
    while (tables.size() > kMost || state_->bytes > kMostBytes) {
        state_->bytes -= tables.back().bytes.size();
        tables.pop_back();
    }
    return tables.front().memory;
}

}  // namespace tandem::ops
