/* Versions, and the words for statuses. */
#include "check.h"

static void the_library_is_the_headers(void) {
    CHECK_EQ(limiter_abi_version(), LIMITER_ABI);
    CHECK_EQ(limiter_version(),
             LIMITER_VERSION_MAJOR << 16 | LIMITER_VERSION_MINOR << 8 | LIMITER_VERSION_PATCH);
}

static void every_status_has_a_name_and_a_sentence(void) {
    static const struct {
        limiter_status status;
        const char *name;
    } all[] = {
#define ROW(status) {status, #status}
        ROW(LIMITER_OK),        ROW(LIMITER_PENDING),         ROW(LIMITER_DENIED),
        ROW(LIMITER_NEVER),     ROW(LIMITER_INVALID),         ROW(LIMITER_CONFIG),
        ROW(LIMITER_CLOSED),    ROW(LIMITER_TIMEOUT),         ROW(LIMITER_CANCELLED),
        ROW(LIMITER_BACKEND),   ROW(LIMITER_UNKNOWN_OUTCOME), ROW(LIMITER_STALE),
        ROW(LIMITER_FORKED),    ROW(LIMITER_WOULD_DEADLOCK),  ROW(LIMITER_OVERLOADED),
        ROW(LIMITER_RESOURCE),  ROW(LIMITER_UNSUPPORTED),     ROW(LIMITER_PANIC),
#undef ROW
    };
    size_t i, j;
    for (i = 0; i < CHECK_COUNT(all); i++) {
        const char *message = limiter_status_message(all[i].status);
        check_context(all[i].name);
        CHECK(strcmp(limiter_status_name(all[i].status), all[i].name) == 0);
        CHECK(message != NULL && strlen(message) >= 4 && message[strlen(message) - 1] != '.');
        CHECK(limiter_status_message(all[i].status) == message); /* static */
        for (j = 0; j < i; j++) CHECK(strcmp(message, limiter_status_message(all[j].status)) != 0);
    }
}

static void any_other_number_has_words_too(void) {
    static const limiter_status none[] = {4, 5, -14, -98, -100, -1000, 1000, INT32_MAX, INT32_MIN};
    size_t i;
    for (i = 0; i < CHECK_COUNT(none); i++) {
        CHECK(strcmp(limiter_status_name(none[i]), "LIMITER_?") == 0);
        CHECK(limiter_status_message(none[i])[0] != '\0');
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(the_library_is_the_headers),
        CHECK_TEST(every_status_has_a_name_and_a_sentence),
        CHECK_TEST(any_other_number_has_words_too),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
