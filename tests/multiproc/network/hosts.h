// Two "hosts" on one machine: network namespaces joined by a veth pair. Each is held by a child process that
// dies with this one, so that nothing is left however the test ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tandem::test {

// Why this process may not make network namespaces; empty when it may.
std::string why_no_hosts();

class Hosts {
  public:
    Hosts();   // throws when it may not, or when iproute2 is missing
    ~Hosts();  // kills the holders, and with them the namespaces
    Hosts(const Hosts&) = delete;
    Hosts& operator=(const Hosts&) = delete;

    static std::string address(int host) { return host == 0 ? "10.77.0.1" : "10.77.0.2"; }
    static std::string interface(int host) { return host == 0 ? "veth0" : "veth1"; }
    // Takes the link between the hosts away: packets are lost, and nobody is told.
    void cut() const;
    void mend() const;

    // Starts this command on a host, with these variables ("KEY=value") beside the test's own. It dies with
    // this process.
    pid_t start(int host, const std::vector<std::string>& command,
                const std::vector<std::string>& environment) const;

  private:
    void run(int host, const std::vector<std::string>& command) const;
    pid_t holders_[2] = {-1, -1};
};

}  // namespace tandem::test
