// The torch store without its sockets: three clients that send what they like in any pieces. It must keep to its limit,
// and give back what those who are gone have taken for anything but values.
//   again and again: u8 client, mod 3; bit 7: it says first who it is, bit 6: it hangs up     u16 length, bytes
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.h"
#include "engine_adapter/torch_store/session.h"
#include "tests/fuzz/target.h"

namespace {

using namespace tandem;
using namespace tandem::engine::torch_store;

constexpr std::size_t kMaxBytes = std::size_t{256} << 10;

std::string validate() {
    std::string said(1, static_cast<char>(Operation::validate));
    put(said, kMagic);
    return said;
}

// False: the connection ends.
bool hear(Session& session, std::string_view bytes) {
    try {
        session.feed(bytes);
        while (session.work() || !session.answers().empty()) session.sent();
        return true;
    } catch (const ProtocolError&) {
        return false;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    Keys keys(kMaxBytes);
    {
        std::array<std::optional<Session>, 3> clients;
        while (rest.size() >= 3) {
            const auto who = static_cast<unsigned char>(rest[0]);
            const std::size_t length = static_cast<std::size_t>(static_cast<unsigned char>(rest[1])) << 8 |
                                       static_cast<unsigned char>(rest[2]);
            rest.remove_prefix(3);
            auto& client = clients[(who & 63) % clients.size()];
            if (!client) client.emplace(keys, [] {});
            const std::string_view bytes = rest.substr(0, length);
            rest.remove_prefix(bytes.size());
            const bool goes_on = (who & 128) == 0 || hear(*client, validate());
            if (!goes_on || !hear(*client, bytes) || (who & 64) != 0) client.reset();
            if (keys.budget().used() > kMaxBytes) std::abort();
        }
    }
    if (!keys.awaited().empty()) std::abort();
    for (const std::string& name : keys.names()) keys.erase(name);
    if (keys.queues() == 0 && keys.budget().used() != 0) std::abort();
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const auto text = [](const std::string& content) {
        std::string said;
        put_text(said, content);
        return said;
    };
    const auto number = [](std::int64_t value) {
        std::string said;
        put(said, value);
        return said;
    };
    const auto ask = [](Operation operation, const std::string& fields) {
        return static_cast<char>(operation) + fields;
    };
    const auto says = [](int who, const std::string& bytes) {
        return std::string{static_cast<char>(who), static_cast<char>(bytes.size() >> 8),
                           static_cast<char>(bytes.size())} +
               bytes;
    };
    const std::string set = ask(Operation::set, text("/group/0") + text(std::string(128, 'i')));
    const std::string wait = ask(Operation::wait, number(2) + text("/group/0") + text("/group/1"));
    const std::string multi =
        ask(Operation::multi_set, number(2) + text("/group/1") + text("") + text("/x") + text("y"));
    const std::string add = ask(Operation::add, text("/x") + number(1));
    const std::string compare = ask(Operation::compare_set, text("/x") + text("y") + text("3"));
    const std::string queue =
        ask(Operation::queue_push, text("/q") + text("1")) + ask(Operation::queue_pop, text("/q"));
    const std::string barrier = ask(Operation::barrier, text("/b") + number(2));
    return {
        says(128, wait) + says(129, set + multi) + says(64, ask(Operation::cancel_wait, "")),
        says(128, set.substr(0, 20)) + says(0, set.substr(20) + compare + add) + says(65, add),
        says(128, barrier) + says(129, queue + barrier) + says(130, ask(Operation::list_keys, "")),
        says(128, multi + compare + add + ask(Operation::multi_get, number(1) + text("/x"))) + says(1, set)};
}
