// The trainer's end of the data connections to one engine rank: a thread for each takes the next part of the oldest
// bucket that is not all sent, so that a connection that is slow just now holds none of the others up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/file_descriptor.h"
#include "common/thread.h"
#include "engine_adapter/transport/tcp/packed.h"

namespace tandem::engine {

class TcpSender {
  public:
    explicit TcpSender(std::vector<FileDescriptor> sockets);  // blocking
    // Ends the connections at once, whatever is on its way: the memory of all buckets is the caller's again.
    ~TcpSender();
    TcpSender(const TcpSender&) = delete;
    TcpSender& operator=(const TcpSender&) = delete;

    // Returns at once. Serials count from 0. The bucket's memory is read until wait_sent() has returned true.
    void post(std::uint64_t serial, PackedBucket bucket);
    // Whether the system has taken all of the bucket within the deadline, and no thread reads its memory any more. Where
    // the engine has answered for it that is a matter of a thread's return. False at once when a connection has ended.
    bool wait_sent(std::uint64_t serial, Deadline deadline);
    // Why a connection ended; empty: none has.
    std::string failure() const;

  private:
    struct Job {
        std::uint64_t serial = 0;
        PackedBucket bucket;
        std::uint64_t taken = 0;    // bytes that threads have begun to send
        std::uint64_t working = 0;  // threads that do
    };
    void run(int socket);
    void stop() noexcept;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::condition_variable sent_;  // a job has ended, or a connection
    std::list<Job> jobs_;           // stays where it is while a thread works on it
    bool stopping_ = false;
    std::string failure_;
    const std::vector<FileDescriptor> sockets_;
    std::vector<Thread> threads_;
};

}  // namespace tandem::engine
