// What the ranks of one job know and nobody else (TANDEM_JOB_SECRET). It is never sent: both sides of a connection prove
// that they know it by a keyed MAC (HMAC-SHA-512-256) over random numbers of both.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;

Nonce random_nonce();
std::string random_hex();  // a nonce's 64 digits: what nobody guesses, where text is wanted

class JobSecret {
  public:
    static constexpr std::size_t kShortest = 16;  // bytes

    // Throws ConfigError naming TANDEM_JOB_SECRET when the text is too short. No error shows it.
    explicit JobSecret(std::string_view text);
    ~JobSecret();
    JobSecret(const JobSecret&) = default;
    JobSecret& operator=(const JobSecret&) = default;

    // TANDEM_JOB_SECRET; nullopt where it is not set.
    static std::optional<JobSecret> from_environment();

    // `who` tells one side's proof from the other's: "server", "client".
    Proof prove(std::string_view who, const Nonce& server, const Nonce& client) const;
    // Takes as long for any proof.
    bool holds(const Proof& proof, std::string_view who, const Nonce& server, const Nonce& client) const;

  private:
    std::array<unsigned char, 32> key_;
};

}  // namespace tandem
