// Calls that do not agree, bad arguments, abort, and deadlines that name who is late.
#include <chrono>
#include <thread>

#include "common/error.h"
#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/data.h"

namespace tandem::comm::contract {
namespace {

template <typename Call>
void disagree(const World& world, const std::string& one, const std::string& other, Call&& call) {
    const std::string message =
        message_of<InvalidArgument>([&] { call(world->rank() == world->size() - 1); });
    expect_contains(message, "rank 0");
    expect_contains(message, fmt::format("rank {}", world->size() - 1));
    expect_contains(message, one);
    expect_contains(message, other);
    world->barrier();  // the group goes on
}

// Every rank sees the same error, naming both sides, and the group still works.
void calls_disagree(const World& world) {
    Stream stream = Stream::make_inline();
    const auto n = static_cast<std::size_t>(world->size());
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{100'000}}) {
        Buffer send(bytes, "test");
        Buffer recv(bytes * n, "test");
        disagree(world, "barrier", "all_gather",
                 [&](bool odd) { odd ? world->barrier() : world->all_gather(send.span(), recv.span()); });
        disagree(world, "all_gather", fmt::format("item 0 has {} bytes, then {}", bytes, bytes - 4),
                 [&](bool odd) {
                     const std::size_t own = odd ? bytes - 4 : bytes;
                     world->all_gather(send.span().subspan(0, own), recv.span().subspan(0, own * n));
                 });
        disagree(world, "sum of float32", "sum of bfloat16",
                 [&](bool odd) { world->all_reduce(send.span(), odd ? DType::bfloat16 : DType::float32); });
        disagree(world, "max", "sum", [&](bool odd) {
            world->all_reduce(send.span(), DType::float32, odd ? ReduceOp::max : ReduceOp::sum);
        });
        disagree(world, "from member 0", "from member 1",
                 [&](bool odd) { world->broadcast(send.span(), odd ? 1 : 0); });
        disagree(world, "1 items", "2 items", [&](bool odd) {
            const GatherItem item{send.span(), recv.span()};
            const GatherItem items[] = {item, item};
            world->all_gather(std::span(items, odd ? 2 : 1), stream);
        });
    }
    const std::string message = message_of<InvalidArgument>([&] {
        std::vector<std::byte> memory(64 * n);
        AllToAllItem item{{memory.data(), 8 * n}, {memory.data(), 8 * n}, {}, {}};
        item.send_bytes.assign(n, 8);
        item.recv_bytes.assign(n, 8);
        if (world->rank() == 1) {
            item.recv_bytes[0] = 4;
            item.recv.bytes -= 4;
        }
        world->all_to_all(item, stream);
    });
    expect_contains(message, "rank 0 sends 8 bytes to rank 1, which expects 4");
    world->barrier();
}

void arguments(const World& world) {
    Stream stream = Stream::make_inline();
    const auto n = static_cast<std::size_t>(world->size());
    std::vector<std::byte> memory(64 * n);
    const Span span{memory.data(), memory.size()};
    expect_contains(message_of<InvalidArgument>([&] { world->all_gather(span, span.subspan(0, 8)); }),
                    "8 bytes");
    const ReduceScatterItem scatter{span, span.subspan(0, 8)};
    if (n != 8) {
        message_of<InvalidArgument>(
            [&] { world->reduce_scatter(std::span(&scatter, 1), ReduceOp::sum, stream); });
    }
    message_of<InvalidArgument>([&] { world->all_reduce(span, DType::uint8); });
    message_of<InvalidArgument>([&] { world->all_reduce(span, DType::int64, ReduceOp::avg); });
    message_of<InvalidArgument>([&] { world->all_reduce(span.subspan(0, 6), DType::float32); });
    message_of<InvalidArgument>([&] { world->broadcast(span, world->size()); });
    const P2POp op{P2POp::Kind::send, -1, span};
    message_of<InvalidArgument>([&] { world->p2p(std::span(&op, 1), stream); });
    message_of<InvalidArgument>([&] { world->split({world->rank(), world->rank()}, "twice"); });
    message_of<InvalidArgument>([&] { world->split({world->rank(), world->size()}, "unknown"); });
    message_of<InvalidArgument>(
        [&] { world->split({(world->rank() + 1) % world->size() + world->size()}, "x"); });
    message_of<InvalidArgument>([&] { world->split({}, "nobody"); });
    message_of<InvalidArgument>([&] { world->set_timeout(std::chrono::milliseconds(0)); });
    world->barrier();
}

// Rank 0 aborts from another thread while all wait; everybody gets its reason, then and at every later call.
void abort_while_pending(const World& world) {
    Stream stream = Stream::make_worker("pending");
    std::thread other;
    const auto start = std::chrono::steady_clock::now();
    Work pending;
    if (world->rank() == 0) {
        other = std::thread([world] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            world->abort("enough of this");
        });
        const Buffer memory(16, "test");
        const P2POp op{P2POp::Kind::recv, 0, memory.span()};
        const std::string message = message_of<TransportError>([&] {
            Stream now = Stream::make_inline();
            world->p2p(std::span(&op, 1), now);
        });
        expect_contains(message, "enough of this");
        other.join();
    } else {
        pending = world->barrier(stream);
        const std::string message =
            message_of<TransportError>([&] { pending.wait(Deadline::after_ms(30'000)); });
        expect_contains(message, "enough of this");
        expect_contains(message, "rank 0");
        expect_contains(message, "barrier on 'world'");
        expect(pending.poll() == Poll::failed, "a failed call must poll as failed");
    }
    const auto took = std::chrono::steady_clock::now() - start;
    expect(took < std::chrono::seconds(20), "the abort was noticed late");  // 60 s: the deadline
    if (world->rank() != 0) return;
    expect_contains(message_of<TransportError>([&] { world->barrier(); }), "enough of this");
    expect_contains(message_of<TransportError>([&] { world->split({0}, "late"); }), "enough of this");
}

// The last rank does not come: the others name it, and then so does everybody's next call.
void deadline_names_the_late(const World& world) {
    world->barrier();
    const std::string late = fmt::format("rank {}", world->size() - 1);
    if (world->rank() == world->size() - 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        const std::string message = message_of<TransportError>([&] { world->barrier(); });
        expect_contains(message, "barrier on 'world'");
        expect_contains(message, "not there after 0.6 s");
        return;
    }
    world->set_timeout(std::chrono::milliseconds(600));
    // Whoever times out first aborts; the others may see its abort instead of their own deadline.
    const std::string message = message_of<TransportError>([&] { world->barrier(); });
    expect_contains(message, late + ": not there after 0.6 s");
    for (int r = 0; r + 1 < world->size(); ++r) {
        expect(message.find(fmt::format("with rank {},", r)) == std::string::npos, "it also names rank {}",
               r);
    }
}

void p2p_deadline(const World& world) {
    world->barrier();
    if (world->rank() != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        expect_contains(message_of<TransportError>([&] { world->barrier(); }), "p2p on 'world'");
        return;
    }
    world->set_timeout(std::chrono::milliseconds(200));
    Stream stream = Stream::make_inline();
    const Buffer memory(16, "test");
    const P2POp op{P2POp::Kind::recv, 1, memory.span()};
    const std::string message = message_of<DeadlineExceeded>([&] { world->p2p(std::span(&op, 1), stream); });
    expect_contains(message, "p2p on 'world' with rank 1: not there after 0.2 s");
}

void p2p_sizes_disagree(const World& world) {
    Stream stream = Stream::make_inline();
    const Buffer memory(16, "test", world->memory());
    const std::string text = "rank 0 sends 16 bytes to rank 1, which expects 8";
    if (world->rank() == 0) {
        const P2POp op{P2POp::Kind::send, 1, memory.span()};
        expect_contains(message_of<TransportError>([&] { world->p2p(std::span(&op, 1), stream); }), text);
    } else if (world->rank() == 1) {
        const P2POp op{P2POp::Kind::recv, 0, memory.span().subspan(0, 8)};
        expect_contains(message_of<InvalidArgument>([&] { world->p2p(std::span(&op, 1), stream); }), text);
    } else {
        expect_contains(message_of<TransportError>([&] { world->barrier(); }), text);
    }
}

}  // namespace

std::vector<Check> failure_checks() {
    return {{"calls_disagree", calls_disagree, 2},
            {"arguments", arguments},
            {"abort_while_pending", abort_while_pending, 2},
            {"deadline_names_the_late", deadline_names_the_late, 2},
            {"p2p_deadline", p2p_deadline, 2},
            {"p2p_sizes_disagree", p2p_sizes_disagree, 2}};
}

}  // namespace tandem::comm::contract
