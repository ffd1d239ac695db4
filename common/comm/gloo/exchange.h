// The beginning of every collective: each rank posts a description of its call to each other rank, with the
// sizes, and with the data where there is little. When all posts are here, all ranks are. They are checked
// before any data moves, since Gloo does not survive sizes that differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/gloo/group.h"
#include "common/device/memory.h"

namespace tandem::comm::gloo {

class Exchange {
  public:
    static constexpr std::size_t kPostBytes = 1024;

    // `table`: the numbers that all ranks must agree on (all_to_all: bytes to each, then bytes from each),
    // the size of item i in bytes first. `data` travels with the post where it fits. Throws InvalidArgument
    // on every rank alike when the calls do not agree.
    Exchange(const Group& group, Call call, std::vector<std::uint64_t> table, ConstSpan data = {});

    Deadline deadline() const { return deadline_; }
    // The data of the members came with the posts.
    bool in_line() const { return in_line_; }
    const std::byte* data(int member) const;  // in line
    std::uint64_t table(int member, std::size_t index) const;

  private:
    struct Header;
    const Header& header(int member) const;
    void exchange_posts(const Header& own, ConstSpan data);
    void exchange_tables();
    void check() const;
    void check_all_to_all() const;
    std::string describe(int member) const;
    [[noreturn]] void fail_check(int one, int other, const std::string& detail) const;

    const Group& group_;
    Call call_;
    std::vector<std::uint64_t> own_table_;
    Deadline deadline_;
    Buffer posts_;                                    // [members, kPostBytes]
    std::vector<std::vector<std::uint64_t>> tables_;  // [members], when they do not fit into the posts
    bool in_line_ = false;
};

}  // namespace tandem::comm::gloo
