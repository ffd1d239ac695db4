#include "engine_adapter/receiver/requests.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/device/shared_arena.h"
#include "common/error.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/receiver/nccl_bucket.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxBuckets = std::int64_t{1} << 30;

template <typename T>
std::vector<T> list_of(const Message& message, const char* count) {
    const std::int64_t items = messages::integer_field(message.header, count, 0);
    return messages::from_bytes<T>({message.payload.data(), message.payload.size()},
                                   static_cast<std::size_t>(items));
}

std::uint64_t count_of(const Message& message, const char* name, std::int64_t minimum) {
    return static_cast<std::uint64_t>(messages::integer_field(message.header, name, minimum));
}

Reply milliseconds(double ms) {
    return {json::object({{"ms", ms}})};
}

// Of any load: of all bytes in the first region, where changes lie, and of each bucket.
std::uint64_t largest_bucket(const TransferPlan& plan, const std::vector<std::int64_t>& sizes) {
    std::uint64_t largest = 0;
    if (!sizes.empty()) largest = static_cast<std::uint64_t>(sizes[0]) + kPackedAlign * plan.transfers.size();
    for (std::size_t b = 0; b < plan.buckets(); ++b)
        largest = std::max(largest, packed_offsets(plan.bucket(b)).back());
    return largest;
}

Announced announced_by(const json& header) {
    return {
        messages::integer_field(header, "id", 1),
        static_cast<int>(std::min<std::int64_t>(messages::integer_field(header, "index", 0), kMaxBuckets)),
        messages::form_from_name(messages::string_field(header, "form")), messages::deadline_field(header)};
}

}  // namespace

// --- which function answers

Reply Requests::answer(Message& message) {
    using Handler = Reply (Requests::*)(Message&);
    static constexpr std::array<std::pair<std::string_view, Handler>, 21> kHandlers{{
        {"hello", &Requests::hello},         {"attach", &Requests::attach},
        {"gpu_id", &Requests::gpu_id},       {"join", &Requests::join},
        {"leave", &Requests::leave},         {"ping", &Requests::ping},
        {"release", &Requests::release},     {"probe", &Requests::probe},
        {"held", &Requests::held},           {"pause", &Requests::pause},
        {"resume", &Requests::resume},       {"begin", &Requests::begin},
        {"load", &Requests::load},           {"load_delta", &Requests::load_delta},
        {"verify", &Requests::verify},       {"adopt", &Requests::adopt},
        {"commit", &Requests::commit},       {"abort", &Requests::abort},
        {"checksums", &Requests::checksums}, {"open_data", &Requests::open_data},
        {"relay", &Requests::relay},
    }};
    const std::string& op = messages::string_field(message.header, "op");
    for (const auto& [name, handler] : kHandlers) {
        if (op == name) return (this->*handler)(message);
    }
    throw MalformedMessage("unknown request '" + op + "'");
}

Reply Requests::hello(Message& message) {
    if (const std::int64_t protocol = messages::integer_field(message.header, "protocol", 0);
        protocol != messages::kProtocol) {
        throw ProtocolError(
            fmt::format("the trainer speaks protocol {}, this engine {}", protocol, messages::kProtocol));
    }
    constexpr std::int64_t kShortest = 100, kLongest = 86'400'000;  // ms
    const std::int64_t lease = messages::integer_field(message.header, "lease_ms", 1);
    lease_ = std::chrono::milliseconds(std::clamp(lease, kShortest, kLongest));
    return {messages::capabilities_to_json(update_.capabilities(engine_, depth_))};
}

// --- attach, and the data connections of TCP

Reply Requests::attach(Message& message) {
    const OfferedRegions offered = offered_by(message);
    TransferPlan plan =
        messages::unpack_plan({message.payload.data(), message.payload.size()},
                              count_of(message, "transfers", 0), count_of(message, "buckets", 0));
    plan.ranks = count_of(message, "ranks", 1);
    if (message.header.contains("cores")) plan.cores = messages::integers_field(message.header, "cores", 0);
    if (offered.way == Way::nccl) {
        member_.gpu_id();  // there is a GPU
        update_.attach(leave_unmapped(offered, update_.device()), std::move(plan));
        way_ = Way::nccl;
        member_.prepare(update_.plan());
        return {};
    }
    end_data();
    if (offered.way == Way::tcp) {
        require_data_plane();
        update_.attach(leave_unmapped(offered, {}), std::move(plan));
        way_ = Way::tcp;
        largest_ = largest_bucket(update_.plan(), offered.sizes);
        member_.forget();
        return {};
    }
    update_.attach(map_offered(offered, message, update_), std::move(plan));
    way_ = Way::mapped;
    member_.forget();
    return {json::object({{"relays", update_.relays()}})};
}

void Requests::require_data_plane() const {
    if (data_plane_ == nullptr)
        throw ProtocolError("this engine has no data plane over TCP (tandem-engine serve --data-listen)");
}

// Data connections come with the token that this gives, and bring what is attached.
Reply Requests::open_data(Message&) {
    require_data_plane();
    if (way_ != Way::tcp) throw ProtocolError("data connections without an attach over TCP");
    end_data();
    tcp_member_.open(largest_);
    const std::string token = random_hex();
    data_plane_->expect_data(token, [this](TcpListener::Accepted accepted) {
        tcp_member_.add(std::move(accepted.socket), accepted.peer);
    });
    return {json::object({{"token", token}})};
}

void Requests::end_data() {
    if (data_plane_ != nullptr) data_plane_->expect_none();
    tcp_member_.close();
}

TcpAnnounced Requests::tcp_announced(const json& header) const {
    return {static_cast<std::uint64_t>(messages::integer_field(header, "serial", 0)),
            fmt::format("load bucket {}", messages::integer_field(header, "index", 0)),
            messages::deadline_field(header)};
}

// --- the NCCL group; ping and release

Reply Requests::gpu_id(Message&) {
    return {json::object({{"gpu_id", member_.gpu_id()}})};
}

Reply Requests::join(Message& message) {
    const json& header = message.header;
    constexpr std::int64_t kMaxRanks = 1 << 16;
    const std::int64_t size = messages::integer_field(header, "size", 2);
    const std::int64_t rank = messages::integer_field(header, "rank", 1);
    if (size > kMaxRanks || rank >= size)
        throw MalformedMessage(fmt::format("rank {} of {} in an NCCL group", rank, size));
    member_.join(messages::id_from_hex(messages::string_field(header, "unique_id")), static_cast<int>(rank),
                 static_cast<int>(size), messages::deadline_field(header), check_);
    return {};
}

Reply Requests::leave(Message&) {
    member_.leave();
    return {};
}

// receiver.cpp answers it while a load over NCCL is being served.
Reply Requests::ping(Message&) {
    return {json::object({{"busy", false}})};
}

Reply Requests::release(Message&) {
    update_.release();
    member_.forget();
    end_data();
    tcp_member_.free_memory();
    way_ = Way::mapped;
    return {};
}

// --- a push

Reply Requests::held(Message&) {
    const Held held = update_.held();
    return {json::object({{"version", held.version}, {"manifest", ops::to_hex(held.manifest)}})};
}

Reply Requests::pause(Message& message) {
    update_.pause(messages::deadline_field(message.header));
    return {json::object({{"packed_ms", update_.packed_ms()}})};
}

Reply Requests::resume(Message&) {
    update_.resume();
    return {};
}

Reply Requests::begin(Message& message) {
    const bool rollback =
        message.header.contains("rollback") && messages::bool_field(message.header, "rollback");
    update_.begin(messages::integer_field(message.header, "version", 1), rollback);
    return {};
}

Reply Requests::load(Message& message) {
    const std::int64_t index = messages::integer_field(message.header, "index", 0);
    const std::vector<ops::Checksum> checksums = list_of<ops::Checksum>(message, "checksums");
    if (way_ == Way::mapped) return milliseconds(update_.load(index, checksums));
    try {
        if (way_ == Way::tcp) {
            TcpBytes bytes(tcp_member_, tcp_announced(message.header), check_, waits_for_bytes_);
            TcpBucketReceiver receiver(bytes, update_.plan());
            return milliseconds(update_.load(index, checksums, &receiver));
        }
        NcclBucketReceiver receiver(member_, announced_by(message.header), check_, waits_for_bytes_);
        return milliseconds(update_.load(index, checksums, &receiver));
    } catch (...) {
        // The trainer ends group or connections when it hears of this: all that is under way is lost.
        member_.drop();
        end_data();
        throw;
    }
}

Reply Requests::probe(Message& message) {
    return milliseconds(update_.probe(count_of(message, "offset", 0), count_of(message, "bytes", 1),
                                      count_of(message, "piece_bytes", 1)));
}

Reply Requests::relay(Message& message) {
    constexpr std::int64_t kMost = 1 << 16;  // ranks, engines
    const std::uint64_t ranks = count_of(message, "ranks", 1), engines = count_of(message, "engines", 1);
    if (ranks > kMost || engines > kMost || message.fds.size() != 1)
        throw MalformedMessage(fmt::format("a relay of {} ranks to {} engines with {} file descriptors",
                                           ranks, engines, message.fds.size()));
    if (way_ != Way::mapped) throw ProtocolError("a relay of memory that is not mapped here");
    const SharedArena arena =
        SharedArena::open(message.fds.front().release(), RelayWords::bytes(ranks, engines));
    const RelayWords words(arena.span(), ranks, engines);
    const Deadline deadline = messages::deadline_field(message.header);
    const RelayOrder order{words, count_of(message, "engine", 0), count_of(message, "from", 0), [&] {
                               check_();
                               if (deadline.passed())
                                   throw DeadlineExceeded("the trainer", "relay",
                                                          "not all buckets were written in time");
                           }};
    const WaitsForBytes waits(waits_for_bytes_);
    try {
        if (!message.header.contains("buckets")) return milliseconds(update_.relay(order));
        const RelayProbe probe{count_of(message, "buckets", 1), count_of(message, "bucket_bytes", 1),
                               count_of(message, "piece_bytes", 1), count_of(message, "slots", 1)};
        return milliseconds(update_.probe_relay(order, probe));
    } catch (...) {
        words.stop(order.from, order.engine);
        throw;
    }
}

Reply Requests::load_delta(Message& message) {
    const std::int64_t index = messages::integer_field(message.header, "index", 0);
    const std::vector<DeltaEntry> entries = list_of<DeltaEntry>(message, "entries");
    if (way_ != Way::tcp) return milliseconds(update_.load_delta(index, entries));
    try {
        TcpBytes bytes(tcp_member_, tcp_announced(message.header), check_, waits_for_bytes_);
        TcpChangesReceiver receiver(bytes, entries);
        return milliseconds(update_.load_delta(index, entries, &receiver));
    } catch (...) {
        end_data();
        throw;
    }
}

Reply Requests::verify(Message& message) {
    return milliseconds(update_.verify(list_of<ops::Checksum>(message, "checksums")));
}

Reply Requests::adopt(Message& message) {
    const std::int64_t shift = messages::integer_field(message.header, "shift", 0);
    update_.adopt(static_cast<std::uint64_t>(shift), list_of<ops::Checksum>(message, "checksums"));
    return {};
}

Reply Requests::commit(Message& message) {
    const std::int64_t version = messages::integer_field(message.header, "version", 1);
    const bool resume = message.header.contains("resume") && messages::bool_field(message.header, "resume");
    update_.commit(version, ops::checksum_from_hex(messages::string_field(message.header, "manifest")),
                   resume);
    if (resume) update_.resume();
    return {};
}

Reply Requests::abort(Message& message) {
    update_.abort(messages::string_field(message.header, "reason"));
    return {};
}

Reply Requests::checksums(Message&) {
    const std::vector<ops::Checksum> all = update_.checksums();
    const ConstSpan bytes = messages::as_bytes(std::span<const ops::Checksum>(all));
    return {json::object(), {bytes.data, bytes.data + bytes.bytes}};
}

void Requests::start_receives_ahead(const std::deque<Message>& queued) {
    if (way_ != Way::nccl || !member_.joined()) return;
    for (const Message& message : queued) {
        Announced announced;
        try {
            if (messages::string_field(message.header, "op") != "load") return;
            announced = announced_by(message.header);
        } catch (const MalformedMessage&) {
            return;  // refused in its turn
        }
        if (static_cast<std::size_t>(announced.bucket) >= update_.plan().buckets()) return;  // likewise
        const WaitsForBytes waits(waits_for_bytes_);  // a launch may wait for the trainer's
        if (!member_.start_receive(announced, check_)) return;
    }
}

void Requests::lose_trainer(const std::string& reason) {
    update_.lose_trainer(reason);
    lease_ = {};
    member_.drop();
    member_.forget();
    end_data();
    tcp_member_.free_memory();
    way_ = Way::mapped;
}

}  // namespace tandem::engine
