#include "engine_adapter/channel/connection.h"

#include <fmt/core.h>

#include "engine_adapter/channel/messages.h"

namespace tandem::engine {

std::int64_t Connection::post(nlohmann::json header, const std::string& phase, Deadline deadline,
                              ConstSpan payload, std::span<const int> fds) {
    header["id"] = ++last_id_;
    open_.insert(last_id_);
    try {
        channel_.send(header, phase, deadline, payload, fds);
    } catch (const TransportError&) {
        // The engine hung up; what it said before (why) tells more than a broken pipe.
        while (channel_.readable()) read_one(phase, deadline);
        throw;
    }
    return last_id_;
}

void Connection::read_one(const std::string& phase, Deadline deadline) {
    Message reply = channel_.receive(phase, deadline);
    const std::int64_t id = messages::integer_field(reply.header, "id", 0);
    // Id 0: an error from before any request was understood; every waiting request fails with it.
    if (id == 0) messages::throw_if_failed(reply.header, peer(), phase);
    if (open_.erase(id) == 0)
        throw MalformedMessage(fmt::format("{}: a reply to request {}, which nobody made", peer(), id));
    if (dropped_.erase(id) == 0) replies_[id] = std::move(reply);
}

Message Connection::wait(std::int64_t id, const std::string& phase, Deadline deadline) {
    for (bool first = true;; first = false) {
        const auto found = replies_.find(id);
        if (found != replies_.end()) {
            Message reply = std::move(found->second);
            replies_.erase(found);
            messages::throw_if_failed(reply.header, peer(), phase);
            return reply;
        }
        if (!first && deadline.passed())
            throw DeadlineExceeded(peer(), phase, "no answer within the deadline", true);
        read_one(phase, deadline);
    }
}

void Connection::forget(std::int64_t id) {
    if (replies_.erase(id) == 0 && open_.contains(id)) dropped_.insert(id);
}

bool Connection::answered(std::int64_t id, const std::string& phase) {
    while (!replies_.contains(id) && channel_.readable()) {
        read_one(phase, Deadline::after(std::chrono::seconds(1)));  // the rest of a frame that has begun
    }
    return replies_.contains(id);
}

bool Connection::refused(std::int64_t id, const std::string& phase) {
    return answered(id, phase) && replies_.at(id).header.value("ok", nlohmann::json()) != true;
}

}  // namespace tandem::engine
