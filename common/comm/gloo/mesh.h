// The connections from this rank to every other rank of the job, made through a Store, and what all its
// groups share: time-out, abort, and the news that a peer has left. An abort is a message to every peer, so
// every rank throws with the words of the first.
#pragma once

#include <gloo/transport/device.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/gloo/address.h"
#include "common/comm/gloo/waits.h"
#include "common/store/store.h"
#include "common/thread.h"

namespace tandem::comm::gloo {

class Mesh {
  public:
    // Collective over all ranks of the store. A peer that does not come by the deadline is named.
    Mesh(Store& store, int rank, int size, const ListenAddress& address, Deadline deadline);
    // Says goodbye and waits a little for the others': until then they may still need what was sent.
    ~Mesh();
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    static std::string rank_name(int rank) { return "rank " + std::to_string(rank); }
    Deadline deadline() const { return Deadline::after_ms(timeout_ms.load(std::memory_order_relaxed)); }

    // Begin a transfer. Messages of one slot between two ranks keep their order. Throw TransportError.
    Transfer send(ConstSpan memory, int peer, std::uint64_t slot, std::string_view phase);
    Transfer recv(Span memory, int peer, std::uint64_t slot, std::string_view phase);
    // Waits for all of them. Past the deadline: aborts, throws DeadlineExceeded naming every late peer,
    // except those that wait for others themselves. A peer that does not answer this question costs up to a
    // second more.
    void wait(std::span<Transfer> transfers, std::string_view phase, Deadline deadline);
    // Waits for the first of them only; past the deadline the others are looked at too.
    void wait_first(std::span<Transfer> transfers, std::string_view phase, Deadline deadline);
    // Waits for something that cannot come: until the abort, or the deadline, which names this rank.
    [[noreturn]] void wait_for_abort(std::string_view phase, Deadline deadline);

    // The number of times that this rank has split off this very group before.
    std::uint32_t count_split(const std::string& name, const std::vector<int>& ranks);

    void abort(const std::string& reason) noexcept { abort_as(rank_name(rank_), reason); }
    std::optional<AbortNote> aborted() const;
    void throw_if_aborted(std::string_view phase) const;

    std::atomic<std::int64_t> timeout_ms{60'000};

  private:
    struct Message;  // what ranks tell each other beside the collectives

    void connect(Store& store, Deadline deadline);
    void listen_to_peers();
    void note(const Message& message, int from);
    void tell_all(const Message& message) noexcept;
    bool tell(int peer, const Message& message) noexcept;  // the mutex is held
    void abort_as(const std::string& who, const std::string& reason) noexcept;
    bool is_late(Transfer& transfer, std::string_view phase, Deadline deadline);
    [[noreturn]] void fail_late(std::vector<int> late, std::string_view phase);
    std::vector<int> without_held_up(const std::vector<int>& late, std::string_view phase);
    [[noreturn]] void fail_closed(int peer, std::string_view phase);

    const int rank_;
    const int size_;
    std::shared_ptr<::gloo::transport::Device> device_;
    std::shared_ptr<Context> context_;
    Waits waits_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool aborted_ = false;
    std::string abort_who_;
    std::string abort_reason_;
    std::map<std::pair<std::string, std::vector<int>>, std::uint32_t> splits_;
    std::vector<bool> left_;                      // peers that said goodbye
    std::atomic<int> waiting_{0};                 // threads of this rank inside wait()
    std::vector<std::optional<bool>> held_up_;    // what each peer that was asked answered
    std::vector<std::unique_ptr<Message>> sent_;  // kept until their transfers are done
    std::vector<Transfer> telling_;
    Waits listener_waits_;
    Thread listener_;
};

}  // namespace tandem::comm::gloo
