#include "engine_adapter/hf_directory/shared_directory.h"

#include <algorithm>
#include <utility>

#include "common/error.h"

namespace tandem::engine {
namespace {

// Equal where one file serves both.
std::string key_of(const std::filesystem::path& root, const std::vector<TensorInfo>& tensors) {
    std::string key = root.string();
    for (const TensorInfo& tensor : tensors) {
        key += fmt::format("\n{}\t{}\t{}", tensor.name, dtype_name(tensor.dtype), to_string(tensor.shape));
        for (const Part& part : tensor.parts) {
            key += fmt::format("\t{} {} {} {} {}", part.name, to_string(part.start), to_string(part.size),
                               part.offset, to_string(part.stride));
        }
    }
    return key;
}

}  // namespace

void SharedDirectory::finish(Announced announced) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::filling) return;
    state_ = State::whole;
    announced_ = std::move(announced);
    changed_.notify_all();
}

void SharedDirectory::give_up() {
    const std::lock_guard lock(mutex_);
    if (state_ != State::filling) return;
    state_ = State::given_up;
    changed_.notify_all();
}

bool SharedDirectory::given_up() const {
    const std::lock_guard lock(mutex_);
    return state_ == State::given_up;
}

void SharedDirectory::wait_whole(const Announced& announced, const std::string& peer,
                                 Deadline deadline) const {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline.at(), [&] { return state_ != State::filling; }))
        throw DeadlineExceeded(peer, "stage", "another server's push was still filling their directory");
    if (state_ == State::given_up)
        throw ProtocolError(
            "the directory that it shares with another server was given up by that one's push");
    if (announced != announced_)
        throw ProtocolError("the directory that it shares with another server holds other weights");
}

StagingShare::Claim StagingShare::claim(const std::filesystem::path& root, const std::filesystem::path& model,
                                        const std::vector<TensorInfo>& tensors, std::int64_t version) {
    const std::string key = key_of(root, tensors);
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const Entry& entry) { return entry.directory->given_up(); });
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found != entries_.end()) return {found->directory, false};
    entries_.push_back({key, std::make_shared<SharedDirectory>(root, model, tensors, version)});
    return {entries_.back().directory, true};
}

}  // namespace tandem::engine
