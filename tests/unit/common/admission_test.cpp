// Who makes room for whom, as a table of standings and by a flood at random beside those who are known.
#include "common/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace tandem {
namespace {

PeerGroup at_address(std::uint8_t last) {
    return {10, 0, 0, last};
}

// A client that knows whether it was sent away.
struct Client {
    Client(Admission& all, std::uint8_t address = 1)
        : place(all, at_address(address), [this] { gone = true; }) {}

    bool gone = false;
    Admission::Place place;
};

class AdmissionTest : public testing::Test {
  protected:
    Client& come(std::uint8_t address = 1) {
        return *clients.emplace_back(std::make_unique<Client>(all, address));
    }
    void flood(int count, std::uint8_t address = 2) {
        for (int i = 0; i < count; ++i) come(address);
    }

    Admission all{8};  // 7 that need not be guests
    std::vector<std::unique_ptr<Client>> clients;
};

TEST_F(AdmissionTest, TheOldestGuestMakesRoom) {
    for (int i = 0; i < 8; ++i) come();
    for (const auto& client : clients) EXPECT_FALSE(client->gone);
    come();
    for (std::size_t i = 0; i < clients.size(); ++i) EXPECT_EQ(clients[i]->gone, i == 0) << i;
}

TEST_F(AdmissionTest, GuestsOfTheAddressThatHasMostGoFirst) {
    Client& lonely = come(1);
    flood(100);
    EXPECT_FALSE(lonely.gone);
    // From many addresses it is the oldest of all.
    for (std::uint8_t address = 3; address < 100; ++address) come(address);
    EXPECT_TRUE(lonely.gone);
}

TEST_F(AdmissionTest, AnAddressThatSomebodyWasKnownAtComesLast) {
    {
        Client trainer(all, 1);
        ASSERT_TRUE(trainer.place.prove());
    }
    Client &first = come(1), &second = come(1);
    flood(5);
    for (std::uint8_t address = 3; address < 100; ++address) come(address);
    EXPECT_FALSE(first.gone);
    EXPECT_FALSE(second.gone);
}

TEST_F(AdmissionTest, NoGuestPushesOutWhoIsServedOrKnown) {
    Client &known = come(), &rests = come(), &served = come(), &idle = come();
    ASSERT_TRUE(known.place.prove() && rests.place.prove() && served.place.serve() && idle.place.serve());
    rests.place.rest();
    idle.place.rest();
    flood(1000);
    EXPECT_FALSE(known.gone || rests.gone || served.gone || idle.gone);
}

TEST_F(AdmissionTest, OneThatIsKnownPushesOutInOrder) {
    Client &known = come(), &rests = come(), &served = come(), &idle = come();
    ASSERT_TRUE(known.place.prove() && rests.place.prove() && served.place.serve() && idle.place.serve());
    rests.place.rest();
    idle.place.rest();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(come().place.prove());  // now seven
    const auto gone = [&] { return std::vector{idle.gone, served.gone, rests.gone, known.gone}; };
    for (int pushed = 1; pushed <= 3; ++pushed) {
        EXPECT_TRUE(come().place.prove());
        EXPECT_EQ(gone(), (std::vector{pushed > 0, pushed > 1, pushed > 2, false}));
    }
    Client& late = come();
    EXPECT_FALSE(late.place.prove());
    EXPECT_FALSE(late.gone);  // a guest, who may be told so
    EXPECT_EQ(gone(), (std::vector{true, true, true, false}));
}

TEST_F(AdmissionTest, OneThatIsServedPushesOutWhoRestsAndNobodyElse) {
    Client &known = come(), &idle = come();
    ASSERT_TRUE(known.place.prove() && idle.place.serve());
    known.place.rest();
    idle.place.rest();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(come().place.serve());
    EXPECT_TRUE(come().place.serve());
    EXPECT_TRUE(idle.gone);
    EXPECT_FALSE(come().place.serve());
    EXPECT_FALSE(known.gone);
    EXPECT_TRUE(known.place.serve());  // its next request: still a known one
    EXPECT_FALSE(come().place.serve());
}

TEST_F(AdmissionTest, WhoRestsTakesItsPlaceUpAgain) {
    for (int i = 0; i < 7; ++i) ASSERT_TRUE(come().place.serve());
    for (const auto& client : clients) client->place.rest();
    for (const auto& client : clients) ASSERT_TRUE(client->place.serve());
    for (const auto& client : clients) EXPECT_FALSE(client->gone);
}

TEST_F(AdmissionTest, APlaceThatIsGivenUpIsFree) {
    for (int i = 0; i < 7; ++i) ASSERT_TRUE(come().place.prove());
    clients.front()->place.give_up();
    EXPECT_TRUE(come().place.prove());
    EXPECT_FALSE(clients.front()->place.prove());
}

// At random: who came, rose, rested or left, beside a count of them that is kept plainly.
TEST_F(AdmissionTest, NeverMoreThanThereArePlaces) {
    std::mt19937 random(7);
    for (int step = 0; step < 20'000; ++step) {
        const auto one = clients.empty() ? 0 : random() % clients.size();
        switch (random() % 5) {
            case 0:
                if (!clients.empty()) clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(one));
                break;
            case 1:
                if (!clients.empty()) clients[one]->place.rest();
                break;
            case 2:
                if (!clients.empty()) clients[one]->place.serve();
                break;
            case 3:
                if (!clients.empty()) clients[one]->place.prove();
                break;
            default:
                come(static_cast<std::uint8_t>(random() % 5));
        }
        const auto here =
            std::count_if(clients.begin(), clients.end(), [](const auto& client) { return !client->gone; });
        ASSERT_LE(here, 8) << step;
    }
}

}  // namespace
}  // namespace tandem
