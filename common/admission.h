// The places that a server has for connections, and who makes room for whom.
//
//   standing   it …                                                 makes room, the oldest first, for
//   guest      has shown nothing yet                                any newcomer: of the address that has most guests
//   served     is answered without a key, where none is asked for   known ones; while it rests, served ones too
//   known      has shown a key, or proven itself some other way     other known ones, while it rests
// So a guest pushes out guests alone. An eighth of the places is for guests only: a newcomer always finds one to show its
// key from. An address that somebody was known at counts an eighth of its guests. Holds no socket and takes no lock: one
// thread, the server's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>

namespace tandem {

// Whom a socket's peer is counted with: an IPv4 address, the /64 of an IPv6 one, else all alike.
using PeerGroup = std::array<std::uint8_t, 8>;
PeerGroup peer_group(int socket);

class Admission {
  public:
    explicit Admission(std::size_t places);
    ~Admission();
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

    // From who is pushed out first to who is never.
    enum class Standing : unsigned char { guest, resting, served, resting_known, known };

    class Place {
      public:
        // A guest's. `leave` ends its connection; it is called once at most, when the place has been taken from it.
        Place(Admission& all, const PeerGroup& from, std::function<void()> leave);
        ~Place();
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;

        // Both end a rest. False: there are too many who do not make room, and it stays what it was.
        bool serve();  // a known one stays known
        bool prove();
        // Between two requests.
        void rest();
        // The place is given back before its owner goes.
        void give_up();

      private:
        friend class Admission;
        bool rise(Standing to);

        Admission& all_;
        const PeerGroup from_;
        std::function<void()> leave_;
        std::optional<Standing> standing_ = Standing::guest;  // nothing: given back
        std::list<Place*>::iterator at_{};                    // of its standing's
        std::uint64_t arrived_ = 0;
    };

    std::size_t places() const { return places_; }

  private:
    static constexpr std::size_t kStandings = 5;
    std::list<Place*>& of(Standing standing) { return above_guests_[static_cast<std::size_t>(standing)]; }
    std::size_t above_guests() const;
    void make_room();
    void remember(const PeerGroup& from);
    static void evict(Place& place);

    const std::size_t places_;
    std::map<PeerGroup, std::list<Place*>> guests_;           // the oldest first; no list is empty
    std::array<std::list<Place*>, kStandings> above_guests_;  // who came to it first; none at `guest`
    std::size_t count_ = 0;
    std::set<PeerGroup> proven_;
    std::uint64_t arrivals_ = 0;
};

// How many of `wanted` connections the process' limit of descriptors has room for, when they may take `share` of it.
std::size_t within_descriptors(std::size_t wanted, double share);

}  // namespace tandem
