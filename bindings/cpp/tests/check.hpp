/// The tests' own few lines of framework: TEST, CHECK, CHECK_EQ, and a main() that counts.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Test {
    std::string name;
    std::function<void()> body;
};

inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

struct Register {
    Register(const char* name, std::function<void()> body) {
        tests().push_back({name, std::move(body)});
    }
};

/// Thrown by a CHECK that does not hold; ends its test.
struct Failure : std::exception {
    explicit Failure(std::string text) : text_(std::move(text)) {}
    const char* what() const noexcept override { return text_.c_str(); }
    std::string text_;
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
    const char* slash = std::strrchr(file, '/');
    std::ostringstream out;
    out << (slash != nullptr ? slash + 1 : file) << ':' << line << ": " << text;
    throw Failure(out.str());
}

template <class A, class B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
    if (!(a == b)) {
        std::ostringstream out;
        out << text << ": " << a << " is not " << b;
        fail(file, line, out.str());
    }
}

/// Runs every test, or those whose name holds `only`; prints the count and answers the exit code.
inline int run(const char* only) {
    int passed = 0;
    int failed = 0;
    for (const Test& test : tests()) {
        if (only != nullptr && test.name.find(only) == std::string::npos) {
            continue;
        }
        try {
            test.body();
            ++passed;
        } catch (const std::exception& failure) {
            ++failed;
            std::printf("FAILED %s\n    %s\n", test.name.c_str(), failure.what());
        }
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace check

#define CHECK_JOIN2(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN2(a, b)
#define TEST(name)                                                                                \
    static void CHECK_JOIN(test_, __LINE__)();                                                    \
    static const check::Register CHECK_JOIN(register_, __LINE__)(name,                            \
                                                                 CHECK_JOIN(test_, __LINE__));    \
    static void CHECK_JOIN(test_, __LINE__)()
#define CHECK(what)                                            \
    do {                                                       \
        if (!(what)) check::fail(__FILE__, __LINE__, #what);   \
    } while (false)
#define CHECK_EQ(a, b) check::equal((a), (b), #a, __FILE__, __LINE__)
/// The Status of the limiter::error that `what` throws.
#define CHECK_THROWS(what, wanted)                                                       \
    do {                                                                                 \
        bool thrown = false;                                                             \
        try {                                                                            \
            (void)(what);                                                                \
        } catch (const limiter::error& failure) {                                        \
            thrown = true;                                                               \
            CHECK_EQ(std::string(limiter::name(failure.status())),                       \
                     std::string(limiter::name(wanted)));                                \
        }                                                                                \
        if (!thrown) check::fail(__FILE__, __LINE__, #what " throws nothing");           \
    } while (false)

#endif  // CHECK_HPP
