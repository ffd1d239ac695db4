#include "common/comm/gloo/exchange.h"

#include <cstring>
#include <new>
#include <numeric>

#include "common/error.h"

namespace tandem::comm::gloo {

struct Exchange::Header {
    Call call;
    std::uint32_t entries = 0;  // of the table
    std::uint64_t bytes = 0;    // of all items, for messages
};

namespace {

constexpr std::size_t kHeaderBytes = 64;

std::size_t at(int member) {
    return static_cast<std::size_t>(member);
}

}  // namespace

Exchange::Exchange(const Group& group, Call call, std::vector<std::uint64_t> table, ConstSpan data)
    : group_(group),
      call_(call),
      own_table_(std::move(table)),
      deadline_(group.mesh().deadline()),
      posts_(at(group.size()) * kPostBytes, "comm_posts") {
    static_assert(sizeof(Header) <= kHeaderBytes && alignof(Header) <= 64);
    group_.mesh().throw_if_aborted(group_.phase(kind_name(call_.kind)));
    const std::size_t sizes = call.kind == Kind::all_to_all ? at(group.size()) : own_table_.size();
    Header own{call_, static_cast<std::uint32_t>(own_table_.size()),
               std::accumulate(own_table_.begin(), own_table_.begin() + static_cast<std::ptrdiff_t>(sizes),
                               std::uint64_t{0})};
    in_line_ = data.bytes > 0 && kHeaderBytes + own_table_.size() * 8 + data.bytes <= kPostBytes;
    exchange_posts(own, data);
    for (int m = 1; m < group_.size(); ++m) {
        if (header(m).call != header(0).call) fail_check(0, m, "");
    }
    exchange_tables();
    if (call_.kind == Kind::all_to_all) {
        check_all_to_all();
    } else {
        check();
    }
}

void Exchange::exchange_posts(const Header& own, ConstSpan data) {
    std::byte* post = posts_.data() + at(group_.index()) * kPostBytes;
    new (post) Header(own);
    const std::size_t table_bytes = own_table_.size() * 8;
    if (kHeaderBytes + table_bytes <= kPostBytes && table_bytes > 0)
        std::memcpy(post + kHeaderBytes, own_table_.data(), table_bytes);
    if (in_line_) std::memcpy(post + kHeaderBytes + table_bytes, data.data, data.bytes);
    Batch batch(group_, kind_name(call_.kind), Lane::post, deadline_);
    for (int m = 0; m < group_.size(); ++m) {
        if (m == group_.index()) continue;
        batch.recv({posts_.data() + at(m) * kPostBytes, kPostBytes}, m);
        batch.send({post, kPostBytes}, m);
    }
    batch.wait();
}

// Tables that do not fit into a post follow it. How long they are is known from the posts.
void Exchange::exchange_tables() {
    const auto fits = [&](int m) { return kHeaderBytes + header(m).entries * std::size_t{8} <= kPostBytes; };
    tables_.resize(at(group_.size()));
    Batch batch(group_, kind_name(call_.kind), Lane::post, deadline_);
    for (int m = 0; m < group_.size(); ++m) {
        auto& table = tables_[at(m)];
        table.resize(header(m).entries);
        if (m == group_.index()) {
            table = own_table_;
        } else if (fits(m)) {
            if (!table.empty())
                std::memcpy(table.data(), posts_.data() + at(m) * kPostBytes + kHeaderBytes,
                            table.size() * 8);
        } else {
            batch.recv({reinterpret_cast<std::byte*>(table.data()), table.size() * 8}, m);
        }
        if (m != group_.index() && !fits(group_.index()))
            batch.send({reinterpret_cast<const std::byte*>(own_table_.data()), own_table_.size() * 8}, m);
    }
    batch.wait();
}

const Exchange::Header& Exchange::header(int member) const {
    return *std::launder(reinterpret_cast<const Header*>(posts_.data() + at(member) * kPostBytes));
}

const std::byte* Exchange::data(int member) const {
    return posts_.data() + at(member) * kPostBytes + kHeaderBytes + own_table_.size() * 8;
}

std::uint64_t Exchange::table(int member, std::size_t index) const {
    return tables_[at(member)][index];
}

std::string Exchange::describe(int member) const {
    return comm::describe(header(member).call, header(member).bytes);
}

void Exchange::fail_check(int one, int other, const std::string& detail) const {
    throw InvalidArgument(fmt::format("calls on '{}' do not agree: {} calls {}; {} calls {}{}", group_.name(),
                                      group_.rank_name(one), describe(one), group_.rank_name(other),
                                      describe(other), detail));
}

void Exchange::check() const {
    for (int m = 1; m < group_.size(); ++m) {
        if (tables_[at(m)].size() != tables_[0].size()) fail_check(0, m, "");
        for (std::size_t i = 0; i < tables_[0].size(); ++i) {
            if (table(0, i) == table(m, i)) continue;
            if (i >= call_.items)
                fail_check(0, m, fmt::format("; item {} differs in its dtype", i - call_.items));
            fail_check(0, m, fmt::format("; item {} has {} bytes, then {}", i, table(0, i), table(m, i)));
        }
    }
}

void Exchange::check_all_to_all() const {
    for (int from = 0; from < group_.size(); ++from) {
        for (int to = 0; to < group_.size(); ++to) {
            const std::uint64_t sent = table(from, at(to));
            const std::uint64_t expected = table(to, at(group_.size() + from));
            if (sent == expected) continue;
            throw InvalidArgument(fmt::format(
                "calls on '{}' do not agree: all_to_all: {} sends {} bytes to {}, which expects {}",
                group_.name(), group_.rank_name(from), sent, group_.rank_name(to), expected));
        }
    }
}

}  // namespace tandem::comm::gloo
