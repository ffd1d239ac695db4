// The memory of a job that somebody else has laid out and goes on writing: what opens must be readable by a rank to the
// last byte, whatever posts, group lists and channel entries say. Bytes after the header's are laid over parts of a
// job of two ranks, as rank 1 or a stranger could.
//   u16 length, header: over the beginning of the file     then, again and again:
//   u8 place, u16 offset, u8 length, bytes                 place, mod 5: world group, its channel, a slot, a heap, the file
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/comm/ipc/collectives.h"
#include "common/comm/ipc/exchange.h"
#include "common/comm/ipc/rank.h"
#include "common/device/shared_arena.h"
#include "common/error.h"
#include "tests/fuzz/target.h"

namespace {

using namespace tandem;
using namespace tandem::comm::ipc;

constexpr std::size_t kHeapBytes = std::size_t{2} << 20;
constexpr std::size_t kRoom = 256;  // of what rank 0 receives into, between canaries

class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    bool empty() const { return size_ == 0; }
    std::size_t number(int bytes) {
        std::size_t value = 0;
        for (const char byte : take(static_cast<std::size_t>(bytes)))
            value = value << 8 | static_cast<unsigned char>(byte);
        return value;
    }
    std::string_view take(std::size_t bytes) {
        const std::size_t n = std::min(bytes, size_);
        const std::string_view part(reinterpret_cast<const char*>(data_), n);
        data_ += n;
        size_ -= n;
        return part;
    }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
};

// Lays `bytes` over the memory, at an offset that wraps.
void write(Span memory, std::size_t offset, std::string_view bytes) {
    offset %= memory.bytes;
    std::memcpy(memory.data + offset, bytes.data(), std::min(bytes.size(), memory.bytes - offset));
}

// A job as create() makes it, with the input's header over its own.
int sealed_copy(const Job& job, std::string_view header) {
    SharedArena copy = SharedArena::create("fuzz", job.memory().bytes, "");
    std::memcpy(copy.data(), job.memory().data, std::size_t{128} << 10);
    write(copy.span(), 0, header);
    return ::dup(copy.fd());
}

void lay_over(const Job& job, Input& input) {
    const GroupView world(job.world_block(), 2);
    const auto whole = [&](auto* at, std::size_t bytes) {
        return Span{reinterpret_cast<std::byte*>(at), bytes};
    };
    while (!input.empty()) {
        const std::size_t place = input.number(1);
        const std::size_t offset = input.number(2);
        const std::string_view bytes = input.take(input.number(1));
        switch (place % 5) {
            case 0:
                write(whole(&world.head(), sizeof(GroupBlock) + 2 * sizeof(MemberState)), offset, bytes);
                break;
            case 1:
                write(whole(&world.channel(1, 0), sizeof(Channel)), offset, bytes);
                break;
            case 2:
                write({world.slot(1, 0), kSlotBytes}, offset, bytes);
                break;
            case 3:
                write(job.heap(1), offset, bytes);
                break;
            default:
                write(job.memory().subspan(0, 65536), offset, bytes);
                break;
        }
    }
}

// A receive or a gather into `room`, whose surroundings must stay.
template <typename Call>
void into_room(const Call& call) {
    std::array<std::byte, 3 * kRoom> memory;
    memory.fill(std::byte{0x5a});
    try {
        call(Span{memory.data() + kRoom, kRoom});
    } catch (const Error&) {
    }
    for (std::size_t i = 0; i < kRoom; ++i) {
        if (memory[i] != std::byte{0x5a} || memory[2 * kRoom + i] != std::byte{0x5a}) std::abort();
    }
}

// What all_gather does, up to where it would wait for rank 1.
void gather(Group& group, Scratch& scratch, ConstSpan own, Span room) {
    group.block().head().arrived.store(1);  // rank 1 is there already
    Exchange exchange(group, scratch, {.kind = comm::Kind::all_gather});
    exchange.add(own.bytes, own.data);
    exchange.post();
    do {
        const auto [begin, end] = exchange.window(1, 0);
        if (begin < end)
            std::memcpy(room.data + own.bytes + begin, exchange.at(1, 0, begin, end - begin), end - begin);
    } while (exchange.next_round());
}

void be_rank_0(const std::shared_ptr<Job>& job) {
    const auto rank = std::make_shared<Rank>(job, 0);
    rank->timeout_ms = 0;
    Group group(rank, job->world_block(), "world", {0, 1});
    Scratch scratch;
    std::array<std::byte, kRoom / 2> own{};
    into_room([&](Span room) { gather(group, scratch, {own.data(), own.size()}, room); });
    const Channel& channel = group.block().channel(1, 0);
    if (channel.posted.load() != channel.taken.load())  // else it only waits
        into_room([&](Span room) { OnCpu(group).p2p({{comm::P2POp::Kind::recv, 1, room}}); });
    if (job->slot(1).groups_head.load() == 0) return;
    try {
        rank->join("group", {1, 0});  // led by rank 1
    } catch (const Error&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::shared_ptr<Job> valid = Job::create(2, kHeapBytes);
    Input input(data, size);
    const std::string_view header = input.take(input.number(2));
    try {
        const std::shared_ptr<Job> job = Job::open(sealed_copy(*valid, header), 2);
        if (job->heap(1).data + job->heap(1).bytes != job->memory().data + job->memory().bytes) std::abort();
        lay_over(*job, input);
        be_rank_0(job);
    } catch (const Error&) {
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::shared_ptr<Job> job = Job::create(2, kHeapBytes);
    const GroupView world(job->world_block(), 2);
    const auto text = [](const auto& value) {
        return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    const auto piece = [](int place, std::size_t offset, const std::string& bytes) {
        return std::string{static_cast<char>(place), static_cast<char>(offset >> 8),
                           static_cast<char>(offset), static_cast<char>(bytes.size())} +
               bytes;
    };
    const std::uint64_t slot = job->offset_of({world.slot(1, 0), 1});
    const std::uint64_t heap = job->offset_of({job->heap(1).data, 1});
    comm::ipc::PostHeader post{.kind = comm::Kind::all_gather, .items = 1, .bytes = kRoom / 2};
    post.linear_bytes = kRoom / 2;
    post.table = slot + 128;
    post.payload = slot + 192;
    const PostItem direct{.bytes = kRoom / 2, .offset = heap};
    const PostItem in_line{.bytes = kRoom / 2, .offset = kNowhere - 1};
    PostHeader staged = post;
    staged.staged = 1;
    staged.staging = heap;
    const PostItem in_staging{.bytes = kRoom / 2, .offset = kNowhere - 2};
    const std::uint32_t one = 1;
    const std::size_t entries = offsetof(Channel, entries);
    const std::string send =
        piece(1, 0, text(one)) + piece(1, entries, text(ChannelEntry{heap, kRoom, kRoom}));
    std::byte* block = job->heap(1).data;
    GroupBlock::create(block, "group", {1, 0}, 0);
    const std::string list = piece(3, 0, std::string(reinterpret_cast<const char*>(block), 192)) +
                             piece(3, 192, std::string(reinterpret_cast<const char*>(block) + 192, 255)) +
                             piece(4, offsetof(JobControl, ranks) + sizeof(RankSlot) + 8, text(heap));
    const std::string head(reinterpret_cast<const char*>(job->memory().data), 40);
    const std::string none(2, '\0');
    return {none + piece(2, 0, text(post)) + piece(2, 128, text(direct)) + send,
            none + piece(2, 0, text(post)) + piece(2, 128, text(in_line)) + list,
            none + piece(2, 0, text(staged)) + piece(2, 128, text(in_staging)) + send + list,
            std::string{0, static_cast<char>(head.size())} + head + send};
}
