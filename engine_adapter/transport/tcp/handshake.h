// How a connection to an engine's data plane begins. Both ends prove that they know a secret, which is never sent
// (common/identity/job_secret.h): for a control connection the engine's key, for a data connection a token that the engine
// gave over the control connection that it belongs to.
//
//   greeting  "TandEng1" | asks u8 | 32 random bytes          from the engine
//   hello     kind u8 | 32 random bytes | 32 bytes of MAC     from the trainer
//   verdict   accepted u8 | 32 bytes of MAC                   from the engine; refused: the connection ends
//
// After it a control connection carries what channel/channel.h says, without descriptors; a data connection carries
// frames, towards the engine alone: a FrameHeader and its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/identity/job_secret.h"

namespace tandem::engine::tcp {

enum class Asks : std::uint8_t {
    nothing = 0,  // an engine without a key lets anybody in (--allow-unauthenticated)
    key = 1,
    channel = 2,  // no control connection: only who is on the same host and runs as the same user may push
};
enum class Kind : std::uint8_t { control = 0, data = 1 };

constexpr std::string_view kMagic = "TandEng1";
constexpr std::size_t kGreetingBytes = kMagic.size() + 1 + sizeof(Nonce);
constexpr std::size_t kHelloBytes = 1 + sizeof(Nonce) + sizeof(Proof);
constexpr std::size_t kVerdictBytes = 1 + sizeof(Proof);

// A part of one bucket, as packed.h lays it out.
struct FrameHeader {
    std::uint64_t serial =
        0;  // of the load that it belongs to, counted from 0 over the trainer's connections
    std::uint64_t offset = 0;  // in the packed bucket
    std::uint64_t bytes = 0;
    std::uint64_t total = 0;  // of the packed bucket
};
static_assert(sizeof(FrameHeader) == 32 && std::has_unique_object_representations_v<FrameHeader>);

// `text`: the key, or the token.
JobSecret secret_of(Kind kind, const std::string& text);

// The engine's words.
std::string greeting(Asks asks, const Nonce& engine);
struct Hello {
    Kind kind;
    Nonce trainer;
    Proof proof;
};
Hello parse_hello(std::string_view bytes);  // of kHelloBytes; throws ProtocolError
bool proven(const Hello& hello, const JobSecret& secret, const Nonce& engine);
std::string verdict(const Hello& hello, const JobSecret& secret, const Nonce& engine);
std::string refusal_verdict();

// The trainer's.
struct Greeting {
    Asks asks;
    Nonce engine;
};
Greeting parse_greeting(
    std::string_view bytes);  // of kGreetingBytes; throws ProtocolError: no engine of ours
std::string hello(Kind kind, const JobSecret& secret, const Nonce& engine, const Nonce& trainer);
// Of kVerdictBytes: the engine accepts, and knows the secret too.
bool accepted(std::string_view bytes, Kind kind, const JobSecret& secret, const Nonce& engine,
              const Nonce& trainer);

}  // namespace tandem::engine::tcp
