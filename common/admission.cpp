#include "common/admission.h"

#include <netinet/in.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "common/error.h"
#include "common/socket_address.h"

namespace tandem {
namespace {

constexpr std::size_t kGuestsShare = 8;  // one place of so many is a guest's
constexpr std::size_t kMostProven = 4096;

}  // namespace

PeerGroup peer_group(int socket) {
    PeerGroup group{};
    const auto take = [&group](const void* bytes, std::size_t count) {
        std::memcpy(group.data(), bytes, count);
    };
    try {
        const SocketAddress peer = SocketAddress::of_other_end(socket);
        if (peer.family() == AF_INET) {
            take(&reinterpret_cast<const sockaddr_in*>(peer.get())->sin_addr, 4);
        } else if (peer.family() == AF_INET6) {
            const in6_addr& in = reinterpret_cast<const sockaddr_in6*>(peer.get())->sin6_addr;
            IN6_IS_ADDR_V4MAPPED(&in) ? take(in.s6_addr + 12, 4) : take(in.s6_addr, 8);
        }
    } catch (const SystemError&) {  // it has gone
    }
    return group;
}

std::size_t within_descriptors(std::size_t wanted, double share) {
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY) return wanted;
    const auto most = static_cast<std::size_t>(static_cast<double>(descriptors.rlim_cur) * share);
    return std::min(wanted, std::max<std::size_t>(most, 8));
}

Admission::Admission(std::size_t places) : places_(std::max<std::size_t>(places, 2)) {}

Admission::~Admission() = default;

std::size_t Admission::above_guests() const {
    std::size_t count = 0;
    for (const auto& standing : above_guests_) count += standing.size();
    return count;
}

void Admission::make_room() {
    if (count_ < places_) return;
    // There is a guest: the others leave an eighth of the places.
    const auto weight = [this](const auto& group) {
        const auto& [from, guests] = group;
        const std::size_t counts = proven_.count(from) != 0 ? guests.size() : guests.size() * kGuestsShare;
        return std::tuple(counts, ~guests.front()->arrived_);
    };
    const auto heaviest = std::max_element(
        guests_.begin(), guests_.end(), [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
    evict(*heaviest->second.front());
}

void Admission::evict(Place& place) {
    const auto leave = std::move(place.leave_);  // `place` may end with its connection
    place.give_up();
    leave();
}

void Admission::remember(const PeerGroup& from) {
    if (proven_.size() >= kMostProven) proven_.clear();
    proven_.insert(from);
}

Admission::Place::Place(Admission& all, const PeerGroup& from, std::function<void()> leave)
    : all_(all), from_(from), leave_(std::move(leave)) {
    all_.make_room();
    auto& guests = all_.guests_[from_];
    at_ = guests.insert(guests.end(), this);
    arrived_ = all_.arrivals_++;
    ++all_.count_;
}

Admission::Place::~Place() {
    give_up();
}

bool Admission::Place::serve() {
    return rise(standing_ >= Standing::resting_known ? Standing::known : Standing::served);
}

bool Admission::Place::prove() {
    return rise(Standing::known);
}

bool Admission::Place::rise(Standing to) {
    if (!standing_) return false;
    if (standing_ == Standing::guest) {
        const std::size_t most = all_.places_ - std::max<std::size_t>(all_.places_ / kGuestsShare, 1);
        if (all_.above_guests() >= most) {
            auto lowest = Standing::resting;
            while (lowest < to && all_.of(lowest).empty())
                lowest = static_cast<Standing>(static_cast<unsigned>(lowest) + 1);
            if (lowest >= to) return false;
            evict(*all_.of(lowest).front());
        }
    }
    give_up();
    if (to == Standing::known) all_.remember(from_);
    at_ = all_.of(to).insert(all_.of(to).end(), this);
    ++all_.count_;
    standing_ = to;
    return true;
}

void Admission::Place::rest() {
    if (standing_ != Standing::served && standing_ != Standing::known) return;
    const auto to = standing_ == Standing::known ? Standing::resting_known : Standing::resting;
    all_.of(to).splice(all_.of(to).end(), all_.of(*standing_), at_);
    standing_ = to;
}

void Admission::Place::give_up() {
    if (!standing_) return;
    if (standing_ == Standing::guest) {
        const auto group = all_.guests_.find(from_);
        group->second.erase(at_);
        if (group->second.empty()) all_.guests_.erase(group);
    } else {
        all_.of(*standing_).erase(at_);
    }
    --all_.count_;
    standing_.reset();
}

}  // namespace tandem
