// The order between threads of a block that barriers of some of them make (named barriers, mbarriers, groups of
// wgmma), as vector clocks. Actors are the block's threads and what works beside them: an mbarrier writes what
// bulk copies bring under it, a warpgroup reads what its products read.
//
// What an actor does at an epoch of its own is before what another one does iff that one has seen the epoch.
// Memory that threads have written is for the asynchronous proxy (tensor cores, bulk copies) to read once a
// fence of proxies has come between: `proxy` is what of `seen` it may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace fibers::races {

struct Actor {
    std::uint16_t number = 0;
    std::uint32_t epoch = 0;
};

struct Clock {
    std::vector<std::uint32_t> seen, proxy;  // by actor; beyond their ends 0
    void see(const Actor& actor);
    void join(const Clock& other);
    void meet(const Clock& other);  // what both have seen
};

// When an actor did something, and where in the kernels (0: not at all).
struct Event {
    std::uint32_t epoch = 0, code = 0;
    std::uint16_t actor = 0;
    std::uint8_t bytes = 0;  // of a word, a bit each
};

// Of four bytes of shared memory.
struct History {
    Event write;
    std::vector<Event> reads;  // that nothing orders before others of them
};

// Of a block's shared memory: words' histories by the page, whose memory blocks inherit.
class Histories {
  public:
    History& of(std::uintptr_t word);
    void clear();

  private:
    static constexpr std::size_t kWords = 1024;  // of a page
    using Page = std::vector<History>;
    std::unordered_map<std::uintptr_t, Page> pages_;
    std::uintptr_t last_number_ = 0;
    Page* last_ = nullptr;  // that was asked for
};

class Clocks {
  public:
    void begin(std::size_t threads);  // of a block; off
    void turn_on() { on_ = true; }
    bool on() const { return on_; }

    // Of a thread.
    Event event(std::size_t thread, std::uint32_t code, std::uint8_t bytes) const;
    void release_into(Clock& to, std::size_t thread);
    void acquire(const Clock& from, std::size_t thread);
    void fence_proxies(std::size_t thread);
    void synchronize(std::size_t first, std::size_t count);  // threads
    const Clock& of(std::size_t thread) const { return threads_[thread]; }
    Clock seen_by_all(std::size_t first, std::size_t count) const;
    std::uint16_t new_actor();
    bool beyond_threads(std::size_t actor) const { return actor >= threads_.size(); }
    // Whether the thread has seen what all of those did before this was on.
    bool has_seen_first(std::size_t thread, std::size_t first, std::size_t count) const;

    // What of the memory's history nothing orders before `now`, which sees `clock`; null: all is well. Then it is
    // part of the history. `through_proxy`: an access of the asynchronous proxy.
    struct Conflict {
        Event before;
        const char* did = nullptr;
        const char* why = nullptr;
    };
    Conflict read(std::uintptr_t word, const Event& now, const Clock& clock, bool through_proxy);
    Conflict write(std::uintptr_t word, const Event& now, const Clock& clock);
    void wrote(std::uintptr_t word, const Event& now);  // and nobody else could meanwhile
    bool written(std::uintptr_t word) { return words_.of(word).write.epoch > 0; }

  private:
    bool on_ = false;
    std::vector<Clock> threads_;  // own entry: the last epoch that the thread has ended
    std::size_t actors_ = 0;
    Histories words_;
};

}  // namespace fibers::races
