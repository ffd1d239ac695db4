#include "engine_adapter/transport/nccl/group.h"

#include <algorithm>
#include <exception>

#include "common/comm/nccl/api.h"
#include "common/error.h"
#include "common/identity/gpu_identity.h"
#include "common/identity/host_identity.h"
#include "common/log.h"
#include "engine_adapter/channel/messages.h"

namespace tandem::engine {
namespace {

using comm::nccl::Api;
using comm::nccl::Comm;
using comm::nccl::Handle;
using comm::nccl::Result;
using comm::nccl::Type;

constexpr std::chrono::milliseconds kCheckEvery{20};  // NCCL's state, while waiting for an answer
constexpr std::chrono::milliseconds kPingTimeout{1000};
constexpr std::chrono::seconds kLeave{6};

// An engine rank refused its bytes while they were about to leave; its answer says why.
struct Refused {};

}  // namespace

// --- the group: formed at the first attach, left by all

NcclGroup::NcclGroup(std::vector<std::shared_ptr<Connection>> engines, NcclOptions options)
    : options_(options) {
    require(options_.device.type == DeviceType::cuda, "NCCL moves memory of GPUs, not of {}",
            to_string(options_.device));
    require(!engines.empty(), "an NCCL group without an engine rank");
    for (auto& connection : engines) engines_.push_back({std::move(connection), {}});
}

NcclGroup::~NcclGroup() {
    if (!handle_) return;
    if (!in_flight_.empty() || std::uncaught_exceptions() > 0) {
        abort("the trainer ended");
        return;
    }
    // The end is collective: tell all engine ranks before waiting for one.
    std::vector<std::pair<std::size_t, std::int64_t>> told;
    const Deadline deadline = Deadline::after(kLeave);
    try {
        for (std::size_t e = 0; e < engines_.size(); ++e)
            told.emplace_back(e, engines_[e].connection->post({{"op", "leave"}}, "leave", deadline));
        api().native_stream(*stream_);
        handle_.reset();
        for (const auto& [e, request] : told) engines_[e].connection->wait(request, "leave", deadline);
    } catch (const std::exception& error) {
        log_warn("the end of the NCCL group: {}", error.what());
        if (handle_) abort(error.what());
    }
}

const Api& NcclGroup::api() {
    if (options_.api == nullptr) options_.api = &comm::nccl::api_for(options_.device);
    return *options_.api;
}

// NCCL 2.28 refuses two ranks on one GPU, with a message that does not say what to do.
void NcclGroup::require_own_gpus(const std::string& phase, Deadline deadline) {
    if (gpus_checked_) return;
    std::vector<std::string> gpu_ids{host_identity() + " " + gpu_identity(options_.device)};
    std::vector<std::string> names{"the trainer's rank 0"};
    for (const Member& member : engines_) {
        const Message reply = member.connection->request({{"op", "gpu_id"}}, phase, deadline);
        const std::string& gpu_id = messages::string_field(reply.header, "gpu_id");
        const auto same = std::find(gpu_ids.begin(), gpu_ids.end(), gpu_id);
        if (same != gpu_ids.end()) {
            throw ProtocolError(fmt::format(
                "{} and {} are both on {}: NCCL refuses two ranks on one GPU; use the transport cuda_ipc, "
                "or give each a GPU of its own",
                names[static_cast<std::size_t>(same - gpu_ids.begin())], member.connection->peer(),
                gpu_id.substr(gpu_id.find(' ') + 1)));
        }
        gpu_ids.push_back(gpu_id);
        names.push_back(member.connection->peer());
    }
    gpus_checked_ = true;
}

std::vector<std::int64_t> NcclGroup::send_joins(const comm::nccl::UniqueId& id, const std::string& phase,
                                                Deadline deadline) {
    std::vector<std::int64_t> requests;
    for (std::size_t e = 0; e < engines_.size(); ++e) {
        requests.push_back(engines_[e].connection->post({{"op", "join"},
                                                         {"unique_id", messages::id_to_hex(id)},
                                                         {"rank", e + 1},
                                                         {"size", engines_.size() + 1},
                                                         {"timeout_ms", messages::timeout_ms(deadline)}},
                                                        phase, deadline));
    }
    return requests;
}

void NcclGroup::form(const std::string& phase, Deadline deadline) {
    if (handle_) return;
    require_own_gpus(phase, deadline);
    if (!stream_) stream_.emplace(Stream::make(options_.device, "nccl push"));
    api().native_stream(*stream_);  // makes the device current
    comm::nccl::UniqueId id{};
    if (const Result result = api().get_unique_id(&id); result != Result::success)
        Handle::fail(api(), result, phase, "no unique id");
    reason_.clear();
    const std::vector<std::int64_t> requests = send_joins(id, phase, deadline);
    std::vector<bool> heard(engines_.size());
    const auto hear = [&] {
        for (std::size_t e = 0; e < engines_.size(); ++e) {
            if (heard[e] || !engines_[e].connection->answered(requests[e], phase)) continue;
            engines_[e].connection->wait(requests[e], phase, deadline);  // throws what it refused with
            heard[e] = true;
        }
    };
    try {
        handle_.emplace(api(), id, 0, static_cast<int>(engines_.size()) + 1, "weights", deadline, hear);
        for (std::size_t e = 0; e < engines_.size(); ++e) {
            if (!heard[e]) engines_[e].connection->wait(requests[e], phase, deadline);
        }
    } catch (const DeadlineExceeded&) {
        throw_late("an engine rank", phase);
    } catch (const std::exception& error) {
        abort(error.what());
        throw;
    }
}

// --- buckets: to all at once where all want the same bytes

void NcclGroup::attach(int engine, const std::vector<Span>& regions, const TransferPlan& plan) {
    auto& buckets = engines_[static_cast<std::size_t>(engine)].buckets;
    buckets.clear();
    for (std::size_t b = 0; b < plan.buckets(); ++b) {
        auto& pieces = buckets.emplace_back();
        for (const Run& run : runs_of(plan.bucket(b)).list)
            pieces.push_back(regions.at(run.region).subspan(run.offset, run.bytes));
    }
}

const std::vector<Span>& NcclGroup::pieces(int engine, int bucket) const {
    return engines_[static_cast<std::size_t>(engine)].buckets.at(static_cast<std::size_t>(bucket));
}

bool NcclGroup::same_for_all(int bucket) const {
    const auto& first = engines_[0].buckets;
    return std::all_of(engines_.begin(), engines_.end(), [&](const Member& member) {
        const auto b = static_cast<std::size_t>(bucket);
        if (b >= first.size() || b >= member.buckets.size()) return false;
        return std::equal(first[b].begin(), first[b].end(), member.buckets[b].begin(),
                          member.buckets[b].end(), [](const Span& one, const Span& other) {
                              return one.data == other.data && one.bytes == other.bytes;
                          });
    });
}

NcclForm NcclGroup::choose_form(int engine, int bucket) {
    if (broadcast_) {
        require(broadcast_->bucket == bucket && !broadcast_->told.contains(engine),
                "bucket {} for engine rank {} before every engine rank was told of bucket {}, which all get "
                "at once",
                bucket, engine, broadcast_->bucket);
        return NcclForm::broadcast;
    }
    const bool same = same_for_all(bucket);
    const NcclForm form =
        options_.form.value_or(same && engines_.size() > 1 ? NcclForm::broadcast : NcclForm::send);
    require(form == NcclForm::send || same,
            "bucket {} is not the same for every engine rank, so it cannot be broadcast", bucket);
    if (form == NcclForm::broadcast) broadcast_ = Broadcast{bucket, {}};
    return form;
}

void NcclGroup::launch(int engine, int bucket, std::int64_t request, const std::string& phase,
                       Deadline deadline) {
    in_flight_[{engine, bucket}] = {request};
    if (!broadcast_) return send(NcclForm::send, bucket, {{engine, request}}, phase, deadline);
    broadcast_->told.insert(engine);
    if (broadcast_->told.size() < engines_.size()) return;
    broadcast_.reset();
    std::vector<Sending> all;
    for (int e = 0; e < engines(); ++e) all.push_back({e, in_flight_.at({e, bucket}).request});
    send(NcclForm::broadcast, bucket, all, phase, deadline);
}

void NcclGroup::send(NcclForm form, int bucket, const std::vector<Sending>& to, const std::string& phase,
                     Deadline deadline) {
    const std::vector<Span>& bytes = pieces(to.front().engine, bucket);
    if (bytes.empty() || !handle_) return;  // a group that has ended: the answers say so
    const auto refused = [&] {
        for (const Sending& one : to) {
            if (connection(one.engine).refused(one.request, phase)) throw Refused{};
        }
    };
    try {
        const auto native = api().native_stream(*stream_);
        handle_->launch(
            phase, deadline,
            [&](const Api& api, Comm comm) {
                for (const Span& piece : bytes) {
                    const Result result =
                        form == NcclForm::broadcast
                            ? api.broadcast(piece.data, piece.data, piece.bytes, Type::uint8, 0, comm, native)
                            : api.send(piece.data, piece.bytes, Type::uint8, 1 + to.front().engine, comm,
                                       native);
                    if (failed(result)) return result;
                }
                return Result::success;
            },
            refused);
        const Event sent = stream_->record();
        for (const Sending& one : to) in_flight_.at({one.engine, bucket}).sent = sent;
    } catch (const Refused&) {
        abort(phase + " was refused");
    } catch (const DeadlineExceeded&) {
        throw_late(connection(to.front().engine).peer(), phase);
    } catch (const std::exception& error) {
        abort(error.what());
        throw;
    }
}

// --- waiting

void NcclGroup::wait_answered(int engine, std::int64_t request, const std::string& phase, Deadline deadline) {
    Connection& channel = connection(engine);
    while (!channel.answered(request, phase)) {
        if (broken())
            throw TransportError(channel.peer(), phase, "the NCCL group has ended: " + reason_, true);
        for (const Member& member : engines_) {
            if (member.connection->hung_up() && member.connection.get() != &channel)
                throw TransportError(member.connection->peer(), phase, "the engine is gone", true);
        }
        const Result state = handle_ ? handle_->state() : Result::success;
        if (failed(state)) {
            const std::string text =
                fmt::format("NCCL reports error {}: {}", static_cast<int>(state), handle_->last_error());
            abort(text);
            throw TransportError(channel.peer(), phase, text, true);
        }
        if (deadline.passed()) throw_late(channel.peer(), phase);
        channel.wait_readable(std::min<std::chrono::nanoseconds>(kCheckEvery, deadline.left()));
    }
}

void NcclGroup::wait_sent(int engine, int bucket, Deadline deadline) {
    const auto found = in_flight_.find({engine, bucket});
    if (found == in_flight_.end()) return;
    found->second.sent.wait(deadline);
    in_flight_.erase(found);
}

// --- failures, and who is to blame

void NcclGroup::abort(const std::string& reason) noexcept {
    broadcast_.reset();
    in_flight_.clear();
    if (!handle_) return;
    log_warn("the NCCL group of the weights ends: {}", reason);
    reason_ = reason;
    handle_->abort();
    handle_.reset();
    try {
        stream_->synchronize();  // nothing reads the regions any more
    } catch (const std::exception& error) {
        log_warn("{}", error.what());
    }
}

void NcclGroup::throw_naming_late_ranks(const std::string& phase, const std::string& reason) {
    const Pings pings = ping_all();
    abort(reason);
    const bool silent = !pings.silent.empty();
    const std::vector<std::string>& names = silent ? pings.silent : pings.busy;
    if (names.empty()) return;
    std::string who = names.front();
    for (std::size_t i = 1; i < names.size(); ++i) who += ", " + names[i];
    throw DeadlineExceeded(who, phase,
                           silent ? "no answer within the deadline, nor to a ping"
                                  : "still at work on what came before at the deadline",
                           true);
}

void NcclGroup::throw_late(const std::string& waited_for, const std::string& phase) {
    throw_naming_late_ranks(phase, phase + " is late");
    throw DeadlineExceeded(waited_for, phase,
                           "no answer within the deadline; every engine rank still listens", true);
}

// NCCL does not say which rank is missing. An engine rank answers a ping even while it waits for bytes or
// copies them.
NcclGroup::Pings NcclGroup::ping_all() {
    const Deadline deadline = Deadline::after(kPingTimeout);
    std::vector<std::int64_t> requests(engines_.size(), -1);
    Pings result;
    for (std::size_t e = 0; e < engines_.size(); ++e) {
        try {
            requests[e] = engines_[e].connection->post({{"op", "ping"}}, "ping", deadline);
        } catch (const std::exception&) {  // silent, see below
        }
    }
    for (std::size_t e = 0; e < engines_.size(); ++e) {
        Connection& one = *engines_[e].connection;
        try {
            if (requests[e] < 0) throw TransportError(one.peer(), "ping", "gone");
            const Message reply = one.wait(requests[e], "ping", deadline);
            if (reply.header.value("busy", false)) result.busy.push_back(one.peer());
        } catch (const std::exception&) {
            result.silent.push_back(one.peer());
        }
    }
    return result;
}

}  // namespace tandem::engine
