#include "common/comm/ipc/exchange.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "common/align.h"
#include "common/comm/ipc/rank.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::size_t kHeaderBytes = 128;
static_assert(sizeof(PostHeader) <= kHeaderBytes);

}  // namespace

// --- posting: what this rank sends, laid out where its peers find it

Exchange::Exchange(Group& group, Scratch& scratch, PostHeader header)
    : group_(group),
      scratch_(scratch),
      header_(header),
      deadline_(group.deadline()),
      operation_(group.next_operation()) {
    group.job().throw_if_aborted(group.phase(kind_name(header.kind)));
}

void Exchange::add(std::uint64_t bytes, const std::byte* send, std::uint64_t extra) {
    items_.push_back({.bytes = bytes, .offset = kNowhere, .linear = linear_, .extra = extra});
    sends_.push_back(send);
    linear_ += round_up(bytes, 64);
}

void Exchange::place(bool in_slot) {
    Job& job = group_.job();
    std::byte* payload = in_slot ? job.at(header_.payload, linear_) : nullptr;
    for (std::size_t i = 0; i < items_.size(); ++i) {
        PostItem& item = items_[i];
        if (item.bytes == 0 || sends_[i] == nullptr) continue;
        if (in_slot) {
            item.offset = kInSlot;
            std::memcpy(payload + item.linear, sends_[i], item.bytes);
            continue;
        }
        header_.must_wait = 1;
        item.offset = job.offset_of({sends_[i], item.bytes});
        if (item.offset != kNowhere) continue;
        item.offset = kInStaging;
        header_.staged = 1;
    }
    if (header_.staged == 0) return;
    if (scratch_.staging.bytes() == 0)
        scratch_.staging = Buffer(2 * kWindow, "comm_staging", *group_.rank().pool);
    header_.staging = job.offset_of(ConstSpan(scratch_.staging.span()));
    stage();
}

void Exchange::publish() {
    Job& job = group_.job();
    std::byte* slot = group_.block().slot(group_.index(), operation_);
    header_.items = static_cast<std::uint32_t>(items_.size());
    header_.linear_bytes = linear_;
    for (const PostItem& item : items_) header_.bytes += item.bytes;
    const std::size_t table_bytes = round_up(items_.size() * sizeof(PostItem), 64);
    const bool table_fits = kHeaderBytes + table_bytes <= kSlotBytes;
    std::byte* table = slot + kHeaderBytes;
    if (!table_fits) {
        Buffer& buffer = scratch_.tables[operation_ % 2];
        if (buffer.bytes() < table_bytes) {
            buffer = Buffer();
            buffer = Buffer(2 * table_bytes, "comm_staging", *group_.rank().pool);
        }
        table = buffer.data();
    }
    header_.table = job.offset_of({table, table_bytes});
    header_.payload = job.offset_of({slot, 1}) + kHeaderBytes + table_bytes;
    place(linear_ <= kInlineBytes && kHeaderBytes + table_bytes + linear_ <= kSlotBytes);
    if (!items_.empty()) std::memcpy(table, items_.data(), items_.size() * sizeof(PostItem));
    new (slot) PostHeader(header_);
}

void Exchange::stage() {
    if (header_.staged == 0) return;
    const std::uint64_t window_begin = round_ * kWindow;
    std::byte* staging = scratch_.staging.data() + (round_ % 2) * kWindow;
    for (std::size_t i = 0; i < items_.size(); ++i) {
        const PostItem& item = items_[i];
        if (item.offset != kInStaging) continue;
        const std::uint64_t begin = std::max(window_begin, item.linear);
        const std::uint64_t end = std::min(window_begin + kWindow, item.linear + item.bytes);
        if (begin >= end) continue;
        std::memcpy(staging + (begin - window_begin), sends_[i] + (begin - item.linear), end - begin);
    }
}

// --- meeting: every member's post is copied, and compared with the others'

void Exchange::post() {
    if (group_.size() == 1) return;
    publish();
    meet(kind_name(header_.kind));
    copy_posts();
    check_calls();
    copy_items();
    check_sizes();
    bool staged = false;
    std::uint64_t longest = 0;
    for (const PostHeader& post : scratch_.posts) {
        staged = staged || post.staged != 0;
        longest = std::max(longest, post.linear_bytes);
    }
    if (staged) rounds_ = std::max<std::uint64_t>(1, longest / kWindow + (longest % kWindow != 0 ? 1 : 0));
}

void Exchange::copy_posts() {
    scratch_.posts.clear();
    for (int m = 0; m < group_.size(); ++m) {
        const std::byte* slot = group_.block().slot(m, operation_);
        scratch_.posts.push_back(
            m == group_.index() ? header_
                                : private_copy(*std::launder(reinterpret_cast<const PostHeader*>(slot))));
    }
}

// All posts have as many items as this rank's own.
void Exchange::copy_items() {
    const std::size_t bytes = items_.size() * sizeof(PostItem);
    scratch_.items.resize(scratch_.posts.size() * items_.size());
    for (std::size_t m = 0; m < scratch_.posts.size() && bytes > 0; ++m) {
        PostItem* own = scratch_.items.data() + m * items_.size();
        std::memcpy(own, group_.job().at(scratch_.posts[m].table, bytes), bytes);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);  // as private_copy
}

// --- rounds: what is staged comes a window at a time

bool Exchange::next_round() {
    if (round_ + 1 >= rounds_) return false;
    ++round_;
    stage();
    meet(kind_name(header_.kind));
    return true;
}

void Exchange::finish(bool force) {
    if (group_.size() == 1) return;
    for (const PostHeader& post : scratch_.posts) force = force || post.must_wait != 0;
    if (force) meet(kind_name(header_.kind));
}

// --- where a member's bytes lie now

const PostItem& Exchange::item(int member, std::size_t index) const {
    if (member == group_.index()) return items_[index];
    return scratch_.items[static_cast<std::size_t>(member) * items_.size() + index];
}

std::pair<std::uint64_t, std::uint64_t> Exchange::window(int member, std::size_t index) const {
    const PostItem& it = item(member, index);
    if (rounds_ == 1) return {0, it.bytes};
    const std::uint64_t low = std::max(round_ * kWindow, it.linear);
    const std::uint64_t high = std::min((round_ + 1) * kWindow, it.linear + it.bytes);
    if (low >= high) return {0, 0};
    return {low - it.linear, high - it.linear};
}

const std::byte* Exchange::at(int member, std::size_t index, std::uint64_t position,
                              std::uint64_t bytes) const {
    if (member == group_.index()) return sends_[index] + position;
    const PostItem& it = item(member, index);
    const PostHeader& post = scratch_.posts[static_cast<std::size_t>(member)];
    std::uint64_t offset = it.offset + position;
    if (it.offset == kInSlot) offset = post.payload + it.linear + position;
    if (it.offset == kInStaging)
        offset = post.staging + (round_ % 2) * kWindow + it.linear + position - round_ * kWindow;
    return group_.job().at(offset, bytes);
}

std::byte* Exchange::shown(std::size_t index, std::uint64_t position) const {
    const PostItem& it = items_[index];
    if (it.offset != kInStaging) return const_cast<std::byte*>(sends_[index]) + position;
    return scratch_.staging.data() + (round_ % 2) * kWindow + it.linear + position - round_ * kWindow;
}

// --- checks that all members make the same call

std::string Exchange::describe(int member) const {
    const PostHeader& post = scratch_.posts[static_cast<std::size_t>(member)];
    return comm::describe({post.kind, post.op, post.dtype, post.root, post.items}, post.bytes);
}

void Exchange::fail_check(int one, int other, const std::string& detail) const {
    throw InvalidArgument(fmt::format("calls on '{}' do not agree: {} calls {}; {} calls {}{}", group_.name(),
                                      group_.rank_name(one), describe(one), group_.rank_name(other),
                                      describe(other), detail));
}

void Exchange::check_calls() const {
    const PostHeader& first = scratch_.posts[0];
    for (int m = 1; m < group_.size(); ++m) {
        const PostHeader& post = scratch_.posts[static_cast<std::size_t>(m)];
        if (post.kind != first.kind || post.op != first.op || post.dtype != first.dtype ||
            post.root != first.root || post.items != first.items) {
            fail_check(0, m, "");
        }
        if (post.on_gpu != first.on_gpu) fail_check(0, m, "; one for memory of a GPU, one of the CPU");
    }
}

void Exchange::check_sizes() const {
    if (header_.kind == Kind::all_to_all) return check_all_to_all();
    for (int m = 1; m < group_.size(); ++m) {
        for (std::size_t i = 0; i < items_.size(); ++i) {
            const std::uint64_t here = item(0, i).bytes;
            const std::uint64_t there = item(m, i).bytes;
            if (here != there)
                fail_check(0, m, fmt::format("; item {} has {} bytes, then {}", i, here, there));
        }
    }
}

void Exchange::check_all_to_all() const {
    for (int from = 0; from < group_.size(); ++from) {
        for (int to = 0; to < group_.size(); ++to) {
            const std::uint64_t sent = item(from, static_cast<std::size_t>(to)).bytes;
            const std::uint64_t expected = item(to, static_cast<std::size_t>(from)).extra;
            if (sent == expected) continue;
            throw InvalidArgument(fmt::format(
                "calls on '{}' do not agree: all_to_all: {} sends {} bytes to {}, which expects {}",
                group_.name(), group_.rank_name(from), sent, group_.rank_name(to), expected));
        }
    }
}

}  // namespace tandem::comm::ipc
