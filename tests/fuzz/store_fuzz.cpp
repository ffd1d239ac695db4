// The TCP store's server without its sockets: three clients that send what they like in any pieces. It must keep to its
// limit, answer in whole answers, and change nothing for a client that has not proven that it knows the secret.
//   first byte, odd: the server has a secret       then, again and again:
//   u8 client, mod 3; bit 7: it proves itself, bit 6: it hangs up     u16 length, bytes
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/error.h"
#include "common/store/store_session.h"
#include "tests/fuzz/target.h"

namespace {

using namespace tandem;

constexpr std::size_t kMaxBytes = std::size_t{256} << 10;
constexpr Nonce kNonce{};

const JobSecret& secret() {
    static const JobSecret instance("0123456789abcdef");
    return instance;
}

std::string proof() {
    const Proof mac = secret().prove("client", kNonce, kNonce);
    return std::string(kNonce.begin(), kNonce.end()) + std::string(mac.begin(), mac.end());
}

void check_answer(std::string_view answer, bool verdict) {
    if (verdict) {
        if (answer.size() != wire::kVerdict) std::abort();
        return;
    }
    const auto* header = reinterpret_cast<const unsigned char*>(answer.data());
    if (answer.size() < wire::kAnswerHeader || header[0] > 2) std::abort();
    if (answer.size() != wire::kAnswerHeader + wire::get_u32(header + 1)) std::abort();
}

// False: the connection ends.
bool hear(StoreSession& session, std::string_view bytes, bool& anybody) {
    try {
        session.feed(bytes);
        for (bool verdict = !session.accepted();; verdict = false) {
            const auto answer = session.next();
            if (!answer) return true;
            check_answer(*answer, verdict);
            anybody = anybody || session.accepted();
            if (session.ending()) return false;
        }
    } catch (const ProtocolError&) {
        return false;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const bool closed = data[0] % 2 == 1;
    std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    StoreValues values(kMaxBytes);
    bool anybody = !closed;  // may have changed something
    {
        std::array<std::optional<StoreSession>, 3> clients;
        while (rest.size() >= 3) {
            const auto who = static_cast<unsigned char>(rest[0]);
            const std::size_t length = static_cast<std::size_t>(static_cast<unsigned char>(rest[1])) << 8 |
                                       static_cast<unsigned char>(rest[2]);
            rest.remove_prefix(3);
            auto& client = clients[(who & 63) % clients.size()];
            if (!client) client.emplace(values, closed ? &secret() : nullptr, kNonce);
            const std::string_view bytes = rest.substr(0, length);
            rest.remove_prefix(bytes.size());
            const bool goes_on = (who & 128) == 0 || hear(*client, proof(), anybody);
            if (!goes_on || !hear(*client, bytes, anybody) || (who & 64) != 0) client.reset();
            if (values.used() > kMaxBytes) std::abort();
        }
    }
    if (!anybody && values.used() != 0) std::abort();
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const auto request = [](wire::Operation operation, const std::string& key, const std::string& value) {
        unsigned char header[wire::kRequestHeader];
        header[0] = static_cast<unsigned char>(operation);
        wire::put_u32(header + 1, static_cast<std::uint32_t>(key.size()));
        wire::put_u32(header + 5, static_cast<std::uint32_t>(value.size()));
        return std::string(reinterpret_cast<const char*>(header), sizeof(header)) + key + value;
    };
    const auto says = [](int who, const std::string& bytes) {
        return std::string{static_cast<char>(who), static_cast<char>(bytes.size() >> 8),
                           static_cast<char>(bytes.size())} +
               bytes;
    };
    const std::string set = request(wire::Operation::set, "tandem/job", "/proc/1/fd/2");
    const std::string get = request(wire::Operation::get, "tandem/job", "");
    const std::string add = request(wire::Operation::add, "sum", "9223372036854775807");
    const std::string large = request(wire::Operation::set, "large", std::string(3000, 'x'));
    return {'\0' + says(0, set) + says(1, get) + says(64, add) + says(2, add + add),
            '\0' + says(0, large.substr(0, 1000)) + says(0, large.substr(1000) + get) +
                says(64, set.substr(0, 12)),
            '\1' + says(128, set) + says(1, get) + says(130, get + add),
            '\1' + says(0, proof() + set) + says(1, std::string(64, 'p') + get)};
}
