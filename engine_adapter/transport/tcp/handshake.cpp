#include "engine_adapter/transport/tcp/handshake.h"

#include <cstring>

#include "common/error.h"

namespace tandem::engine::tcp {
namespace {

template <std::size_t N>
std::array<unsigned char, N> array_at(std::string_view bytes, std::size_t at) {
    std::array<unsigned char, N> values;
    std::memcpy(values.data(), bytes.data() + at, N);
    return values;
}

template <std::size_t N>
void append(std::string& text, const std::array<unsigned char, N>& values) {
    text.append(reinterpret_cast<const char*>(values.data()), N);
}

std::string_view engine_name(Kind kind) {
    return kind == Kind::control ? "engine, control" : "engine, data";
}
std::string_view trainer_name(Kind kind) {
    return kind == Kind::control ? "trainer, control" : "trainer, data";
}

}  // namespace

JobSecret secret_of(Kind kind, const std::string& text) {
    return JobSecret((kind == Kind::control ? "tandem engine key " : "tandem data token ") + text);
}

std::string greeting(Asks asks, const Nonce& engine) {
    std::string bytes(kMagic);
    bytes.push_back(static_cast<char>(asks));
    append(bytes, engine);
    return bytes;
}

Greeting parse_greeting(std::string_view bytes) {
    const auto asks = static_cast<std::uint8_t>(bytes[kMagic.size()]);
    if (!bytes.starts_with(kMagic) || asks > static_cast<std::uint8_t>(Asks::channel))
        throw ProtocolError("what answers there is not the data plane of a tandem-engine of this version");
    return {static_cast<Asks>(asks), array_at<sizeof(Nonce)>(bytes, kMagic.size() + 1)};
}

std::string hello(Kind kind, const JobSecret& secret, const Nonce& engine, const Nonce& trainer) {
    std::string bytes(1, static_cast<char>(kind));
    append(bytes, trainer);
    append(bytes, secret.prove(trainer_name(kind), engine, trainer));
    return bytes;
}

Hello parse_hello(std::string_view bytes) {
    const auto kind = static_cast<std::uint8_t>(bytes[0]);
    if (kind > static_cast<std::uint8_t>(Kind::data)) throw ProtocolError("a hello of an unknown kind");
    return {static_cast<Kind>(kind), array_at<sizeof(Nonce)>(bytes, 1),
            array_at<sizeof(Proof)>(bytes, 1 + sizeof(Nonce))};
}

bool proven(const Hello& hello, const JobSecret& secret, const Nonce& engine) {
    return secret.holds(hello.proof, trainer_name(hello.kind), engine, hello.trainer);
}

std::string verdict(const Hello& hello, const JobSecret& secret, const Nonce& engine) {
    std::string bytes(1, '\1');
    append(bytes, secret.prove(engine_name(hello.kind), engine, hello.trainer));
    return bytes;
}

std::string refusal_verdict() {
    return std::string(kVerdictBytes, '\0');
}

bool accepted(std::string_view bytes, Kind kind, const JobSecret& secret, const Nonce& engine,
              const Nonce& trainer) {
    return bytes[0] == '\1' &&
           secret.holds(array_at<sizeof(Proof)>(bytes, 1), engine_name(kind), engine, trainer);
}

}  // namespace tandem::engine::tcp
