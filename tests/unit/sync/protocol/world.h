// Trainers and engine ranks that push versions to each other over a network that loses, delays and repeats: as one
// value, whose next values can all be listed. The rules are the product's own (PushProtocol, PushState); what is
// modelled here is what they act on: two bytes of weights, queues, deaths.
//
//   gather  the engine's own memory is written part by part
//   direct  likewise, from the trainer's own shards, which it writes again once its push is over: part by part, and as a
//           fault before that. A part that is another than the load announced is refused, as by its checksum
//   delta   likewise, each part relative to the version that the trainer believes is there
//   alias   the trainer fills the free half of an arena; the engine turns to it at commit
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine_adapter/receiver/push_state.h"
#include "sync/session/push_protocol.h"

namespace tandem::sync::protocol {

enum class Mode : std::uint8_t { gather, direct, delta, alias };

constexpr std::size_t kTrainers = 2;
constexpr std::size_t kEngines = 3;
constexpr std::size_t kParts = 2;
constexpr std::size_t kSessions =
    2;                             // that a trainer makes, one after the other, each with an arena of its own
constexpr std::size_t kQueue = 4;  // what a push that is given up leaves unread, and one more
constexpr std::uint8_t kGarbage = 255;

enum class Op : std::uint8_t { pause, begin, load, adopt, commit, resume, abort };

struct Request {
    std::uint8_t id = 0;
    Op op = Op::pause;
    std::uint8_t version = 0;
    std::uint8_t part = 0;    // load
    std::uint8_t base = 0;    // load in mode delta: the version that it changes; 0: none
    std::uint8_t half = 0;    // adopt
    std::uint8_t resume = 0;  // commit: and serve
};
struct Reply {
    std::uint8_t id = 0;
    std::uint8_t ok = 0;
};

template <typename T>
struct Queue {
    std::array<T, kQueue> items{};
    std::uint8_t size = 0;
    bool full() const { return size == kQueue; }
    void push(const T& item) { items[size++] = item; }
    T pop() {
        const T first = items[0];
        for (std::size_t i = 1; i < size; ++i) items[i - 1] = items[i];
        items[--size] = T{};
        return first;
    }
    void clear() { *this = {}; }
};

struct Link {
    bool trainer_end = false;  // the trainer can send, as far as it knows
    bool engine_end = false;
    Queue<Request> requests;
    Queue<Reply> replies;
};

struct Trainer {
    bool alive = true;
    bool frozen = false;
    bool pushing = false;
    bool awaiting = false;
    std::uint8_t awaited = 0;  // request
    std::uint8_t last_id = 0;
    std::uint8_t version = 0;
    std::uint8_t pushes_left = 0;
    std::uint8_t session = 0;
    std::uint8_t filled = 0;  // alias: parts of the free half that hold the version
    std::uint8_t free_half = 0;
    std::uint8_t told = 0;  // transfer: parts or engines that have been told
    std::array<std::uint8_t, kEngines> base{};
    std::array<std::uint8_t, kEngines> commit{};  // ahead: the request; 0: not sent
    PushProtocol push{0};
};

struct EngineRank {
    bool alive = true;
    std::uint8_t seat = 0;  // 1 + the trainer that is connected; 0: none
    std::array<std::uint8_t, kParts> own{};
    std::uint8_t reads = 0;  // 0: its own memory; else 1 + the number of a half
    std::uint8_t adopted = 0;
    std::uint8_t label = 0;  // of the version that is there whole; 0: none
    bool broken = false;
    std::uint8_t loaded = 0;
    std::uint8_t last_id = 0;
    std::uint8_t newest = 0;
    engine::PushState push;
};

struct Setting {
    Mode mode = Mode::gather;
    std::size_t trainers = 1;
    std::size_t engines = 1;
    std::uint8_t pushes = 2;  // of each trainer
    std::uint8_t faults = 2;
    bool ahead = false;  // commit is sent behind the last load, and an engine of one rank resumes with it
};

class World {
  public:
    // All engine ranks serve version 1; trainer 0 is connected to them.
    explicit World(const Setting& setting);

    // The worlds that one event leads to, with the event's name.
    void successors(std::vector<std::pair<std::string, World>>& out) const;
    // The first promise that does not hold here, or nothing (promises.cpp).
    std::string broken_promise() const;
    std::string bytes() const;  // equal for equal worlds only
    std::string to_string() const;

  private:
    bool running(std::size_t t) const { return trainers_[t].alive && !trainers_[t].frozen; }
    bool connected(std::size_t t) const;
    bool generates(const EngineRank& rank) const;
    std::uint8_t read(const EngineRank& rank, std::size_t part) const;
    std::uint8_t half_of(std::size_t t) const;  // the number of its free half

    // Events; false: it cannot happen now.
    bool connect(std::size_t t, std::size_t e);
    bool disconnect(std::size_t t);
    bool advance(std::size_t t);
    bool receive(std::size_t t);
    bool give_up(std::size_t t);
    bool kill(std::size_t t);
    bool train(std::size_t t, std::size_t part);
    bool serve(std::size_t e, bool keep);
    bool notice(std::size_t e);
    bool lapse(std::size_t e);
    bool crash(std::size_t e);
    bool cut(std::size_t t, std::size_t e);

    void start_push(std::size_t t);
    bool transfer(std::size_t t);
    void send(std::size_t t, std::size_t e, Request request);
    std::uint8_t post(std::size_t t, std::size_t e, Request request);
    bool sent_ahead(std::size_t t, const PushProtocol::Next& next);
    void answered(std::size_t t, bool ok);
    bool carry_out(EngineRank& rank, const Request& request);
    void end_push(EngineRank& rank);
    void free_seat(std::size_t e);
    std::string settle_without_trainers() const;
    std::string settle_with(std::size_t t) const;

    Setting setting_;
    std::uint8_t newest_ = 1;  // version that a trainer has taken
    std::uint8_t faults_ = 0;
    std::array<Trainer, kTrainers> trainers_;
    std::array<EngineRank, kEngines> ranks_;
    std::array<std::array<Link, kEngines>, kTrainers> links_;
    std::array<std::array<std::uint8_t, kParts>, kTrainers * kSessions * 2> halves_{};
    std::array<std::array<std::uint8_t, kParts>, kTrainers> shards_{};  // direct
};

}  // namespace tandem::sync::protocol
