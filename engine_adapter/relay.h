// Buckets that trainer ranks hand to an engine on their host without a message for each. Words of shared memory count them:
// each rank says how many it has written, each engine how many of each rank's it has taken, so that a rank and the engine's
// thread on its core (TransferPlan::cores) go on by themselves, and a bucket may be as small as that core's cache.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "common/error.h"
#include "engine_adapter/region.h"

namespace tandem::engine {

// Written and read by several processes; each word has one writer, but the two that stop. Counts only grow, from one push to
// the next. Every process takes what it reads for what a peer may have written by mistake.
class RelayWords {
  public:
    static std::size_t bytes(std::size_t ranks, std::size_t engines) {
        return kLine * (2 + ranks * (1 + engines));
    }
    // Memory of zeros at first, which outlives this. Throws InvalidArgument: too little.
    RelayWords(Span memory, std::size_t ranks, std::size_t engines)
        : memory_(memory.data), ranks_(ranks), engines_(engines) {
        require(memory.bytes >= bytes(ranks, engines), "the words of {} ranks and {} engines in {} bytes",
                ranks, engines, memory.bytes);
    }

    std::size_t ranks() const { return ranks_; }
    std::size_t engines() const { return engines_; }

    std::uint64_t written(std::size_t rank) const { return word(2 + rank).load(std::memory_order_acquire); }
    void write(std::size_t rank, std::uint64_t count) const {
        word(2 + rank).store(count, std::memory_order_release);
    }
    std::uint64_t taken(std::size_t engine, std::size_t rank) const {
        return word(2 + ranks_ * (1 + engine) + rank).load(std::memory_order_acquire);
    }
    void take(std::size_t engine, std::size_t rank, std::uint64_t count) const {
        word(2 + ranks_ * (1 + engine) + rank).store(count, std::memory_order_release);
    }
    static constexpr std::size_t kTrainer = ~std::size_t{0};
    // Everybody is to leave the relay that began at this count: an engine has failed, or the trainer.
    void stop(std::uint64_t from, std::size_t by = kTrainer) const {
        if (stopped(from)) return;
        word(1).store(by, std::memory_order_relaxed);
        std::uint64_t now = word(0).load();
        while (now <= from && !word(0).compare_exchange_weak(now, from + 1)) {
        }
    }
    bool stopped(std::uint64_t from) const { return word(0).load(std::memory_order_acquire) > from; }
    // Who did; of several at once, any. Means nothing of a relay that nobody has stopped.
    std::size_t stopped_by() const {
        return static_cast<std::size_t>(word(1).load(std::memory_order_relaxed));
    }

  private:
    static constexpr std::size_t kLine = 64;
    using Word = std::atomic<std::uint64_t>;
    static_assert(Word::is_always_lock_free && sizeof(Word) == 8);
    Word& word(std::size_t i) const { return *reinterpret_cast<Word*>(memory_ + kLine * i); }

    std::byte* memory_;
    std::size_t ranks_, engines_;
};

// A look after the other at a word of somebody who may want this core: it is given away at each, and after a millisecond, which
// is one look where much else runs, the looker sleeps in between.
class RelayLooks {
  public:
    void found() { looks_ = 0; }
    void again() {
        constexpr auto kSleep = std::chrono::microseconds(50);
        if (looks_++ == 0) began_ = Clock::now();
        if (slow()) return std::this_thread::sleep_for(kSleep);
        std::this_thread::yield();
    }
    bool slow() const { return looks_ > 0 && Clock::now() - began_ > kYields; }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kYields{1};
    int looks_ = 0;
    Clock::time_point began_{};
};

// What an engine is told of a relay.
struct Relay {
    Region words;  // of RelayWords
    std::uint64_t ranks = 0;
    std::uint64_t engines = 0;
    std::uint64_t engine = 0;  // which of them it is
    std::uint64_t from = 0;    // what all words that count stand at, or below, when it begins
};

// A relay of no version, for calibration: `buckets` of bucket_bytes pass through `slots` at the start of region 0. Each rank has
// an equal part, whole lines, of which each engine takes an equal part, in pieces.
struct RelayProbe {
    std::uint64_t buckets = 0;
    std::uint64_t bucket_bytes = 0;
    std::uint64_t piece_bytes = 0;
    std::uint64_t slots = 1;
};

}  // namespace tandem::engine
