#include "tests/support/fiber_ranks.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "common/comm/queued.h"
#include "common/comm/reduce.h"
#include "common/error.h"
#include "tests/support/fiber_switch.h"

namespace tandem::test {
namespace {

using comm::AbortNote;
using comm::AllToAllItem;
using comm::GatherItem;
using comm::P2POp;
using comm::ReduceOp;
using comm::ReduceScatterItem;
using Body = std::function<void(std::shared_ptr<comm::Communicator>)>;

constexpr std::size_t kStackBytes = 1 << 20;

// Where the members of a group meet: to begin a call, with what they bring, and to leave it together.
struct Meeting {
    struct Brought {
        const char* call = "";
        const void* arguments = nullptr;  // on a member's stack: there until all have left
    };
    std::string group;
    std::vector<Brought> brought;
    std::size_t arrived = 0;
    std::uint64_t turn = 0;
};

// From one member of a group to another: what was sent and not received, in order.
struct Letters {
    Meeting arrivals;  // a turn a letter
    std::deque<std::vector<std::byte>> waiting;
};

struct Rank {
    fibers::Flow flow;
    std::unique_ptr<std::byte[]> stack;
    const Meeting* waits_for = nullptr;
    std::uint64_t turn = 0;  // of it
    const char* call = "";   // that it waits in
    bool done = false;
};

struct World {
    std::vector<Rank> ranks;
    fibers::Flow scheduler;
    int running = 0;
    const Body* body = nullptr;
    std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<Meeting>> meetings;
    std::map<std::tuple<std::string, int, int>, Letters>
        letters;  // by group, sender and receiver (global ranks)
    std::optional<std::mt19937> delays;
    std::optional<AbortNote> aborted;
    std::exception_ptr cause;

    Rank& self() { return ranks[static_cast<std::size_t>(running)]; }
    void abort(const std::string& who, const std::string& reason) {
        if (!aborted) aborted = AbortNote{who, reason};
    }
};

thread_local World* world = nullptr;

std::string rank_name(int rank) {
    return "rank " + std::to_string(rank);
}

// What a rank waits in: "all_gather on 'dp'".
std::string place(const Rank& rank) {
    return fmt::format("{} on '{}'", rank.call, rank.waits_for->group);
}

class FiberCollectives final : public comm::Collectives, private comm::Operations {
  public:
    FiberCollectives(std::string name, std::vector<int> ranks)
        : name_(std::move(name)),
          ranks_(std::move(ranks)),
          index_(static_cast<int>(std::ranges::find(ranks_, world->running) - ranks_.begin())) {
        std::shared_ptr<Meeting>& meeting = world->meetings[{name_, ranks_}];
        if (!meeting) meeting = std::make_shared<Meeting>();
        meeting->group = name_;
        meeting->brought.resize(ranks_.size());
        meeting_ = meeting;
    }

    int index() const override { return index_; }
    const std::vector<int>& ranks() const override { return ranks_; }
    const std::string& name() const override { return name_; }
    Operations& on_cpu() override { return *this; }

    void all_gather(const std::vector<GatherItem>& items) override {
        const auto all = meet<std::vector<GatherItem>>("all_gather", items);
        for (std::size_t i = 0; i < items.size(); ++i) {
            for (std::size_t m = 0; m < all.size(); ++m) {
                const ConstSpan from = all[m]->at(i).send;
                std::byte* const to = items[i].recv.data + m * from.bytes;
                if (from.bytes > 0 && to != from.data) std::memcpy(to, from.data, from.bytes);
            }
        }
        leave();
    }

    void reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op) override {
        const auto all = meet<std::vector<ReduceScatterItem>>("reduce_scatter", items);
        std::vector<std::vector<std::byte>> results;
        for (std::size_t i = 0; i < items.size(); ++i) {
            const std::size_t bytes = items[i].recv.bytes;
            std::vector<const std::byte*> sources;
            for (const auto* theirs : all)
                sources.push_back(theirs->at(i).send.data + static_cast<std::size_t>(index_) * bytes);
            std::vector<std::byte>& result = results.emplace_back(bytes);
            if (items[i].accumulate && bytes > 0) std::memcpy(result.data(), items[i].recv.data, bytes);
            comm::reduce(sources, result.data(), bytes, items[i].dtype, op, items[i].accumulate);
        }
        leave();
        for (std::size_t i = 0; i < items.size(); ++i) put(results[i], items[i].recv);
    }

    void all_reduce(Span inout, DType dtype, ReduceOp op) override {
        const auto all = meet<Span>("all_reduce", inout);
        std::vector<const std::byte*> sources;
        for (const Span* theirs : all) sources.push_back(theirs->data);
        std::vector<std::byte> result(inout.bytes);
        comm::reduce(sources, result.data(), inout.bytes, dtype, op);
        leave();
        put(result, inout);
    }

    void broadcast(Span memory, int root) override {
        const auto all = meet<Span>("broadcast", memory);
        if (index_ != root && memory.bytes > 0)
            std::memcpy(memory.data, all[static_cast<std::size_t>(root)]->data, memory.bytes);
        leave();
    }

    void all_to_all(const AllToAllItem& item) override {
        const auto all = meet<AllToAllItem>("all_to_all", item);
        std::byte* to = item.recv.data;
        for (std::size_t m = 0; m < all.size(); ++m) {
            const std::vector<std::size_t>& sizes = all[m]->send_bytes;
            const auto mine = static_cast<std::size_t>(index_);
            const std::size_t before = std::accumulate(sizes.begin(), sizes.begin() + index_, std::size_t{0});
            enforce(sizes[mine] == item.recv_bytes[m], "rank {} sends {} bytes to {}, which expects {}",
                    ranks_[m], sizes[mine], ranks_[mine], item.recv_bytes[m]);
            if (sizes[mine] > 0) std::memcpy(to, all[m]->send.data + before, sizes[mine]);
            to += sizes[mine];
        }
        leave();
    }

    void p2p(const std::vector<P2POp>& ops) override {
        const int self = ranks_[static_cast<std::size_t>(index_)];
        const auto between = [&](int from, int to) -> Letters& {
            Letters& letters = world->letters[{name_, from, to}];
            letters.arrivals.group = name_;
            return letters;
        };
        for (const P2POp& op : ops) {
            if (op.kind != P2POp::Kind::send) continue;
            Letters& letters = between(self, ranks_[static_cast<std::size_t>(op.peer)]);
            letters.waiting.emplace_back(op.memory.data, op.memory.data + op.memory.bytes);
            ++letters.arrivals.turn;
        }
        for (const P2POp& op : ops) {
            if (op.kind != P2POp::Kind::recv) continue;
            Letters& letters = between(ranks_[static_cast<std::size_t>(op.peer)], self);
            while (letters.waiting.empty()) wait_for("recv", letters.arrivals);
            const std::vector<std::byte> letter = std::move(letters.waiting.front());
            letters.waiting.pop_front();
            enforce(letter.size() == op.memory.bytes, "on '{}' member {} sent {} bytes, {} are expected",
                    name_, op.peer, letter.size(), op.memory.bytes);
            put(letter, op.memory);
        }
    }

    void barrier() override {
        meet<int>("barrier", index_);
        leave();
    }

    std::shared_ptr<Collectives> split(const std::vector<int>& ranks, const std::string& name) override {
        return std::make_shared<FiberCollectives>(name, ranks);
    }
    MemoryPool& memory() override { return cpu_pool(); }
    void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
    std::chrono::milliseconds timeout() const override { return timeout_; }
    void abort(const std::string& reason) noexcept override {
        world->abort(rank_name(world->running), reason);
    }
    std::optional<AbortNote> aborted() const override { return world->aborted; }

  private:
    // Waits for all members; what each brought, by index.
    template <typename Arguments>
    std::vector<const Arguments*> meet(const char* call, const Arguments& mine) {
        meeting_->brought[static_cast<std::size_t>(index_)] = {call, &mine};
        arrive(call);
        std::vector<const Arguments*> all;
        for (const Meeting::Brought& theirs : meeting_->brought) {
            enforce(std::strcmp(theirs.call, call) == 0, "on '{}' one rank is in {}, another in {}", name_,
                    call, theirs.call);
            all.push_back(static_cast<const Arguments*>(theirs.arguments));
        }
        return all;
    }
    // Nobody overwrites or frees what another still reads.
    void leave() { arrive("the end of a call"); }

    void arrive(const char* call) {
        Meeting& meeting = *meeting_;
        if (++meeting.arrived == ranks_.size()) {
            meeting.arrived = 0;
            ++meeting.turn;
            return;
        }
        wait_for(call, meeting);
    }

    // Until its next turn.
    static void wait_for(const char* call, const Meeting& meeting) {
        Rank& self = world->self();
        self.turn = meeting.turn;
        self.waits_for = &meeting;
        self.call = call;
        fibers::go_on(self.flow, world->scheduler);
        if (world->aborted) throw TransportError(world->aborted->who, place(self), world->aborted->reason);
    }

    static void put(const std::vector<std::byte>& from, Span to) {
        if (!from.empty()) std::memcpy(to.data, from.data(), from.size());
    }

    std::string name_;
    std::vector<int> ranks_;
    int index_;
    std::shared_ptr<Meeting> meeting_;
    std::chrono::milliseconds timeout_{60'000};
};

void run_rank() {
    fibers::arrived(world->scheduler);
    std::exception_ptr error;
    try {
        std::vector<int> all(world->ranks.size());
        std::iota(all.begin(), all.end(), 0);
        (*world->body)(std::make_shared<comm::QueuedCommunicator>(
            std::make_shared<FiberCollectives>("world", std::move(all))));
    } catch (const std::exception& failure) {
        world->abort(rank_name(world->running), failure.what());
        error = std::current_exception();
    }
    if (error && !world->cause) world->cause = error;
    Rank& self = world->self();
    self.done = true;
    fibers::go_on(self.flow, world->scheduler, true);
}

bool can_go_on(const Rank& rank) {
    return !rank.done && (rank.waits_for == nullptr || rank.waits_for->turn != rank.turn || world->aborted);
}

std::vector<std::size_t> order() {
    std::vector<std::size_t> ranks(world->ranks.size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    if (world->delays) std::ranges::shuffle(ranks, *world->delays);
    return ranks;
}

// Every rank that can go on, in turn, until all are done.
void schedule() {
    const auto done = [](const Rank& rank) { return rank.done; };
    while (!std::ranges::all_of(world->ranks, done)) {
        bool moved = false;
        for (const std::size_t r : order()) {
            Rank& rank = world->ranks[r];
            if (!can_go_on(rank)) continue;
            moved = true;
            if (world->delays && (*world->delays)() % 2 == 0) continue;
            world->running = static_cast<int>(r);
            fibers::go_on(world->scheduler, rank.flow);
        }
        if (moved) continue;
        std::string who;
        for (std::size_t r = 0; r < world->ranks.size(); ++r) {
            const Rank& rank = world->ranks[r];
            if (!rank.done) who += fmt::format("; {} in {}", rank_name(static_cast<int>(r)), place(rank));
        }
        world->abort("the job", "ranks wait for each other" + who);
    }
}

void run(int world_size, std::optional<std::mt19937> delays, const Body& body) {
    World here;
    here.body = &body;
    here.delays = delays;
    here.ranks.resize(static_cast<std::size_t>(world_size));
    for (Rank& rank : here.ranks) {
        rank.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
        rank.flow = fibers::new_flow(rank.stack.get(), kStackBytes, run_rank);
    }
    world = &here;
    schedule();
    world = nullptr;
    if (here.cause) std::rethrow_exception(here.cause);
}

}  // namespace

void run_fibers(int world_size, const Body& body) {
    run(world_size, std::nullopt, body);
}

void run_fibers(int world_size, unsigned delays, const Body& body) {
    run(world_size, std::mt19937(delays), body);
}

}  // namespace tandem::test
